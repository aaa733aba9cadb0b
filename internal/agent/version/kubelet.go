package version

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kubelet"
	"github.com/capi-refit/refit/internal/agent/staticpod"
)

const (
	kubeletUnit = kubelet.Unit
	// journalTimeout bounds a look at the journal.
	journalTimeout = 10 * time.Second
	// maxTold is how much of the journal people are shown, in bytes.
	maxTold = 600
)

// kubeletFiles are those of the kubelet's that kubeadm makes again with an upgrade: an older kubelet may not know what is in the new ones.
var kubeletFiles = []string{kubelet.ConfigFile, kubelet.FlagsFile, kubelet.InstanceFile}

// endpointBack mends what a kubeadm has left that was killed. It moves the address of the container runtime from the kubelet's arguments to a
// file of its own, and takes it away first: called again, it would find none, and write down that there is none.
func (k *Kind) endpointBack(b before) error {
	if b.Files[kubelet.InstanceFile].State.Exists {
		return nil
	}
	instance, _, err := k.host.ReadFile(kubelet.InstanceFile)
	if err != nil {
		return err
	}
	now, state, err := k.host.ReadFile(kubelet.FlagsFile)
	if err != nil {
		return err
	}
	next, lost := kubelet.WithEndpoint(b.Files[kubelet.FlagsFile].Data, now, instance)
	if !lost {
		return nil
	}
	if !state.Exists {
		state = b.Files[kubelet.FlagsFile].State
	}
	if err := k.host.RemoveFile(kubelet.InstanceFile); err != nil { // made without the address; first, or a death here would leave it
		return err
	}
	return k.host.WriteFile(kubelet.FlagsFile, next, state)
}

// restart has the kubelet that is installed run. One that failed too often of late would not be started.
func (k *Kind) restart(ctx context.Context) error {
	if err := k.host.Units.Do(ctx, "daemon-reload", ""); err != nil {
		return fmt.Errorf("systemctl daemon-reload: %w", err)
	}
	_ = k.host.Units.Do(ctx, "reset-failed", kubeletUnit) // if that does not work, the restart tells
	if err := k.host.Units.Do(ctx, "restart", kubeletUnit); err != nil {
		return k.telling(ctx, fmt.Errorf("%s could not be restarted: %w", kubeletUnit, err))
	}
	return nil
}

// awaitKubelet waits until the kubelet is healthy, the Node says that one of the version runs, and is Ready.
func (k *Kind) awaitKubelet(ctx context.Context, version string) (note string, err error) {
	within, cancel := context.WithTimeout(ctx, kubeletPatience)
	defer cancel()
	if note, err = kubelet.Await(within, k.host); err == nil {
		err = staticpod.Until(within, k.host.Clock, func() error {
			is, err := k.node(within)
			if err != nil {
				return err
			}
			return is.runs(version)
		})
	}
	if err != nil {
		return "", k.telling(ctx, fmt.Errorf("the kubelet does not work as %s: %w", version, err))
	}
	return note, nil
}

// telling adds to an error what the kubelet itself has said last: what systemd says about it, as often as it starts it again, tells nothing.
func (k *Kind) telling(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(ctx, journalTimeout)
	defer cancel()
	out, failed := k.host.Run(ctx, host.Command{Name: "journalctl", Args: []string{"_SYSTEMD_UNIT=" + kubelet.Unit, "--no-pager", "-n", "5", "-o", "cat"}})
	said := bounded(host.Redact(strings.TrimSpace(string(out))))
	if failed != nil || said == "" {
		return fmt.Errorf("%w (see journalctl -u kubelet on the node)", err)
	}
	return fmt.Errorf("%w; the kubelet has said last: %s", err, said)
}

// bounded returns the end of a text in one line.
func bounded(text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	if len(text) > maxTold {
		text = text[len(text)-maxTold:]
	}
	return strings.ToValidUTF8(text, "")
}

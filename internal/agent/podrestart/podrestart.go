// Package podrestart restarts the static pods that mount files of the node which have changed.
//
// It stops their containers by the container runtime, and the kubelet starts them again: each with its mounts made again, and so with the
// file that is there now. Manifests are not touched, so that a kill at any point leaves them as they were, byte for byte, and the kubelet
// brings up what is down. Which containers have to go is written down before the first is stopped.
package podrestart

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/capi-refit/refit/internal/agent/container"
	"github.com/capi-refit/refit/internal/agent/controlplane"
	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/staticpod"
)

// backPatience is how long a pod may take at least after files were put back: the kubelet starts one that has failed over and over only
// after five minutes.
const backPatience = 10 * time.Minute

// etcdPod is the name of the pod of etcd, as kubeadm has it.
const etcdPod = "etcd"

// Work is what has to be restarted, and how far that is. It is kept on the node, since whoever does it can be killed.
type Work struct {
	// Paths of files that have changed.
	Paths []string `json:"paths"`
	// Remade reports that kubeadm makes manifests in the same run: of those that then are other ones the kubelet has replaced the pods.
	Remade bool `json:"remade,omitempty"`
	// Round tells what is at the paths. When that changes, because it was put back, all is to be restarted again.
	Round string `json:"round,omitempty"`
	// Back reports that the round is not the first: what has changed was put back.
	Back bool `json:"back,omitempty"`
	// Old are the IDs of the containers that have to go, by manifest.
	Old map[string][]string `json:"old,omitempty"`
	// Done are the manifests whose pods run again.
	Done map[string]bool `json:"done,omitempty"`
	// Complete reports that all of the round are.
	Complete bool `json:"complete,omitempty"`
}

// Unfinished reports whether restarts were begun and did not come to their end.
func (w Work) Unfinished() bool { return w.Round != "" && !w.Complete }

// Restarter restarts pods of a node.
type Restarter struct {
	Host host.Host
	// Save writes down how far the work is.
	Save func(Work) error
	// Patience is how long a pod may take to be back. 0: five minutes.
	Patience time.Duration
}

// Mounted reports whether a static pod of the node mounts the path, and whether one of etcd's does.
func Mounted(r host.Root, p string) (mounted, etcd bool, err error) {
	all, err := staticpod.List(r)
	if err != nil {
		return false, false, err
	}
	for _, m := range all {
		if len(m.Mounting(r, p)) > 0 {
			mounted = true
			etcd = etcd || m.Pod.Metadata.Name == etcdPod
		}
	}
	return mounted, etcd, nil
}

// Able returns an error if the containers of pods can't be seen on the node.
func Able(ctx context.Context, r host.Root) error {
	_, err := container.Running(ctx, r, "kube-system/none")
	if err != nil {
		return fmt.Errorf("static pods can't be restarted: %w", err)
	}
	return nil
}

// Restart restarts the pods one at a time, and waits for each until its containers run again, the kubelet says that they are ready, and,
// on a control plane, the node's API server and its member of etcd are well. It can be repeated after a kill: what is done is passed over.
func (r Restarter) Restart(ctx context.Context, w Work, note staticpod.Note) error {
	w, err := r.begin(w)
	if err != nil {
		return err
	}
	if w.Back {
		r.Patience = max(r.Patience, backPatience)
	}
	all, err := staticpod.List(r.Host.Root)
	if err != nil {
		return err
	}
	for _, file := range slices.Sorted(maps.Keys(all)) {
		m := all[file]
		names := m.Mounting(r.Host.Root, w.Paths...)
		replaced := w.Remade && note[file].Digest != m.Digest
		if len(names) == 0 || w.Done[file] || replaced {
			continue
		}
		if err := r.one(ctx, w, file, m, names, note); err != nil {
			return fmt.Errorf("static pod %s, which mounts what has changed, could not be restarted: %w", m.Pod.Metadata.Name, err)
		}
		w.Done[file] = true
		if err := r.Save(w); err != nil {
			return err
		}
	}
	w.Complete = true
	return r.Save(w)
}

// begin returns the work as far as it is done. What is at the paths tells whether it is that of this round, or of one before.
func (r Restarter) begin(w Work) (Work, error) {
	round, err := fingerprint(r.Host.Root, w.Paths)
	if err != nil {
		return w, err
	}
	if w.Round != round {
		w = Work{Paths: w.Paths, Remade: w.Remade, Back: w.Round != "", Round: round}
		err = r.Save(w)
	}
	if w.Old == nil {
		w.Old = map[string][]string{}
	}
	if w.Done == nil {
		w.Done = map[string]bool{}
	}
	return w, err
}

// one restarts the named containers of a pod.
func (r Restarter) one(ctx context.Context, w Work, file string, m staticpod.Manifest, names []string, note staticpod.Note) error {
	pod, err := r.nameOf(m)
	if err != nil {
		return err
	}
	running, err := container.Running(ctx, r.Host.Root, pod)
	if err != nil {
		return err
	}
	if _, known := w.Old[file]; !known {
		w.Old[file] = ids(running, names)
		if err := r.Save(w); err != nil {
			return err
		}
	}
	if err := r.stop(ctx, m, running, w.Old[file]); err != nil {
		return err
	}
	return r.await(ctx, pod, names, w.Old[file], note)
}

// stop stops those of the containers that have to go. A pod that is down comes back by itself.
func (r Restarter) stop(ctx context.Context, m staticpod.Manifest, running []container.Container, old []string) error {
	guarded := m.Pod.Metadata.Name != etcdPod
	for _, c := range running {
		if !slices.Contains(old, c.ID) {
			continue
		}
		if !guarded {
			if err := r.bearable(ctx); err != nil {
				return err
			}
			guarded = true
		}
		if err := container.Stop(ctx, r.Host.Root, c.ID); err != nil {
			return err
		}
	}
	return nil
}

// bearable returns an error unless etcd can do without the member of this node for a while.
func (r Restarter) bearable(ctx context.Context) error {
	pods, err := controlplane.New(r.Host).Pods()
	if err != nil {
		return err
	}
	if pods == nil || !pods.Etcd() {
		return errors.New("etcd can't be asked whether it can do without this member: this is not a control-plane node of kubeadm's")
	}
	return pods.Bearable(ctx)
}

// await waits until other containers than the old ones run, and the kubelet and the pods themselves say that they are ready.
func (r Restarter) await(ctx context.Context, pod string, names, old []string, note staticpod.Note) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(r.Patience, 5*time.Minute))
	defer cancel()
	err := staticpod.Until(ctx, r.Host.Clock, func() error {
		running, err := container.Running(ctx, r.Host.Root, pod)
		if err != nil {
			return err
		}
		for _, name := range names {
			if !slices.ContainsFunc(running, func(c container.Container) bool { return c.Name == name && !slices.Contains(old, c.ID) }) {
				return fmt.Errorf("container %s does not run again (see crictl ps -a and crictl logs on the node)", name)
			}
		}
		return r.ready(ctx, pod, names, old)
	})
	if err != nil {
		return err
	}
	kind := controlplane.New(r.Host)
	if pods, err := kind.Pods(); err != nil || pods == nil {
		return errors.Join(err, staticpod.Await(ctx, r.Host, note))
	}
	return kind.Await(ctx, controlplane.Saved{Pods: note, Patience: r.Patience})
}

// ready returns an error unless the kubelet tells of other containers than the old ones that they are ready.
func (r Restarter) ready(ctx context.Context, pod string, names, old []string) error {
	_, mirrors, err := staticpod.Mirrors(ctx, r.Host.Root)
	if err != nil {
		return err
	}
	is := mirrors[pod]
	if is == nil {
		return errors.New("it is not there")
	}
	for _, name := range names {
		well := slices.ContainsFunc(is.Status.ContainerStatuses, func(c staticpod.ContainerStatus) bool {
			_, id, _ := strings.Cut(c.ContainerID, "://")
			return c.Name == name && c.Ready && !slices.Contains(old, id)
		})
		if !well {
			return fmt.Errorf("container %s is not ready", name)
		}
	}
	return nil
}

// nameOf returns the name of a manifest's pod, with the namespace. The node's name is that of the kubelet's certificate: the API server may
// be what is down.
func (r Restarter) nameOf(m staticpod.Manifest) (string, error) {
	c, err := staticpod.Connect(r.Host.Root, staticpod.KubeletConfig)
	if err != nil {
		return "", err
	}
	node, err := c.NodeName()
	if err != nil {
		return "", fmt.Errorf("%s: %w", staticpod.KubeletConfig, err)
	}
	return m.NameOn(node), nil
}

// ids returns those of the named containers.
func ids(running []container.Container, names []string) []string {
	out := []string{}
	for _, c := range running {
		if slices.Contains(names, c.Name) {
			out = append(out, c.ID)
		}
	}
	return out
}

// fingerprint tells what is at the paths.
func fingerprint(r host.Root, paths []string) (string, error) {
	h := sha256.New()
	for _, p := range paths {
		state, err := r.Observe(p)
		if err != nil {
			return "", err
		}
		_, _ = fmt.Fprintf(h, "%s %+v\n", path.Clean(p), state)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

package version

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"

	"github.com/capi-refit/refit/internal/agent/controlplane"
	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kubelet"
	"github.com/capi-refit/refit/internal/agent/staticpod"
)

// printed is a version as kubelet --version and kubeadm version -o short print it.
var printed = regexp.MustCompile(`\bv[0-9]+\.[0-9]+\.[0-9]+[0-9A-Za-z.+-]*`)

// shown is what the node shows of its version.
type shown struct {
	// kubelet is the version of the one that runs, or, if the API server did not say, of the program that is installed. Empty: neither is
	// known.
	kubelet string
	// running reports that it is the one that runs.
	running bool
	// pods is nil on a worker.
	pods *controlplane.Pods
}

// look reads what is there. A node that kubeadm has not made, or that has no kubelet, has nil.
func (k *Kind) look(ctx context.Context) (*shown, error) {
	ours, err := k.ofKubeadm()
	if err != nil || !ours || k.host.Program("kubelet") == "" {
		return nil, err
	}
	s := &shown{}
	if s.pods, err = k.pods.Pods(); err != nil {
		return nil, err
	}
	if is, err := k.node(ctx); err == nil && is.Status.NodeInfo.KubeletVersion != "" {
		s.kubelet, s.running = is.Status.NodeInfo.KubeletVersion, true
	} else {
		s.kubelet = k.installedKubelet(ctx)
	}
	return s, nil
}

// ofKubeadm reports whether kubeadm has made the node.
func (k *Kind) ofKubeadm() (bool, error) {
	if k.host.Find(kubelet.FlagsFile) != "" {
		return true, nil
	}
	info, err := k.host.Stat(staticpod.Dir)
	if unseen := (*fs.PathError)(nil); err != nil && !errors.As(err, &unseen) { // a link that is not followed
		return false, err
	}
	return err == nil && info.IsDir(), nil
}

// versions returns all that are known, those of static pods as their images' tags.
func (s *shown) versions() []string {
	var all []string
	if s.kubelet != "" {
		all = append(all, s.kubelet)
	}
	if s.pods == nil {
		return all
	}
	for _, name := range controlplane.Components {
		if tag := s.pods.Tag(name); tag != "" {
			all = append(all, tag)
		}
	}
	return all
}

// differs returns what is not of a version.
func (s *shown) differs(version string) (what []string) {
	switch s.kubelet {
	case version:
	case "":
		what = append(what, "kubelet of unknown version")
	default:
		what = append(what, "kubelet "+s.kubelet)
	}
	return append(what, s.podsDiffer(version)...)
}

// podsDiffer returns which static pods are not of a version.
func (s *shown) podsDiffer(version string) (what []string) {
	if s.pods == nil {
		return nil
	}
	for _, name := range controlplane.Components {
		switch tag := s.pods.Tag(name); tag {
		case controlplane.TagOf(version):
		case "":
			what = append(what, name+" missing")
		default:
			what = append(what, name+" "+tag)
		}
	}
	return what
}

// nodeObject is as much of a Node as is read here.
type nodeObject struct {
	Status struct {
		NodeInfo struct {
			KubeletVersion string `json:"kubeletVersion"`
		} `json:"nodeInfo"`
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

// node reads the node's own Node, as its kubelet may.
func (k *Kind) node(ctx context.Context) (nodeObject, error) {
	var n nodeObject
	err := staticpod.ReadNode(ctx, k.host.Root, &n)
	return n, err
}

// runs returns an error unless the kubelet that runs is of a version, and its Node is Ready. A new kubelet reports both at once, so a
// condition that the old one has left is not taken for its own.
func (n nodeObject) runs(version string) error {
	if is := n.Status.NodeInfo.KubeletVersion; is != version {
		return fmt.Errorf("the Node says that kubelet %s runs, not %s", is, version)
	}
	for _, c := range n.Status.Conditions {
		if c.Type == "Ready" && c.Status == "True" {
			return nil
		}
	}
	return errors.New("the Node is not Ready")
}

// installedKubelet returns the version of the program, or "" if it does not say it.
func (k *Kind) installedKubelet(ctx context.Context) string {
	return k.versionOf(ctx, host.Command{Name: "kubelet", Args: []string{"--version"}})
}

// installedKubeadm returns the version of the program, or "".
func (k *Kind) installedKubeadm(ctx context.Context) string {
	return k.versionOf(ctx, host.Command{Name: "kubeadm", Args: []string{"version", "-o", "short"}})
}

func (k *Kind) versionOf(ctx context.Context, c host.Command) string {
	ctx, cancel := context.WithTimeout(ctx, apiPatience)
	defer cancel()
	out, err := k.host.Run(ctx, c)
	if err != nil {
		return ""
	}
	return printed.FindString(string(out))
}

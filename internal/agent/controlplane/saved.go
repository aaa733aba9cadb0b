package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/agent/staticpod"
)

// Saved is what was before a change, and what Undo needs. It has keys in it.
type Saved struct {
	// Files are the manifests, and the certificates of the API server and of etcd with their keys.
	Files map[string]File `json:"files"`
	// Pods are those that ran.
	Pods staticpod.Note `json:"pods"`
	// Patience is how long the rules give static pods to be replaced, in nanoseconds. 0: they don't say.
	Patience time.Duration `json:"patience,omitempty"`
	// Remade reports that another version of Kubernetes was brought to the node after the change was planned, for which kubeadm has made
	// all manifests again, and that the rest is of the time after that.
	Remade bool `json:"remade,omitempty"`
	// At is when the change was planned. What kubeadm has left on the node since is the run's own.
	At time.Time `json:"at,omitzero"`
	// Again reports that the change was begun before, by a process that did not come to its end.
	Again bool `json:"-"`
}

// File is one that was.
type File = host.Saved

// remember reads what Undo puts back.
func (k *Kind) remember(ctx context.Context, s shown) (Saved, error) {
	ctx, cancel := context.WithTimeout(ctx, apiPatience)
	defer cancel()
	note, err := staticpod.Observe(ctx, k.host)
	if err != nil {
		return Saved{}, err
	}
	b := Saved{Files: map[string]File{}, Pods: note, At: k.host.Clock.Now()}
	paths := manifestPaths(s)
	for _, c := range s.certificates {
		paths = append(paths, c.certFile, c.keyFile)
	}
	for _, p := range paths {
		was, err := k.host.Save(p)
		if err != nil {
			return Saved{}, err
		}
		if was.State.Exists {
			b.Files[p] = was
		}
	}
	return b, nil
}

func manifestPaths(s shown) []string {
	var paths []string
	for _, name := range pods {
		if s.manifests[name] != nil {
			paths = append(paths, manifestPath(name))
		}
	}
	return paths
}

// paths returns the files in the order in which they are put back: a key before its certificate, which the API server reads when both
// fit, and etcd before what needs it.
func (b Saved) paths() []string {
	paths := make([]string, 0, len(b.Files))
	for p := range b.Files {
		paths = append(paths, p)
	}
	rank := func(p string) int {
		switch {
		case strings.HasSuffix(p, ".key"):
			return 0
		case path.Dir(p) != staticpod.Dir:
			return 1
		case p == manifestPath(etcdMember):
			return 2
		default:
			return 3
		}
	}
	slices.SortFunc(paths, func(a, b string) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return paths
}

// checkEtcdBack returns an error if etcd ran with another minor version meanwhile: it may have changed its data, which the older one
// does not read.
func (k *Kind) checkEtcdBack(b Saved) error {
	f, ok := b.Files[manifestPath(etcdMember)]
	now, err := staticpod.Read(k.host.Root, manifestPath(etcdMember))
	if !ok || err != nil || now == nil {
		return nil //nolint:nilerr // what is there now can't be run, so it is put back
	}
	old, err := staticpod.Parse(f.Data)
	if err != nil {
		return nil //nolint:nilerr // and what was there could not either
	}
	if minor(container(&old, etcdMember).Image) != minor(container(now, etcdMember).Image) {
		return errors.New("etcd runs with another minor version by now, and is not taken back to the one before: it may not read its data; " +
			"the snapshot from before is in " + snapshots)
	}
	return nil
}

// minor returns the first two parts of an image's tag.
func minor(image string) string {
	_, tag := splitImage(image)
	parts := strings.SplitN(tag, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

func readBefore(c kind.Change) (Saved, error) {
	var b Saved
	if err := json.Unmarshal(c.Before, &b); err != nil {
		return Saved{}, errors.New("what the control plane was before can't be read")
	}
	return b, nil
}

// heal puts back certificates that don't fit their keys, and a manifest that is missing: kubeadm moves the old one away before it moves the new one in, and may have been killed
// between. If that was etcd's, the member takes a while to be back, and until then it can't be spared. So it does after a loss of power, from
// which a change is taken up again.
func (k *Kind) heal(ctx context.Context, b Saved) error {
	_, wait := b.Files[manifestPath(etcdMember)]
	wait = wait && b.Again
	for _, p := range b.paths() {
		if path.Dir(p) != staticpod.Dir {
			continue
		}
		if now, err := k.host.Observe(p); err == nil && !now.Exists {
			if err := k.host.PutBack(p, b.Files[p]); err != nil {
				return err
			}
			wait = wait || p == manifestPath(etcdMember)
		}
	}
	etcds, err := k.healCertificates(b)
	if err != nil || !wait && !etcds {
		return err
	}
	return k.awaitEtcd(ctx)
}

// left returns how kubeadm has left the manifests after a failure.
func (k *Kind) left(b Saved) string {
	var other []string
	for _, p := range b.paths() {
		if same, err := k.host.IsAs(p, b.Files[p]); path.Dir(p) == staticpod.Dir && (err != nil || !same) {
			other = append(other, path.Base(p))
		}
	}
	if len(other) == 0 {
		return "the manifests are as they were, kubeadm has seen to that"
	}
	return "it has not put back " + strings.Join(other, ", ")
}

// Package controlplane brings what the specs say about the static pods of a control plane to a node that kubeadm has made one of.
//
// kubeadm does the work: its phase "upgrade node phase control-plane" makes the manifests out of the cluster's kubeadm-config, keeps
// the old ones, puts one after the other in place, waits for the kubelet to run it, and goes back when that does not work. What is added
// here is what kubeadm does not do: it is only called when the node does not show what is wanted; what it will go by is compared with the
// specs before; etcd is restarted only when the others can do without this member, and after a snapshot of it was kept; the API
// server's certificate gets the names that the specs add; and all is put back when it does not work in the end.
package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/agent/staticpod"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// Kind is the kind of resource.
type Kind struct {
	host host.Host
	// free returns how many bytes can be written below a directory.
	free func(dir string) (uint64, error)
}

var _ kind.Kind = (*Kind)(nil)

// New returns the kind for a node.
func New(h host.Host) *Kind { return &Kind{host: h, free: freeSpace} }

// before is what Undo needs.
type before struct {
	// Files are the manifests and the API server's certificate with its key.
	Files map[string]savedFile `json:"files"`
	// Pods are those that ran.
	Pods staticpod.Note `json:"pods"`
}

type savedFile struct {
	Data  []byte     `json:"data"`
	State host.State `json:"state"`
}

// Plan implements kind.Kind. A control plane that the specs no longer speak of is left as it is. Where nothing was applied before, or it
// is not known, only what the manifests don't show counts as changed: so the first update of something else does not restart the
// control plane. What the specs had dropped before that is not seen then.
func (k *Kind) Plan(ctx context.Context, q kind.Question) (kind.Answer, error) {
	if q.Desired == nil {
		return kind.Answer{}, nil
	}
	want, was := q.Desired.ControlPlane, (*node.ControlPlane)(nil)
	if q.Was != nil {
		was = q.Was.ControlPlane
	}
	changed := q.Changed(func(_, _ *node.Resource) bool { return same(was, want) })
	s, err := k.look()
	if err != nil {
		return kind.Answer{}, err
	}
	if s.manifests == nil {
		return absent(want, changed), nil
	}
	d, err := k.compare(s, want, was)
	if err != nil {
		return kind.Answer{}, err
	}
	patched, err := k.patched(want.PatchesDirectory)
	switch {
	case err != nil:
		return kind.Answer{}, err
	case !changed:
		return kind.Answer{Drift: d.all()}, nil
	case len(d.all()) == 0 && (was == nil || !hidden(patched, was, want)):
		return kind.Answer{}, nil
	}
	return k.propose(ctx, q, s, d, want, was)
}

// absent answers for a node without an API server. Where the specs say nothing beside what kubeadm does, there is nothing to miss:
// such a node may not be kubeadm's.
func absent(want *node.ControlPlane, changed bool) kind.Answer {
	switch {
	case silent(want):
		return kind.Answer{}
	case changed:
		return kind.Answer{Blocked: fmt.Sprintf("%s is missing: this is not a control-plane node of kubeadm's", manifestPath(apiServer))}
	default:
		return kind.Answer{Drift: []string{apiServer + " missing"}}
	}
}

// silent says whether the specs say nothing about the control plane.
func silent(want *node.ControlPlane) bool {
	if want == nil {
		return true
	}
	rest := *want
	if rest.Etcd != nil && reflect.DeepEqual(*rest.Etcd, node.Component{}) {
		rest.Etcd = nil
	}
	return reflect.DeepEqual(rest, node.ControlPlane{})
}

// propose answers that the control plane is to be changed, or what is in the way.
func (k *Kind) propose(ctx context.Context, q kind.Question, s shown, d differences, want, was *node.ControlPlane) (kind.Answer, error) {
	actions, err := q.Rules.Domain(disruption.ControlPlane)
	if err != nil {
		return kind.Answer{Blocked: err.Error()}, nil
	}
	if k.host.Program("kubeadm") == "" {
		return kind.Answer{Blocked: "the node has no kubeadm, which makes the static pods of the control plane"}, nil
	}
	config, err := k.configuration(ctx)
	if err != nil {
		return kind.Answer{}, err
	}
	if err := config.check(s, want, was); err != nil {
		return kind.Answer{Blocked: err.Error()}, nil
	}
	if err := k.ready(ctx, s, d, want, was); err != nil {
		return kind.Answer{Blocked: err.Error()}, nil
	}
	b, err := k.remember(ctx, s)
	if err != nil {
		return kind.Answer{}, err
	}
	conflict := false
	if was != nil {
		old, err := k.compare(s, was, nil)
		if err != nil {
			return kind.Answer{}, err
		}
		conflict = len(old.all()) > 0
	}
	raw, err := json.Marshal(b)
	return kind.Answer{Operation: node.Write, Conflict: conflict, Actions: actions, Before: raw}, err
}

// ready returns an error if the change can't be made now.
func (k *Kind) ready(ctx context.Context, s shown, d differences, want, was *node.ControlPlane) error {
	if d.cert {
		if err := k.canSign(s, want); err != nil {
			return err
		}
	}
	involved, err := k.etcdInvolved(d, want, was)
	if err != nil || !involved {
		return err
	}
	member, err := k.member(s)
	if err != nil {
		return err
	}
	return member.Spare(ctx)
}

// remember reads what Undo puts back.
func (k *Kind) remember(ctx context.Context, s shown) (before, error) {
	ctx, cancel := context.WithTimeout(ctx, apiPatience)
	defer cancel()
	note, err := staticpod.Observe(ctx, k.host)
	if err != nil {
		return before{}, err
	}
	b := before{Files: map[string]savedFile{}, Pods: note}
	for _, p := range append(manifestPaths(s), s.pair.certFile, s.pair.keyFile) {
		data, state, err := k.host.ReadFile(p)
		if err != nil {
			return before{}, err
		}
		if state.Exists {
			b.Files[p] = savedFile{Data: data, State: state}
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

// Undo implements kind.Kind. A manifest is put back only if it is another one by now: kubeadm has mostly done so itself.
func (k *Kind) Undo(ctx context.Context, c kind.Change) error {
	b, err := readBefore(c)
	if err != nil {
		return err
	}
	if err := k.checkEtcdBack(b); err != nil {
		return err
	}
	for _, p := range b.paths() {
		if err := k.putBack(p, b.Files[p]); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, podPatience)
	defer cancel()
	return staticpod.Await(ctx, k.host, b.Pods)
}

// paths returns the files in the order in which they are put back: a key before its certificate, which the API server reads when both
// fit, and etcd before what needs it.
func (b before) paths() []string {
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

// putBack writes a file as it was, if it is not.
func (k *Kind) putBack(p string, f savedFile) error {
	if same, err := k.asBefore(p, f); err == nil && same {
		return nil
	}
	return k.host.WriteFile(p, f.Data, f.State)
}

func (k *Kind) asBefore(p string, f savedFile) (bool, error) {
	data, state, err := k.host.ReadFile(p)
	return string(data) == string(f.Data) && state == f.State, err
}

// checkEtcdBack returns an error if etcd ran with another minor version meanwhile: it may have changed its data, which the older one
// does not read.
func (k *Kind) checkEtcdBack(b before) error {
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

func readBefore(c kind.Change) (before, error) {
	var b before
	if err := json.Unmarshal(c.Before, &b); err != nil {
		return before{}, errors.New("what the control plane was before can't be read")
	}
	return b, nil
}

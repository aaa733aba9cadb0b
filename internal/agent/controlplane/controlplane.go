// Package controlplane brings what the specs say about the static pods of a control plane to a node that kubeadm has made one of.
//
// kubeadm does the work: its phase "upgrade node phase control-plane" makes the manifests out of the cluster's kubeadm-config, keeps
// the old ones, puts one after the other in place, waits for the kubelet to run it, and goes back when that does not work. What is added
// here is what kubeadm does not do: it is only called when the node does not show what is wanted; what it will go by is compared with the
// specs before; etcd is restarted only when the others can do without this member, and after a snapshot of it was kept; the
// certificates of the API server and of etcd get the names that the specs add; and all is put back when it does not work in the end.
package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/agent/staticpod"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/kubeadmphase"
	"github.com/capi-refit/refit/internal/node"
)

// Kind is the kind of resource.
type Kind struct {
	host host.Host
	// space returns what the file system of a directory has left.
	space func(dir string) (host.Space, error)
}

var _ kind.Kind = (*Kind)(nil)

// New returns the kind for a node.
func New(h host.Host) *Kind { return &Kind{host: h, space: host.SpaceAt} }

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

// silent reports whether the specs say nothing about the control plane.
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
	if err := config.check(s, want, was, q.Kubernetes); err != nil {
		return kind.Answer{Blocked: err.Error()}, nil
	}
	if err := gatesAct(q.Kubernetes, s, want, was); err != nil {
		return kind.Answer{Blocked: err.Error()}, nil
	}
	if err := k.ready(ctx, q, s, d); err != nil {
		return kind.Answer{Blocked: err.Error()}, nil
	}
	b, err := k.remember(ctx, s)
	if err != nil {
		return kind.Answer{}, err
	}
	b.Patience = patience(actions)
	conflict := false
	if was != nil {
		old, err := k.compare(s, was, nil)
		if err != nil {
			return kind.Answer{}, err
		}
		// What is as it is wanted already is what an update before this one has come to.
		conflict = slices.ContainsFunc(old.all(), func(what string) bool { return slices.Contains(d.all(), what) })
	}
	raw, err := json.Marshal(b)
	return kind.Answer{Operation: node.Write, Conflict: conflict, Actions: actions, Before: raw}, err
}

// patience is how long the rules give static pods to be replaced. 0: they don't say.
func patience(actions []disruption.Action) (p time.Duration) {
	for _, a := range actions {
		if a.Type == disruption.StaticPodRefresh {
			p = max(p, a.Timeout)
		}
	}
	return p
}

// ready returns an error if the change can't be made now.
func (k *Kind) ready(ctx context.Context, q kind.Question, s shown, d differences) error {
	want, was := q.Desired.ControlPlane, (*node.ControlPlane)(nil)
	if q.Was != nil {
		was = q.Was.ControlPlane
	}
	if err := k.mayCertify(ctx, q, s, d); err != nil {
		return err
	}
	involved, err := k.etcdInvolved(d, want, was)
	if err != nil || !involved || q.UnderWay { // a run looks at etcd itself, when it has healed what it has left of it
		return err
	}
	if err := etcdIsBrought(s, want); err != nil {
		return err
	}
	member, err := k.member(s)
	if err != nil {
		return err
	}
	if err := member.Spare(ctx); err != nil {
		return err
	}
	return k.room(ctx, s, true)
}

// mayCertify returns an error if the certificates that differ can't be made now.
func (k *Kind) mayCertify(ctx context.Context, q kind.Question, s shown, d differences) error {
	for _, c := range d.certificates {
		if err := k.canSign(c, q.Desired.ControlPlane); err != nil {
			return err
		}
	}
	if q.UnderWay {
		return nil
	}
	return k.bearsCertificates(ctx, s, d.certificates)
}

// gatesAct returns an error if kubeadm would take no configuration with the feature gates that are wanted, or would not do what one of them
// wants: the specs were judged by the version of the Machine, and the node may run another one. next is the version that is brought before,
// or empty. Gates that are as they were are not asked about.
func gatesAct(next string, s shown, want, was *node.ControlPlane) error {
	_, version := splitImage(container(s.manifests[apiServer], apiServer).Image)
	if next != "" {
		version = next
	}
	if was == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(mergedGates(was, want))) {
		before, after := said(was.FeatureGates, name), said(want.FeatureGates, name)
		if reflect.DeepEqual(before, after) {
			continue
		}
		if err := kubeadmphase.Gate(version, name, before, after, next != ""); err != nil {
			return err
		}
	}
	return nil
}

// mergedGates are those of which either speaks.
func mergedGates(a, b *node.ControlPlane) map[string]bool {
	all := map[string]bool{}
	maps.Copy(all, a.FeatureGates)
	maps.Copy(all, b.FeatureGates)
	return all
}

// said returns what is said of a feature gate, or nil.
func said(gates map[string]bool, name string) *bool {
	on, ok := gates[name]
	if !ok {
		return nil
	}
	return &on
}

// etcdIsBrought returns an error if kubeadm would leave the node's etcd as it is, or fail, by the image that it runs.
func etcdIsBrought(s shown, want *node.ControlPlane) error {
	m := s.manifests[etcdMember]
	if m == nil || want.Etcd == nil {
		return nil
	}
	_, runs := splitImage(container(m, etcdMember).Image)
	return kubeadmphase.RunningEtcd(runs, want.Etcd.ImageTag)
}

// Undo implements kind.Kind. A manifest is put back only if it is another one by now: kubeadm has mostly done so itself.
func (k *Kind) Undo(ctx context.Context, c kind.Change) error {
	b, err := readBefore(c)
	if err != nil {
		return err
	}
	b, begun, err := k.begun(c, b)
	if err != nil || !begun {
		return err
	}
	if err := k.checkEtcdBack(b); err != nil {
		return err
	}
	for _, p := range b.paths() {
		if err := k.host.PutBack(p, b.Files[p]); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, max(podPatience, b.Patience)) // what worked before is not given up early
	defer cancel()
	if err := staticpod.Await(ctx, k.host, b.Pods); err != nil {
		return err
	}
	return k.host.Disk.Remove(k.sincePath())
}

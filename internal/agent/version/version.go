// Package version takes a node that kubeadm has made to another version of Kubernetes.
//
// The order is kubeadm's own for a cluster: a new kubeadm, which on a control plane brings the static pods to the version, then the kubelet
// and kubectl, and a restart of the kubelet. What is added here is that nothing is begun which the node, its etcd or the API server is not
// ready for; that releases come from the node's own disk, where they were verified; that etcd is not restarted without need; that it is
// proved what runs in the end; and that the old kubelet comes back when the new one does not.
package version

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/capi-refit/refit/internal/agent/controlplane"
	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/agent/release"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

const (
	// apiPatience is how long the API server may take to answer for what it is asked before anything is changed.
	apiPatience = 30 * time.Second
	// kubeletPatience is how long a kubelet may take to be healthy, and its Node to be Ready.
	kubeletPatience = 2 * time.Minute
	// podPatience is how long static pods may take to be ready. kubeadm gives each as long (UpgradeManifests).
	podPatience = 5 * time.Minute
)

// Releases are those on the node's disk.
type Releases interface {
	// Find returns a release that is complete, or nil.
	Find(version string) (*release.Release, error)
	// Missing lists what of a release is not there yet.
	Missing(src node.Source) ([]string, error)
	// Install makes programs of a release those that the node runs from now on. The note, if there is one, is for people.
	Install(ctx context.Context, version string, programs ...string) (note string, err error)
}

// Kind is the kind of resource.
type Kind struct {
	host     host.Host
	releases Releases
	pods     *controlplane.Kind
}

var (
	_ kind.Kind = (*Kind)(nil)
	_ Releases  = (*release.Store)(nil)
)

// New returns the kind for a node.
func New(h host.Host, releases Releases) *Kind {
	return &Kind{host: h, releases: releases, pods: controlplane.New(h)}
}

// Plan implements kind.Kind. A node that the specs no longer give a version is left as it is. Where nothing was applied before, or it is
// not known, the node's version counts as what it was. A node that kubeadm has not made, or that has no kubelet, has none.
func (k *Kind) Plan(ctx context.Context, q kind.Question) (kind.Answer, error) {
	if q.Desired == nil {
		return kind.Answer{}, nil
	}
	want := q.Desired.Version.Kubernetes
	s, err := k.look(ctx)
	if err != nil {
		return kind.Answer{}, err
	}
	if s == nil {
		return absent(q), nil
	}
	differs := s.differs(want)
	switch {
	case len(differs) == 0:
		return kind.Answer{}, nil
	case !q.Changed(sameVersion):
		return kind.Answer{Drift: differs}, nil
	}
	return k.propose(ctx, q, s)
}

// sameVersion compares nothing else: how kubeadm is called means nothing without another version.
func sameVersion(was, desired *node.Resource) bool {
	return was.Version.Kubernetes == desired.Version.Kubernetes
}

// absent answers for a node that is none of kubeadm's.
func absent(q kind.Question) kind.Answer {
	if q.Was == nil || sameVersion(q.Was, q.Desired) {
		return kind.Answer{}
	}
	return kind.Answer{Blocked: "the node has no kubelet that kubeadm has set up, so its version of Kubernetes can't be changed here; " +
		"have the machine replaced"}
}

// propose answers that the node is to be brought to another version, or what is in the way.
func (k *Kind) propose(ctx context.Context, q kind.Question, s *shown) (kind.Answer, error) {
	want := q.Desired.Version.Kubernetes
	actions, err := q.Rules.Domain(disruption.KubernetesVersion)
	if err != nil {
		return kind.Answer{Blocked: err.Error()}, nil
	}
	if k.host.Units == nil {
		return kind.Answer{Blocked: "the node has no systemctl in /usr/bin or /bin, which it takes to restart the kubelet"}, nil
	}
	why, err := k.inTheWay(ctx, s, want)
	if why != "" || err != nil {
		return kind.Answer{Blocked: why}, err
	}
	staged, missing, why, err := k.installable(ctx, q, want)
	if why != "" || err != nil {
		return kind.Answer{Blocked: why}, err
	}
	answer := kind.Answer{Operation: node.Write, Conflict: conflict(q.Was, s, want), Actions: actions, Stage: missing}
	if len(missing) > 0 {
		return answer, nil
	}
	why, err = k.etcdWeak(ctx, q, s, staged.Kubeadm)
	if why != "" || err != nil {
		return kind.Answer{Blocked: why}, err
	}
	answer.Before, answer.Notes, err = k.keep(ctx, s)
	return answer, err
}

// keep returns what Undo needs, and notes what it can't put back.
func (k *Kind) keep(ctx context.Context, s *shown) (raw json.RawMessage, notes []string, err error) {
	b, err := k.remember(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	if notes, err = k.noWayBack(b); err != nil {
		return nil, nil, err
	}
	raw, err = json.Marshal(b)
	return raw, notes, err
}

// conflict reports whether somebody has brought the node to a version that the specs have never named. That parts of it are at the new version
// already is what an update before this one has come to.
func conflict(was *node.Resource, s *shown, want string) bool {
	return was != nil && slices.ContainsFunc(s.versions(), func(v string) bool {
		return controlplane.TagOf(v) != controlplane.TagOf(want) && controlplane.TagOf(v) != controlplane.TagOf(was.Version.Kubernetes)
	})
}

// staged returns the release if it is complete on the node's disk, or what of it is missing, or why it can't be had.
func (k *Kind) staged(src *node.Source, want string) (staged *release.Release, missing []string, why string, err error) {
	if staged, err = k.releases.Find(want); err != nil {
		return nil, nil, "", err
	}
	if src == nil || src.Version != want {
		if staged == nil {
			why = fmt.Sprintf("Kubernetes %s is not on the node, and no KubernetesSource that has it selects the machine; "+
				"make one, or add the version to one", want)
		}
		return staged, nil, why, nil
	}
	if missing, err = k.releases.Missing(*src); err != nil {
		return nil, nil, fmt.Sprintf("KubernetesSource %s can't be used for Kubernetes %s: %v", src.Name, want, err), nil
	}
	if staged == nil && len(missing) == 0 {
		missing = []string{"Kubernetes " + want}
	}
	return staged, missing, "", nil
}

// etcdWeak returns why etcd does not stand firmly enough for a change of a control-plane node, or what room its data lacks there. That is
// looked at before the node is drained for nothing.
func (k *Kind) etcdWeak(ctx context.Context, q kind.Question, s *shown, kubeadm string) (why string, err error) {
	if s.pods == nil {
		return "", nil
	}
	config, err := k.pods.Configuration(ctx)
	if err != nil {
		return "", err
	}
	if !config.LocalEtcd() || q.UnderWay { // a run heals what it has left of etcd before it looks at it
		return "", nil
	}
	u, err := k.upgradeOf(ctx, s.pods, config, kubeadm, q.Desired.Version.Kubernetes)
	if err != nil {
		return "", err
	}
	if err := u.bearable(ctx, s.pods); err != nil {
		return err.Error(), nil
	}
	if err := s.pods.Room(ctx, u.etcd); err != nil {
		return err.Error(), nil
	}
	return "", nil
}

// noWayBack returns what a failure can't put back.
func (k *Kind) noWayBack(b before) ([]string, error) {
	old, err := k.releases.Find(b.Kubelet)
	if err != nil || old != nil {
		return nil, err
	}
	return []string{fmt.Sprintf("Kubernetes %s, which is installed, is not kept on the node: a kubelet that does not come up can't be taken "+
		"back to it", b.Kubelet)}, nil
}

// before is what Undo needs.
type before struct {
	// Kubelet is the version of the kubelet to go back to, Kubeadm that of the program that was installed; empty: there was none, or it
	// did not say.
	Kubelet string `json:"kubelet"`
	Kubeadm string `json:"kubeadm,omitempty"`
	// Invocation is systemd's name of the kubelet's run. Another one means that it was restarted.
	Invocation string `json:"invocation,omitempty"`
	// Files are the kubelet's that kubeadm makes again. One that was not there has a state that says so.
	Files map[string]controlplane.File `json:"files"`
	// Pods is nil on a worker.
	Pods *controlplane.Saved `json:"pods,omitempty"`
}

// remember reads what Undo needs.
func (k *Kind) remember(ctx context.Context, s *shown) (before, error) {
	old, err := k.oldKubelet(ctx, s)
	if err != nil {
		return before{}, err
	}
	b := before{Kubelet: old, Kubeadm: k.installedKubeadm(ctx), Files: map[string]controlplane.File{}}
	unit, err := k.host.Units.Show(ctx, kubeletUnit)
	if err != nil {
		return before{}, err
	}
	b.Invocation = unit.InvocationID
	for _, p := range kubeletFiles {
		if b.Files[p], err = k.host.Save(p); err != nil {
			return before{}, err
		}
	}
	if s.pods == nil {
		return b, nil
	}
	saved, err := s.pods.Save(ctx)
	b.Pods = &saved
	return b, err
}

// oldKubelet returns the version of the kubelet to go back to: of the program that is installed, but where another one runs, that one's as
// far as it is kept. An attempt before this one has installed the new program then, and come neither further nor back.
func (k *Kind) oldKubelet(ctx context.Context, s *shown) (string, error) {
	installed := k.installedKubelet(ctx)
	if installed == "" {
		return "", errors.New("the kubelet on the node does not say its version, so it would not be known what to go back to: " +
			"kubelet --version does not work")
	}
	if !s.running || s.kubelet == installed {
		return installed, nil
	}
	old, err := k.releases.Find(s.kubelet)
	if err != nil || old == nil {
		return installed, err
	}
	return s.kubelet, nil
}

func readBefore(c kind.Change) (before, error) {
	var b before
	if err := json.Unmarshal(c.Before, &b); err != nil {
		return before{}, errors.New("what the node ran before can't be read")
	}
	return b, nil
}

// joined returns the notes that there are, each once.
func joined(notes ...string) string {
	var all []string
	for _, n := range notes {
		if n != "" && !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	return strings.Join(all, "; ")
}

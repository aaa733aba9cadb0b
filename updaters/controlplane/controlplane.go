// Package controlplane is the updater for the parts of a KubeadmConfig that are in the static pods of a control-plane node:
// the arguments, environment and volumes of the API server, the controller manager, the scheduler and etcd; images; names in the
// certificates of the API server and of etcd; kubeadm's feature gates and patches.
//
// By the time Cluster API asks for an update it has written the same to kubeadm's configuration in the workload cluster, out of
// which kubeadm makes the static pods on the node again. On a worker all of clusterConfiguration has no effect.
package controlplane

import (
	"cmp"
	"context"
	"slices"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/kubeadm"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/kubeadmconfig"
)

// Name is the updater's name.
const Name = "controlplane"

// cluster is the section that all control-plane machines of a cluster share.
const cluster = "clusterConfiguration"

// Updater brings what the specs say about static pods to control-plane nodes.
type Updater struct {
	rules disruption.Rules
	// version is the Kubernetes that the machines run; empty: it is not known.
	version string
}

var _ updaters.NodeUpdater = (*Updater)(nil)

// New returns an Updater for which the rules say what a change of the control plane takes.
func New(rules disruption.Rules) *Updater { return &Updater{rules: rules} }

// Of returns an Updater for machines that run a version of Kubernetes, by which kubeadm's doings are judged. Without one only those are
// claimed that are the same for every version.
func (u *Updater) Of(version string) *Updater { return &Updater{rules: u.rules, version: version} }

// Name implements updaters.Updater.
func (*Updater) Name() string { return Name }

// Claim implements updaters.Updater.
func (u *Updater) Claim(ctx context.Context, c fieldset.Change) (updaters.Claim, error) {
	var claim updaters.Claim
	oc, ok := kubeadmconfig.Change(c)
	if !ok {
		return claim, nil
	}
	known := map[string]*list{}
	version, raised := u.version, false
	if machine, ok := c.Object(fieldset.Machine); ok {
		is, was := kubeadm.Text(kubeadmconfig.Mapping(machine.Desired), "version"), kubeadm.Text(kubeadmconfig.Mapping(machine.Current), "version")
		version, raised = cmp.Or(is, version), is != was
	}
	for _, f := range oc.Fields {
		if err := ctx.Err(); err != nil {
			return updaters.Claim{}, err
		}
		judge, ok := judgeOf(f)
		if !ok {
			continue
		}
		e, actions, err := u.actions(question{field: f, change: oc, lists: known, version: version, raised: raised}, judge)
		if slices.Contains(e.domains(), disruption.ControlPlane) {
			claim.AddOf(node.Ref{Kind: node.ControlPlaneKind}, f, actions, err)
		} else {
			claim.Add(f, actions, err)
		}
	}
	return claim, nil
}

// actions returns the effect of a field's change and what it takes, or why it can't be made in place.
func (u *Updater) actions(q question, judge judgeFunc) (effect, []disruption.Action, error) {
	answer, err := judge(q)
	if err != nil {
		return answer, nil, err
	}
	takes := []disruption.Action{{Type: disruption.None}}
	for _, d := range answer.domains() {
		actions, err := u.rules.Domain(d)
		if err != nil {
			return answer, nil, err
		}
		takes = disruption.Merge(takes, actions)
	}
	return answer, takes, nil
}

// domains are the parts of a machine whose rules say what an effect takes.
func (e effect) domains() []disruption.Domain {
	switch e {
	case harmless:
		return nil
	case configured:
		return []disruption.Domain{disruption.KubeletArguments}
	case patched:
		return []disruption.Domain{disruption.KubeletArguments, disruption.ControlPlane}
	default:
		return []disruption.Domain{disruption.ControlPlane}
	}
}

// Desire implements updaters.NodeUpdater. Variables that take their value from elsewhere are not in it; a change of one is not
// claimed.
func (*Updater) Desire(d updaters.Desired) ([]node.Resource, error) {
	if !kubeadmconfig.Is(d.BootstrapConfig) {
		return nil, nil
	}
	spec := kubeadmconfig.Mapping(d.BootstrapConfig)
	if !d.ControlPlane && !kubeadm.ControlPlane(spec) {
		return nil, nil
	}
	c := kubeadm.StaticPods(kubeadmconfig.Mapping(d.BootstrapConfig, cluster))
	c.PatchesDirectory = kubeadm.Text(kubeadmconfig.Mapping(d.BootstrapConfig, kubeadm.Section(spec), "patches"), "directory")
	return []node.Resource{{ControlPlane: &c}}, nil
}

// Package kubelet is the updater for the nodeRegistration of a KubeadmConfig: the kubelet's extra arguments, and the labels
// and taints of the Node.
//
// joinConfiguration.nodeRegistration counts for a machine, or initConfiguration's where that is all there is: the kubeadm
// control plane sends a joinConfiguration for every machine, also for the one that kubeadm init has made. The one that does
// not count is covered without an action, since no machine reads it again.
//
// The node gets the arguments. The labels and taints, and so the arguments node-labels and register-with-taints, which the
// kubelet reads only when it registers its Node, are brought to the Node by the server.
package kubelet

import (
	"context"
	"errors"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/kubeadm"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/kubeadmconfig"
)

// Name is the updater's name.
const Name = "kubelet"

// The fields of a nodeRegistration that are this updater's.
const (
	nodeRegistration = "nodeRegistration"
	extraArgs        = "kubeletExtraArgs"
	taints           = "taints"
)

// Updater brings what kubelets are told, and the labels and taints of Nodes, to running nodes.
type Updater struct{ rules disruption.Rules }

var _ updaters.NodeUpdater = (*Updater)(nil)

// New returns an Updater for which the rules say what a change takes.
func New(rules disruption.Rules) *Updater { return &Updater{rules: rules} }

// Name implements updaters.Updater.
func (*Updater) Name() string { return Name }

// Claim implements updaters.Updater. An argument or a taint is claimed as a whole or not at all.
func (u *Updater) Claim(ctx context.Context, c fieldset.Change) (updaters.Claim, error) {
	var claim updaters.Claim
	oc, ok := kubeadmconfig.Change(c)
	if !ok {
		return claim, nil
	}
	said := newSaid(oc)
	for _, f := range oc.Fields {
		if err := ctx.Err(); err != nil {
			return updaters.Claim{}, err
		}
		section, ok := sectionOf(f)
		if !ok {
			continue
		}
		j := judge{rules: u.rules, field: f, section: section, change: oc, said: said}
		actions, err := j.actions()
		claim.Add(f, actions, err)
	}
	return claim, nil
}

// sectionOf returns the section whose nodeRegistration f belongs to, if f is this updater's to judge.
func sectionOf(f fieldset.Field) (section string, ok bool) {
	for _, s := range []string{kubeadm.Init, kubeadm.Join} {
		if kubeadmconfig.Below(f, s, nodeRegistration, extraArgs) || kubeadmconfig.Below(f, s, nodeRegistration, taints) {
			return s, true
		}
	}
	return "", false
}

// Desire implements updaters.NodeUpdater. There are resources for every KubeadmConfig, also without an argument or patches, so
// that the node sees when the last one goes. What the node is not given it leaves as bootstrap made it.
func (*Updater) Desire(d updaters.Desired) ([]node.Resource, error) {
	if !kubeadmconfig.Is(d.BootstrapConfig) {
		return nil, nil
	}
	spec := kubeadmconfig.Mapping(d.BootstrapConfig)
	r := kubeadm.OfSpec(spec, d.ControlPlane || kubeadm.ControlPlane(spec)).Registration()
	patches := kubeadm.Text(kubeadmconfig.Mapping(d.BootstrapConfig, kubeadm.Section(spec), "patches"), "directory")
	return []node.Resource{
		{Kubelet: &node.Kubelet{ExtraArgs: r.Args}}, {KubeletConfig: &node.KubeletConfig{PatchesDirectory: patches}},
	}, nil
}

// none is what a change takes that nothing on the node has to be told of.
func none() []disruption.Action { return []disruption.Action{{Type: disruption.None}} }

// errForm is returned for a value that is not of the form of the API version that this program knows.
var errForm = errors.New("it is not of the form that this version of refit knows")

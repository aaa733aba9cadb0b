// Package version is the updater for the version of Kubernetes that a machine runs: spec.version of the Machine.
//
// A version is claimed when it is a newer patch or the next minor, when the machine is one of kubeadm's, and when the
// KubernetesSource of the machine has it. What is not known yet is an error and never a "no": that would replace the machine.
package version

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/kubeadm"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/skew"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/kubeadmconfig"
)

// Name is the updater's name.
const Name = "version"

// Field is the one of the Machine that the updater judges.
const Field = "version"

// Source has versions of Kubernetes.
type Source interface {
	// For returns where a version comes from, or an error for people that says why the source does not have it.
	For(version string) (*node.Source, error)
}

// Find returns the Source of the machine that is judged: nil if no KubernetesSource selects it, Foreign if kubeadm has not made it. It is asked only when the version
// changes. An error says that it is not known; it is never a "no".
type Find func(ctx context.Context) (Source, error)

// Foreign is the Source of a machine that has no KubeadmConfig, which a change of the Machine alone does not tell. It has no version.
var Foreign Source = foreign{}

type foreign struct{}

// For implements Source.
func (foreign) For(string) (*node.Source, error) {
	return nil, errors.New("the machine has no KubeadmConfig, and only what kubeadm has made is brought to another version in place")
}

// Updater judges the version, and brings it to the node.
type Updater struct {
	rules disruption.Rules
	find  Find
}

var _ updaters.NodeUpdater = (*Updater)(nil)

// New returns an Updater for which the rules say what another version takes. Without find it says what is desired, and judges
// nothing.
func New(rules disruption.Rules, find Find) *Updater { return &Updater{rules: rules, find: find} }

// Name implements updaters.Updater.
func (*Updater) Name() string { return Name }

// Claim implements updaters.Updater.
func (u *Updater) Claim(ctx context.Context, c fieldset.Change) (updaters.Claim, error) {
	var claim updaters.Claim
	oc, ok := c.Object(fieldset.Machine)
	if !ok {
		return claim, nil
	}
	for _, f := range oc.Fields {
		if !slices.Equal(kubeadmconfig.Location(f), []string{Field}) {
			continue
		}
		actions, left := u.actions(oc)
		if left == nil {
			var err error
			if left, err = u.lacks(ctx, kubeadm.Text(kubeadmconfig.Mapping(oc.Desired), Field)); err != nil {
				return updaters.Claim{}, err
			}
		}
		claim.AddOf(node.Ref{Kind: node.VersionKind}, f, actions, left)
	}
	return claim, nil
}

// actions returns what another version takes, or why the machine can't be brought to it, whatever its source has.
func (u *Updater) actions(oc fieldset.ObjectChange) ([]disruption.Action, error) {
	if err := skew.Step(kubeadm.Text(kubeadmconfig.Mapping(oc.Current), Field), kubeadm.Text(kubeadmconfig.Mapping(oc.Desired), Field)); err != nil {
		return nil, err
	}
	return u.rules.Domain(disruption.KubernetesVersion)
}

// lacks says why the source of the machine does not have a version.
func (u *Updater) lacks(ctx context.Context, version string) (left, err error) {
	if u.find == nil {
		return nil, errors.New("which KubernetesSource selects the machine was not asked")
	}
	source, err := u.find(ctx)
	if err != nil {
		return nil, err
	}
	if source == nil {
		return errors.New("no KubernetesSource selects the machine, so it is not known where another version comes from; " +
			"to have it brought there in place, make one"), nil
	}
	_, left = source.For(version)
	return left, nil
}

// Desire implements updaters.NodeUpdater.
func (*Updater) Desire(d updaters.Desired) ([]node.Resource, error) {
	version := kubeadm.Text(kubeadmconfig.Mapping(d.Machine), Field)
	if version == "" || !kubeadmconfig.Is(d.BootstrapConfig) {
		return nil, nil
	}
	section := kubeadm.Section(kubeadmconfig.Mapping(d.BootstrapConfig))
	ignored, err := texts(kubeadmconfig.Mapping(d.BootstrapConfig, section, "nodeRegistration")["ignorePreflightErrors"])
	if err != nil {
		return nil, fmt.Errorf("%s.nodeRegistration.ignorePreflightErrors: %w", section, err)
	}
	return []node.Resource{{Version: &node.Version{
		Kubernetes:            version,
		IgnorePreflightErrors: ignored,
		PatchesDirectory:      kubeadm.Text(kubeadmconfig.Mapping(d.BootstrapConfig, section, "patches"), "directory"),
	}}}, nil
}

func texts(value any) ([]string, error) {
	if value == nil {
		return nil, nil
	}
	items, ok := value.([]any)
	if !ok {
		return nil, errors.New("it is not a list")
	}
	var out []string
	for _, item := range items {
		s, ok := item.(string)
		if !ok {
			return nil, errors.New("it is not a list of texts")
		}
		out = append(out, s)
	}
	return out, nil
}

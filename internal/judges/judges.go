// Package judges has the updaters that judge changes of machines: the one list of them, and what they let change by the policies that
// select a machine.
package judges

import (
	"context"
	"errors"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/bootimage"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/kubernetessource"
	"github.com/capi-refit/refit/internal/nodedisruption"
	"github.com/capi-refit/refit/internal/policykind"
	"github.com/capi-refit/refit/schedule"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/controlplane"
	"github.com/capi-refit/refit/updaters/image"
	kubernetesversion "github.com/capi-refit/refit/updaters/version"
)

// ByPolicy are the updaters of a machine, by the policies that select it, which also know where its versions come from, and whether its
// image may move on.
type ByPolicy struct {
	Disruptions *nodedisruption.Policies
	Sources     *kubernetessource.Sources
	Images      *bootimage.Policies
}

var _ inplace.Updaters = ByPolicy{}

// For implements inplace.Updaters. The source is looked for only when the version changes, so that one that is wrong holds back
// no other change.
func (j ByPolicy) For(ctx context.Context, s inplace.Subject) (*updaters.Registry, error) {
	selected, err := j.Disruptions.Select(ctx, s)
	if err != nil {
		return nil, err
	}
	mayMove, err := j.Images.For(ctx, s)
	if err != nil {
		return nil, err
	}
	return Select(s, selected.Updaters, selected.Rules, mayMove, func(ctx context.Context) (*kubernetessource.Selected, error) {
		return j.Sources.For(ctx, s)
	}), nil
}

// Basis returns which policies and sources select a machine, which of their generations, and which of them keep its image: what its updaters are made
// from, so that two machines with the same Basis, bootstrap and version have the same updaters.
func (j ByPolicy) Basis(ctx context.Context, s inplace.Subject) (string, error) {
	disruptions, err := j.Disruptions.Selecting(ctx, s)
	if err != nil {
		return "", err
	}
	images, err := j.Images.Selecting(ctx, s)
	if err != nil {
		return "", err
	}
	sources, err := j.Sources.Selecting(ctx, s)
	if err != nil {
		return "", err
	}
	keep := strings.Join(bootimage.Join(images, s.Labels).Keep, " ")
	return policykind.Versions(disruptions) + "; " + policykind.Versions(images) + "; " + keep + "; " + policykind.Versions(sources), nil
}

// Select returns the updaters of a machine by what was selected for it: whether its image may move on, which kubeadm makes its static pods,
// and, once a version changes, where versions come from.
func Select(s inplace.Subject, all *updaters.Registry, rules disruption.Rules, mayMove *image.Selected,
	source func(context.Context) (*kubernetessource.Selected, error),
) *updaters.Registry {
	return all.With(image.New(mayMove), controlplane.New(rules).Of(s.Version), kubernetesversion.New(rules, func(ctx context.Context) (kubernetesversion.Source, error) {
		if !s.MadeByKubeadm() {
			return kubernetesversion.Foreign, nil
		}
		selected, err := source(ctx)
		if selected == nil || err != nil {
			return nil, err // no source is none for the updater as well
		}
		return selected, nil
	}))
}

// InPlace implements changemanagement.Versions. It asks the updaters that the hooks ask, so that both say the same.
func (j ByPolicy) InPlace(ctx context.Context, m *clusterv1.Machine, to string) (schedule.Disruption, error) {
	registry, err := j.For(ctx, inplace.SubjectOf(m))
	if err != nil {
		return "", err
	}
	spec := func(version string) fieldset.Spec {
		return fieldset.Spec{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Value: map[string]any{"version": version}}
	}
	change, differs := fieldset.NewObjectChange(fieldset.Machine, spec(m.Spec.Version), spec(to))
	if !differs {
		return schedule.NoDisruption, nil
	}
	decision, err := registry.Decide(ctx, fieldset.Change{change})
	if err != nil {
		return "", err
	}
	for _, field := range decision {
		if !field.Covered() {
			return "", errors.New(field.Reason)
		}
	}
	return schedule.Disruption(decision.Worst()), nil
}

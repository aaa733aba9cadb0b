package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	ctrl "sigs.k8s.io/controller-runtime"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/bootimage"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/kubernetessource"
	"github.com/capi-refit/refit/internal/nodedisruption"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/image"
	kubernetesversion "github.com/capi-refit/refit/updaters/version"
)

// versioned are the updaters of a machine, by the policies that select it, which also know where its versions come from, and whether its
// image may move on.
type versioned struct {
	disruptions *nodedisruption.Policies
	sources     *kubernetessource.Sources
	images      *bootimage.Policies
}

var (
	_ handlers.Updaters         = versioned{}
	_ changemanagement.Versions = versioned{}
)

// For implements handlers.Updaters. The source is looked for only when the version changes, so that one that is wrong holds back
// no other change.
func (v versioned) For(ctx context.Context, s handlers.Subject) (*updaters.Registry, error) {
	selected, err := v.disruptions.Select(ctx, s)
	if err != nil {
		return nil, err
	}
	mayMove, err := v.images.For(ctx, s)
	if err != nil {
		return nil, err
	}
	return selected.Updaters.With(image.New(mayMove), kubernetesversion.New(selected.Rules, func(ctx context.Context) (kubernetesversion.Source, error) {
		if !s.MadeByKubeadm() {
			return kubernetesversion.Foreign, nil
		}
		return found(v.sources.For(ctx, s))
	})), nil
}

// found has no source be none for the updater as well.
func found(selected *kubernetessource.Selected, err error) (kubernetesversion.Source, error) {
	if selected == nil || err != nil {
		return nil, err
	}
	return selected, nil
}

// InPlace implements changemanagement.Versions. It asks the updaters that the hooks ask, so that both say the same.
func (v versioned) InPlace(ctx context.Context, m *clusterv1.Machine, to string) error {
	registry, err := v.For(ctx, handlers.Subject{
		Namespace: m.Namespace, Cluster: m.Spec.ClusterName, Labels: m.Labels, Bootstrap: m.Spec.Bootstrap.ConfigRef.GroupKind(),
	})
	if err != nil {
		return err
	}
	spec := func(version string) fieldset.Spec {
		return fieldset.Spec{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Value: map[string]any{"version": version}}
	}
	change, differs := fieldset.NewObjectChange(fieldset.Machine, spec(m.Spec.Version), spec(to))
	if !differs {
		return nil
	}
	decision, err := registry.Decide(ctx, fieldset.Change{change})
	if err != nil {
		return err
	}
	for _, field := range decision {
		if !field.Covered() {
			return errors.New(field.Reason)
		}
	}
	return nil
}

// addJudges has the manager keep all that says which changes are made in place, and what they take.
func addJudges(mgr ctrl.Manager, flags ruleFlags) (versioned, error) {
	disruptions, err := addDisruptions(mgr, flags)
	if err != nil {
		return versioned{}, err
	}
	sources, err := addSources(mgr)
	if err != nil {
		return versioned{}, err
	}
	images, err := addImages(mgr)
	if err != nil {
		return versioned{}, err
	}
	judges := versioned{disruptions, sources, images}
	return judges, addRotation(mgr, judges)
}

// addSources has the manager keep the KubernetesSources, and show and measure whether they can be read.
func addSources(mgr ctrl.Manager) (*kubernetessource.Sources, error) {
	sources := kubernetessource.New(mgr.GetClient())
	status := &kubernetessource.Status{Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder("refit")}
	if err := errors.Join(
		sources.SetupWithManager(mgr), status.SetupWithManager(mgr),
		mgr.AddReadyzCheck("sources", func(*http.Request) error { return sources.Ready() }),
	); err != nil {
		return nil, fmt.Errorf("add what says where versions come from: %w", err)
	}
	whenLeading(mgr, sources.Collector())
	return sources, nil
}

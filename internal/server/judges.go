package server

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/capi-refit/refit/internal/judges"
	"github.com/capi-refit/refit/internal/kubernetessource"
	"github.com/capi-refit/refit/internal/nodedisruption"
	"github.com/capi-refit/refit/internal/shard"
	"github.com/capi-refit/refit/updaters"
)

// addJudges has the manager keep all that says which changes are made in place, and what they take.
func addJudges(mgr shard.Manager, flags judges.RuleFlags, others []updaters.Constructor) (judges.ByPolicy, error) {
	disruptions, err := addDisruptions(mgr, flags, others)
	if err != nil {
		return judges.ByPolicy{}, err
	}
	sources, err := addSources(mgr)
	if err != nil {
		return judges.ByPolicy{}, err
	}
	images, err := addImages(mgr)
	if err != nil {
		return judges.ByPolicy{}, err
	}
	all := judges.ByPolicy{Disruptions: disruptions, Sources: sources, Images: images}
	return all, addRotation(mgr, all)
}

// addDisruptions has the manager keep the NodeDisruptionPolicies, show what they mean, and measure whether they can be read.
func addDisruptions(mgr shard.Manager, flags judges.RuleFlags, others []updaters.Constructor) (*nodedisruption.Policies, error) {
	builtIn, err := flags.Rules()
	if err != nil {
		return nil, err
	}
	// That the updaters can be made at all is known from the start.
	list := judges.List(others...)
	if _, err := list(nodedisruption.Join(builtIn)); err != nil {
		return nil, err
	}
	policies := nodedisruption.NewPolicies(mgr.GetClient(), builtIn, list)
	status := &nodedisruption.Status{Client: mgr.GetClient(), Policies: policies, Recorder: mgr.GetEventRecorder("refit")}
	if err := errors.Join(
		policies.SetupWithManager(mgr), status.SetupWithManager(mgr),
		mgr.AddReadyzCheck("disruptions", func(*http.Request) error { return policies.Ready() }),
	); err != nil {
		return nil, fmt.Errorf("add what says what changes take: %w", err)
	}
	whenLeading(mgr, policies.Collector())
	whenLeading(mgr, policies.UnsafeCollector())
	return policies, nil
}

// addSources has the manager keep the KubernetesSources, and show and measure whether they can be read.
func addSources(mgr shard.Manager) (*kubernetessource.Sources, error) {
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

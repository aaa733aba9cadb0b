package inplace

import (
	"slices"

	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/schedule"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/image"
)

// ClassOf returns what a change is of that was decided about, and the worst that it takes.
func ClassOf(change fieldset.Change, decision updaters.Decision) schedule.Class {
	c := schedule.Class{Disruption: schedule.Disruption(decision.Worst())}
	for _, f := range decision {
		for _, k := range kindsOf(f, change) {
			if !slices.Contains(c.Kinds, k) {
				c.Kinds = append(c.Kinds, k)
			}
		}
	}
	return c
}

// Unreached is a decision of which nothing is claimed, since refit has no way to the node; why says so.
func Unreached(decision updaters.Decision, why string) updaters.Decision {
	out := make(updaters.Decision, len(decision))
	for i, f := range decision {
		out[i] = updaters.Verdict{Field: f.Field, By: f.Updater, Reason: why}
	}
	return out
}

// kindsOf returns of which kinds the change of a field is.
func kindsOf(f updaters.Verdict, change fieldset.Change) []schedule.Kind {
	switch {
	case f.Field.Object == fieldset.Machine && f.Field.String() == "spec.version":
		return versionKindsOf(change)
	case f.Updater == image.Name || f.By == image.Name:
		return []schedule.Kind{schedule.ImageKind}
	case f.Field.Object == fieldset.InfrastructureMachine && !f.Covered() && !imagesKnown(change):
		return []schedule.Kind{schedule.ImageKind, schedule.ConfigurationKind} // nobody knows whether machines boot from it
	default:
		return []schedule.Kind{schedule.ConfigurationKind}
	}
}

// versionKindsOf returns of which kinds the change of the version is.
func versionKindsOf(change fieldset.Change) []schedule.Kind {
	of, _ := change.Object(fieldset.Machine)
	version := func(s fieldset.Spec) string {
		spec, _ := s.Value.(map[string]any)
		text, _ := spec["version"].(string)
		return text
	}
	return VersionKinds(version(of.Current), version(of.Desired))
}

// imagesKnown reports whether refit knows from which fields of the infrastructure machine machines boot, with the provider that it is of.
func imagesKnown(change fieldset.Change) bool {
	infra, _ := change.Object(fieldset.InfrastructureMachine)
	return len(image.Paths(infra.Desired.Group(), infra.Desired.Kind)) > 0
}

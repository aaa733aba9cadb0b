package inplace

import (
	"github.com/capi-refit/refit/internal/skew"
	"github.com/capi-refit/refit/schedule"
)

// VersionKinds returns of which kinds a change from one version of Kubernetes to another is: one, none if they are the same, and all that it could be
// if one of them can't be read.
func VersionKinds(from, to string) []schedule.Kind {
	if from == to {
		return nil
	}
	was, err := skew.Parse(from)
	if err != nil {
		return []schedule.Kind{schedule.PatchVersionKind, schedule.MinorVersionKind}
	}
	want, err := skew.Parse(to)
	switch {
	case err != nil:
		return []schedule.Kind{schedule.PatchVersionKind, schedule.MinorVersionKind}
	case was.Major() != want.Major() || was.Minor() != want.Minor():
		return []schedule.Kind{schedule.MinorVersionKind}
	default:
		return []schedule.Kind{schedule.PatchVersionKind}
	}
}

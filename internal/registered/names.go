package registered

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
)

// Names returns the names of the registrations that are for a machine, in the order in which they are asked. It asks none of them.
func (r *Registry) Names(ctx context.Context, s Subject) ([]string, error) {
	selected, err := r.selected(ctx, s)
	var names []string
	for i := range selected {
		names = append(names, selected[i].Name)
	}
	return names, err
}

// Claimants says who may claim what refit's own updaters leave of a change of a machine. It asks nobody. Empty: there is none.
func (r *Registry) Claimants(ctx context.Context, s Subject) string {
	names, err := r.Names(ctx, s)
	switch {
	case meta.IsNoMatchError(err) || err == nil && len(names) == 0:
		return ""
	case err != nil:
		return "UpdaterRegistrations may claim it, and which there are is not known: " + err.Error()
	default:
		return "it may be claimed by UpdaterRegistration " + strings.Join(names, ", then ") + ", which refit asks when Cluster API asks refit"
	}
}

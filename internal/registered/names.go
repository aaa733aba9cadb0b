package registered

import "context"

// Names returns the names of the registrations that are for a machine, in the order in which they are asked. It asks none of them.
func (r *Registry) Names(ctx context.Context, s Subject) ([]string, error) {
	selected, err := r.selected(ctx, s)
	var names []string
	for i := range selected {
		names = append(names, selected[i].Name)
	}
	return names, err
}

package registered

import "context"

// Names returns the names of the registrations that are for a machine, in the order in which they are asked. It asks none of them. Where the kind of the
// infrastructure machine is not known, those that are for some kinds are among them.
func (r *Registry) Names(ctx context.Context, s Subject) ([]string, error) {
	all, err := r.list(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range all {
		spec := all[i].Spec
		if s.Infrastructure == "" {
			spec.InfrastructureKinds = nil
		}
		selects, err := r.selects(ctx, &spec, s)
		switch {
		case err != nil:
			return nil, &Fault{Updater: all[i].Name, Err: err}
		case selects:
			names = append(names, all[i].Name)
		}
	}
	return names, nil
}

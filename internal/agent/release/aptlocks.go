package release

import (
	"context"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
)

// holds are apt's locks.
type holds struct{ *Store }

// locked implements locks.
func (h holds) locked(ctx context.Context, names []string) ([]string, error) {
	out, err := h.host.RunTelling(ctx, host.Command{Name: "apt-mark", Args: []string{"showhold"}})
	if err != nil {
		return nil, err
	}
	var all []string
	for _, name := range strings.Fields(string(out)) {
		if slices.Contains(names, name) {
			all = append(all, name)
		}
	}
	return all, nil
}

// lock implements locks.
func (h holds) lock(ctx context.Context, names []string) error { return h.mark(ctx, "hold", names) }

// unlock implements locks.
func (h holds) unlock(ctx context.Context, names []string) error { return h.mark(ctx, "unhold", names) }

func (h holds) mark(ctx context.Context, verb string, names []string) error {
	return h.alone(ctx, debs, func() error {
		_, err := h.host.RunTelling(ctx, host.Command{Name: "apt-mark", Args: append([]string{verb}, names...)})
		return err
	})
}

package effect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/capi-refit/refit/internal/disruption"
)

// noteReaders notes the invocations of units that a run restarts so that they read their files.
func (e Effects) noteReaders(ctx context.Context, changes []Change, n *Noted) error {
	for _, unit := range slices.Sorted(maps.Keys(readers)) {
		restarted := slices.ContainsFunc(of(changes, readers[unit]...), func(c Change) bool {
			return slices.ContainsFunc(c.Actions, func(a disruption.Action) bool { return a.Type == disruption.Restart && a.Unit == unit })
		})
		if !restarted || e.Host.Units == nil {
			continue
		}
		state, err := e.Host.Units.Show(ctx, unit)
		if err != nil {
			return err
		}
		if state.Missing() {
			continue
		}
		if n.Units == nil {
			n.Units = map[string]string{}
		}
		n.Units[unit] = state.InvocationID
	}
	return nil
}

// verifyReaders returns an error for a unit that was last started before its files were written.
func (e Effects) verifyReaders(ctx context.Context, n Noted) error {
	var wrong []error
	for _, unit := range slices.Sorted(maps.Keys(n.Units)) {
		state, err := e.Host.Units.Show(ctx, unit)
		switch {
		case err != nil:
			wrong = append(wrong, err)
		case !state.Active():
			wrong = append(wrong, fmt.Errorf("%s is %s, and has not read its files (see journalctl -u %s on the node)", unit, state.ActiveState, unit))
		case state.InvocationID == n.Units[unit]:
			wrong = append(wrong, fmt.Errorf("%s was not started since its files were written, and has not read them", unit))
		}
	}
	return errors.Join(wrong...)
}

package handlers

import (
	"context"
	"fmt"
	"time"

	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/registered"
	"github.com/capi-refit/refit/updaters"
)

// Claims returns what the hooks decide about a CanUpdateMachineRequest or a CanUpdateMachineSetRequest, and which registered extensions would claim a field
// that another updater makes. For that they are asked once more, about all of the change, if it is made in place. An error that has a *registered.Fault in it says for whose fault
// nothing is decided.
func (e *Engine) Claims(ctx context.Context, request []byte) (*inplace.Claims, error) {
	v, _, l, err := e.judgeRequest(ctx, request)
	if err != nil {
		return nil, err
	}
	c := &inplace.Claims{Change: v.change, Decision: v.decision, Also: make([][]string, len(v.decision))}
	if e.registered == nil || len(v.decision) == 0 || !v.decision.InPlace() {
		return c, nil
	}
	remotes, err := e.remotes(ctx, v, v.current)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, e.patience)
	defer cancel()
	ends, _ := ctx.Deadline()
	for i, r := range remotes {
		all := *v
		all.decision = nobodys(v.decision)
		limit := time.Until(ends) / time.Duration(2*(len(remotes)-i)) // each is asked twice
		claimed, err := all.claims(ctx, l, v.current, r, limit)
		if err != nil {
			c.Unsaid = append(c.Unsaid, fmt.Errorf("what else it would claim is not known: %w", err))
			continue
		}
		for _, i := range claimed {
			if v.decision[i].Updater != registered.UpdaterPrefix+r.Name() {
				c.Also[i] = append(c.Also[i], r.Name())
			}
		}
	}
	return c, nil
}

// nobodys is a decision about the same fields in which nobody has claimed any.
func nobodys(d updaters.Decision) updaters.Decision {
	out := make(updaters.Decision, len(d))
	for i, f := range d {
		out[i] = updaters.Verdict{Field: f.Field}
	}
	return out
}

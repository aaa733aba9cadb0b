package guard

import (
	"context"

	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/explain"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// manner is how Cluster API would come to replace machines.
type manner int

const (
	// asked: it asks refit before, which can hold it back.
	asked manner = iota
	// unasked: it asks nobody.
	unasked
	// later: it asks nobody, at another time, or when somebody deletes a machine.
	later
	// unsure: it can't be told whether it does.
	unsure
	// goes: their part of a topology goes, and none comes instead.
	goes
)

// finding is what policies say of machines that an edit would have replaced in one manner.
type finding struct {
	part
	manner manner
	// machine is the first of which something is to be said, and decision what its policies say.
	machine  string
	decision changemanagement.Decision
	// refusing are the policies that refuse the edit; none: it is warned of.
	refusing []*changemanagement.Policy
	// unreadable is why the first of these can't be read; nil if it can.
	unreadable error
}

// mannersOf returns the ways by which machines of a part would be replaced.
func mannersOf(p part) []manner { //nolint:cyclop // one manner after the other
	var out []manner
	o := p.owner
	switch {
	case o.Verdict == explain.Deleted && p.instead:
		out = append(out, unasked)
	case o.Verdict == explain.Deleted:
		out = append(out, goes)
	case o.Verdict == explain.Replace && o.Unasked():
		out = append(out, unasked)
	case o.Verdict == explain.Unknown, o.Verdict == explain.Replace && p.unsure:
		out = append(out, unsure)
	case o.Verdict == explain.Replace:
		out = append(out, asked)
	}
	for _, c := range p.causes() {
		switch {
		case c == explain.CauseSurge:
			out = append(out, unasked)
		case c == explain.CauseOnDelete, c == explain.CauseRolloutBefore, c == explain.CauseRolloutAfter && !o.Unasked():
			out = append(out, later)
		}
	}
	return out
}

// findings returns what policies say of a part: for each manner what is refused, else what is warned of, else nothing.
func (g *Guard) findings(ctx context.Context, p part) ([]*finding, error) {
	var out []*finding
	for _, m := range mannersOf(p) {
		var found *finding
		replacing := g.Hooks.Replacing(p.owner.Class())
		for _, machine := range p.machines {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			d, err := replacing.Of(ctx, machine)
			if err != nil {
				return nil, err
			}
			one := &finding{part: p, manner: m, machine: machine.Name, decision: d}
			warns := one.weigh(replacing)
			if len(one.refusing) > 0 {
				found = one
				break
			}
			if warns && found == nil {
				found = one
			}
		}
		if found != nil {
			out = append(out, found)
		}
	}
	return out, nil
}

// weigh finds out which policies refuse what was found, and reports whether it is to be told where none does.
func (f *finding) weigh(r *changemanagement.Replacing) (warns bool) {
	closed := !f.decision.Open
	warns = closed || f.manner == later && len(f.decision.Policies) > 0
	for _, p := range f.decision.Policies {
		err := r.Unreadable(p)
		forbids := p.Forbid || err != nil // one that can't be read may be meant to forbid it
		warns = warns || forbids
		if !refuses(p, f.manner, forbids, closed) {
			continue
		}
		if len(f.refusing) == 0 {
			f.unreadable = err
		}
		f.refusing = append(f.refusing, p)
	}
	return warns
}

// refuses reports whether a policy refuses an edit, by its field guard. closed is whether all policies together hold it back.
func refuses(p *changemanagement.Policy, m manner, forbids, closed bool) bool {
	switch {
	case p.Guard == refitv1.WarnGuard, m == goes: // it is what somebody asks for
		return false
	case m == asked:
		return forbids || closed && (p.Refuse || p.Guard == refitv1.StrictGuard)
	case p.Guard != refitv1.StrictGuard:
		return false
	case m == later: // nobody knows whether a window is open then
		return forbids
	default:
		return forbids || closed
	}
}

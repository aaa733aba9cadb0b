package nodedisruption

import (
	"slices"
	"strings"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/updaters/declared"
)

// Effective is what holds for Machines that the same policies select.
type Effective struct {
	// Rules are the built-in ones with those of the policies over them.
	Rules disruption.Rules
	// Drift is what becomes of a node that no longer shows what was applied to it. It is never empty.
	Drift refitv1.OnDrift
	// FutureOnly claims fields that only count for machines made later, with no action.
	FutureOnly bool
	// Inert are fields of infrastructure machines that need no action, one entry a group and kind, in order.
	Inert []declared.Field
	// Policies are the names of the policies, in order.
	Policies []string
	// Unsafe are notes on the entries that may leave out what is built in and tests changes.
	Unsafe []string
}

// Join returns what holds where policies are over base. The result does not depend on the order of the policies:
//   - rules for the same thing are joined action by action, and replace what base says of it;
//   - of what becomes of drift and of failures the most careful counts, and what a policy leaves out is for others to say;
//   - fields are for future machines only if a policy says so and none says Never;
//   - all of their probes count;
//   - fields that any of the policies declares inert are.
func Join(base disruption.Rules, policies ...*Policy) Effective {
	e := Effective{Drift: refitv1.ReportDrift}
	sorted := slices.SortedFunc(slices.Values(policies), func(a, b *Policy) int { return strings.Compare(a.Name, b.Name) })
	rules := make([]disruption.PolicyRules, len(sorted))
	paths := map[inertKind][]string{}
	allowed, never := false, false
	for i, p := range sorted {
		rules[i] = disruption.PolicyRules{Name: p.Name, Rules: p.rules}
		e.Policies = append(e.Policies, p.Name)
		for _, field := range p.unsafe {
			e.Unsafe = append(e.Unsafe, unsafeNote(p.Name, field))
		}
		e.Drift = moreCareful(e.Drift, p.spec.Drift)
		allowed = allowed || p.spec.FutureOnlyFields == refitv1.AllowFutureOnly
		never = never || p.spec.FutureOnlyFields == refitv1.NeverFutureOnly
		for _, f := range p.spec.InertFields {
			of := inertKind{f.Group, f.Kind}
			paths[of] = append(paths[of], f.Paths...)
		}
	}
	e.Rules, e.FutureOnly = disruption.Override(base, rules...), allowed && !never
	e.Inert = inertFields(paths)
	return e
}

package nodedisruption

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/policykind"
	"github.com/capi-refit/refit/updaters/declared"
)

// Policy is a NodeDisruptionPolicy that was read. It does not change, and may be shared.
type Policy struct {
	policykind.Header // where it can't be read, whoever wrote it may have meant to say that a change takes a drain

	rules disruption.Rules
	spec  refitv1.NodeDisruptionPolicySpec
	// unsafe are the entries that say so.
	unsafe []string
}

// InvalidError says that nothing can be decided for a Machine until a policy that selects it is corrected.
type InvalidError struct {
	// Policy is the name of the policy.
	Policy string
	Err    error
}

// Error implements error.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("NodeDisruptionPolicy %s can't be read, so it is not known what changes take: %v; correct the policy, or delete it", e.Policy, e.Err)
}

// Unwrap returns what is wrong with the policy.
func (e *InvalidError) Unwrap() error { return e.Err }

// Compile reads a policy. What the CRD checks is checked again, for an API server that has not the same one. A selector that
// can't be read selects every Machine of the namespace.
func Compile(p *refitv1.NodeDisruptionPolicy) *Policy {
	out := &Policy{Header: policykind.HeaderOf(p, p.Spec.Selector), spec: *p.Spec.DeepCopy()}
	var unread error
	out.rules, unread = convert(&out.spec)
	var short error
	out.unsafe, short = checkFloor(&out.spec, out.rules)
	out.Err = errors.Join(out.Err, unread, checkWords(&out.spec), short)
	return out
}

// checkWords returns an error for words that are not known.
func checkWords(s *refitv1.NodeDisruptionPolicySpec) error {
	return errors.Join(
		policykind.Word("onFailure", s.OnFailure, "", refitv1.StopOnFailure, refitv1.RollbackOnFailure, refitv1.RebootOnFailure),
		policykind.Word("drift", s.Drift, "", refitv1.ReportDrift, refitv1.RepairDrift, refitv1.RefuseDrift),
		policykind.Word("futureOnlyFields", s.FutureOnlyFields, "", refitv1.NeverFutureOnly, refitv1.AllowFutureOnly),
	)
}

// moreCareful returns which of two answers to drift is the more careful one.
func moreCareful(a, b refitv1.OnDrift) refitv1.OnDrift {
	order := []refitv1.OnDrift{"", refitv1.ReportDrift, refitv1.RepairDrift, refitv1.RefuseDrift}
	if slices.Index(order, b) > slices.Index(order, a) {
		return b
	}
	return a
}

// inertKind is a kind of infrastructure machine.
type inertKind struct{ group, kind string }

// inertFields returns the declarations in an order that does not depend on that of the policies.
func inertFields(paths map[inertKind][]string) []declared.Field {
	kinds := slices.SortedFunc(maps.Keys(paths), func(a, b inertKind) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.kind, b.kind))
	})
	var out []declared.Field
	for _, k := range kinds {
		out = append(out, declared.Field{Group: k.group, Kind: k.kind, Paths: slices.Compact(slices.Sorted(slices.Values(paths[k])))})
	}
	return out
}

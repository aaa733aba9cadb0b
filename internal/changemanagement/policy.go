package changemanagement

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/selection"
	"github.com/capi-refit/refit/schedule"
)

// defaultMaxOverride is how far ahead permissive-until may lie where a policy does not say.
const defaultMaxOverride = 48 * time.Hour

// Policy is a ChangeManagementPolicy that was read. It does not change, and may be shared.
type Policy struct {
	types.NamespacedName

	UID        types.UID
	Generation int64
	Strategy   schedule.Strategy
	// Schedule says when. That of a policy that can't be read is closed and says why.
	Schedule *schedule.Schedule
	Budget   Budget
	// Jitter spreads the starts of a window.
	Jitter time.Duration
	// MaxOverride is how far ahead permissive-until may lie.
	MaxOverride time.Duration
	// Refuse has Cluster API not commit to a change while the policy is closed.
	Refuse bool
	// Forbid has machines stay that can't be updated in place.
	Forbid bool
	// HoldAll holds back what does not disturb a node, too.
	HoldAll bool

	selector selection.Selector
	// closed keeps for a moment with which other policies this one, the first of them, has no window.
	closed *lru.Cache
}

// Budget limits how many updates start. What is 0 does not limit.
type Budget struct {
	MaxConcurrent, MaxStartsPerWindow, StopAfterFailures int
	MinSpacing                                           time.Duration
}

// Compile reads a policy. If it can't be read, the policy that is returned with the error is closed and says why; a selector
// that can't be read selects every Machine of the namespace.
func Compile(p *refitv1.ChangeManagementPolicy, calendars schedule.Calendars) (*Policy, error) {
	s := p.Spec
	out := &Policy{
		NamespacedName: types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, UID: p.UID, Generation: p.Generation, Strategy: s.Strategy,
		closed: lru.New(closedMost),
		Refuse: s.WhenClosed == refitv1.RefuseWhenClosed, Forbid: s.Replacement == refitv1.ForbidReplacement,
		HoldAll: s.Hold == refitv1.HoldAll,
		Budget: Budget{
			MaxConcurrent: int(s.Budget.MaxConcurrent), MaxStartsPerWindow: int(s.Budget.MaxStartsPerWindow),
			StopAfterFailures: int(s.Budget.StopAfterFailures),
		},
	}
	selector, err := selection.Read(s.Selector)
	out.selector = selector
	errs := []error{err}
	duration := func(field, value string, preset time.Duration) time.Duration {
		if value == "" {
			return preset
		}
		d, err := schedule.ParseDuration(value)
		if err != nil {
			errs = append(errs, &schedule.FieldError{Field: field, Err: err})
		}
		return d
	}
	out.Jitter, out.MaxOverride = duration("jitter", s.Jitter, 0), duration("maxOverride", s.MaxOverride, defaultMaxOverride)
	out.Budget.MinSpacing = duration("budget.minSpacing", s.Budget.MinSpacing, 0)
	compiled, err := schedule.Compile(p.Name, s.Policy, calendars)
	errs = append(errs, err, out.check(&s))
	if err := errors.Join(errs...); err != nil {
		out.Schedule = schedule.Invalid(p.Name, err)
		return out, err
	}
	out.Schedule = compiled
	return out, nil
}

// check looks at what the CRD has checked before, for an API server that has not the same one.
func (p *Policy) check(s *refitv1.ChangeManagementPolicySpec) error {
	var errs []error
	for _, f := range []struct {
		field, value string
		known        []string
	}{
		{"whenClosed", string(s.WhenClosed), []string{"", string(refitv1.HoldWhenClosed), string(refitv1.RefuseWhenClosed)}},
		{"replacement", string(s.Replacement), []string{"", string(refitv1.AllowReplacement), string(refitv1.ForbidReplacement)}},
		{"hold", string(s.Hold), []string{"", string(refitv1.HoldMaterial), string(refitv1.HoldAll)}},
	} {
		if !slices.Contains(f.known, f.value) {
			errs = append(errs, &schedule.FieldError{Field: f.field, Err: fmt.Errorf("%q is not known", f.value)})
		}
	}
	if b := p.Budget; min(b.MaxConcurrent, b.MaxStartsPerWindow, b.StopAfterFailures) < 0 {
		errs = append(errs, &schedule.FieldError{Field: "budget", Err: errors.New("it has a negative number")})
	}
	return errors.Join(errs...)
}

// limited says whether the policy has a budget.
func (p *Policy) limited() bool { return p.Budget != Budget{} }

// Selects says whether the policy is for the Machine.
func (p *Policy) Selects(s *Subject) bool {
	return p.Namespace == s.Namespace && p.selector.Cluster(s.ClusterLabels) && p.selectsInCluster(s)
}

func (p *Policy) selectsInCluster(s *Subject) bool {
	return p.selector.Machine(s.Role, s.MachineLabels)
}

// CanMeet says whether some Machine could be selected by both policies, as far as their roles and the values of labels tell.
func (p *Policy) CanMeet(o *Policy) bool { return p.selector.CanMeet(o.selector) }

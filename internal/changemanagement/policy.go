package changemanagement

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/health"
	"github.com/capi-refit/refit/internal/policykind"
	"github.com/capi-refit/refit/schedule"
)

// defaultGrace is for how long a policy counts that is deleted, where it does not say.
const defaultGrace = 10 * time.Minute

// defaultMaxOverride is how far ahead permissive-until may lie where a policy does not say.
const defaultMaxOverride = 48 * time.Hour

// Policy is a ChangeManagementPolicy, or a ClusterChangeManagementPolicy, that was read. It does not change, and may be shared.
type Policy struct {
	policykind.Header

	// Namespaces are those that a ClusterChangeManagementPolicy is for. Nil: it is a ChangeManagementPolicy, and for its own namespace.
	Namespaces labels.Selector
	// Firm reports that the overrides of objects in namespaces don't open it.
	Firm bool
	// Own are the overrides that a ClusterChangeManagementPolicy has itself. They are about it alone.
	Own Overrides

	Strategy schedule.Strategy
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
	// Guard is what becomes of an edit by which machines would be replaced.
	Guard refitv1.Guard
	// DeletionGrace is for how long it counts when it is deleted.
	DeletionGrace time.Duration
	// Gates are asked before each start, and while a node soaks.
	Gates []*health.Gate
	// HoldAll holds back what does not disturb a node, too.
	HoldAll bool
	// Deadline is until when changes may wait for the policy; nil: for as long as that takes.
	Deadline *Deadline

	// late is the schedule for a change whose deadline has passed: without permits. Nil: the deadline opens nothing.
	late *schedule.Schedule
	// calendars are the versions of those that were read for it.
	calendars string
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
	return compile(p, p.Spec, p.Name, calendars)
}

// compile reads the spec of an object that people know by a title.
func compile(p client.Object, s refitv1.ChangeManagementPolicySpec, title string, calendars schedule.Calendars) (*Policy, error) {
	out := &Policy{
		Header: policykind.HeaderOf(p, s.Selector), Strategy: s.Strategy, closed: lru.New(closedMost),
		Refuse: s.WhenClosed == refitv1.RefuseWhenClosed, Forbid: s.Replacement == refitv1.ForbidReplacement,
		HoldAll: s.Hold == refitv1.HoldAll, Guard: cmp.Or(s.Guard, refitv1.RefuseGuard),
		Budget: Budget{
			MaxConcurrent: int(s.Budget.MaxConcurrent), MaxStartsPerWindow: int(s.Budget.MaxStartsPerWindow),
			StopAfterFailures: int(s.Budget.StopAfterFailures),
		},
	}
	errs := []error{out.Err}
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
	if out.DeletionGrace = defaultGrace; s.DeletionGrace != "" {
		var err error
		if out.DeletionGrace, err = time.ParseDuration(s.DeletionGrace); err != nil || out.DeletionGrace < 0 {
			errs = append(errs, &schedule.FieldError{Field: "deletionGrace", Err: fmt.Errorf("%q is no duration such as 10m", s.DeletionGrace)})
			out.DeletionGrace = defaultGrace
		}
	}
	var err error
	out.Deadline, err = compileDeadline(s.Deadline)
	errs = append(errs, err)
	out.Budget.MinSpacing = duration("budget.minSpacing", s.Budget.MinSpacing, 0)
	compiled, err := schedule.Compile(title, s.Policy, calendars)
	gates, wrong := health.Compile(s.Gates)
	out.Gates = gates
	errs = append(errs, err, wrong, out.check(&s))
	if out.refuse(title, errs...) == nil {
		out.Schedule = compiled
		if late := compiled.WithoutPermits(); late != compiled {
			out.late = late
		}
	}
	return out, out.Err
}

// refuse closes the policy if there is an error, which it returns. No deadline opens it then.
func (p *Policy) refuse(title string, errs ...error) error {
	if p.Err = errors.Join(errs...); p.Err != nil {
		p.Schedule, p.late = schedule.Invalid(title, p.Err), nil
	}
	return p.Err
}

// check looks at what the CRD has checked before, for an API server that has not the same one.
func (p *Policy) check(s *refitv1.ChangeManagementPolicySpec) error {
	errs := []error{
		policykind.Word("whenClosed", s.WhenClosed, "", refitv1.HoldWhenClosed, refitv1.RefuseWhenClosed),
		policykind.Word("replacement", s.Replacement, "", refitv1.AllowReplacement, refitv1.ForbidReplacement),
		policykind.Word("guard", s.Guard, "", refitv1.WarnGuard, refitv1.RefuseGuard, refitv1.StrictGuard),
		policykind.Word("hold", s.Hold, "", refitv1.HoldMaterial, refitv1.HoldAll),
	}
	if b := p.Budget; min(b.MaxConcurrent, b.MaxStartsPerWindow, b.StopAfterFailures) < 0 {
		errs = append(errs, &schedule.FieldError{Field: "budget", Err: errors.New("it has a negative number")})
	}
	return errors.Join(errs...)
}

// limited reports whether the policy has a budget.
func (p *Policy) limited() bool { return p.Budget != Budget{} }

// Selects reports whether the policy is for the Machine; one of the platform, whether it is if it is for the Machine's namespace.
func (p *Policy) Selects(s *Candidate) bool {
	return (p.Namespaces != nil || p.Namespace == s.Namespace) && p.Selector.Cluster(s.ClusterLabels) && p.Selector.Machine(s.Role, s.Labels)
}

package changemanagement

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/health"
	"github.com/capi-refit/refit/schedule"
)

// Health answers for the health gates of policies.
type Health interface {
	// Latest returns the last answer of a gate, and whether an update may start by it. It does not wait.
	Latest(of health.Policy, g *health.Gate, cluster string) (health.Answer, bool)
	// Ask returns an answer to a question that was asked since an instant. It waits for it.
	Ask(ctx context.Context, of health.Policy, g *health.Gate, cluster string, since time.Time) (health.Answer, error)
	// Known returns the last answers by gate and cluster.
	Known(of health.Policy) map[string]map[string]health.Answer
}

var _ Health = (*health.Asker)(nil)

// version is whose gates are asked.
func (p *Policy) version() health.Policy {
	return health.Policy{NamespacedName: p.NamespacedName, UID: p.UID, Generation: p.Generation}
}

// checkGates has the policy be invalid if one of its gates may not be asked.
func (p *Policy) checkGates(mayAsk func(*health.Gate) error) {
	for i, g := range p.Gates {
		if err := mayAsk(g); err != nil {
			_ = p.refuse(p.Title(), &schedule.FieldError{Field: fmt.Sprintf("gates[%d].prometheus.url", i), Err: err})
			p.Gates = nil // so that nobody asks them: a node may soak, and the policy is selected as before
			return
		}
	}
}

// unhealthy is a health gate that does not let an update start.
type unhealthy struct {
	reason schedule.Reason
	policy *Policy
	gate   *health.Gate
	// what is told of it, and in one word or two.
	message, brief string
	told           health.Told
	// unasked reports that nobody can ask it here.
	unasked bool
}

func (u *unhealthy) String() string {
	return fmt.Sprintf("health gate %s of policy %s, which %s", u.gate.Name, u.policy.Name, u.brief)
}

// unhealthy returns the gates that don't let updates of the Machines of a Cluster start, those first that don't hold. All are asked: who waits for
// one is not to wait for the next one after it.
func (g *Gate) unhealthy(policies []*Policy, cluster string) []*unhealthy {
	var out []*unhealthy
	for _, p := range policies {
		for _, one := range p.Gates {
			if u := g.gateCloses(p, one, cluster); u != nil {
				out = append(out, u)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b *unhealthy) int { return cmp.Compare(a.reason, b.reason) }) // GateFailed, GateUnknown
	return out
}

// gateCloses returns nil if a gate lets updates start. One with no answer that is fresh does not.
func (g *Gate) gateCloses(p *Policy, one *health.Gate, cluster string) *unhealthy {
	u := &unhealthy{
		reason: schedule.GateUnknown, policy: p, gate: one, brief: "is not known to hold",
		message: fmt.Sprintf("policy %s: health gate %s has not been asked yet", p.Name, one.Name),
	}
	if g.Health == nil || p.Namespace == "" {
		u.message, u.unasked = u.message+", and can't be here", true
		return u
	}
	a, fresh := g.Health.Latest(p.version(), one, cluster)
	told := a.Told()
	if !a.At.IsZero() {
		u.told = told
	}
	switch {
	case fresh && one.Passes(a.State):
		return nil
	case a.At.IsZero():
	case told.State == refitv1.GateFailing:
		u.reason, u.brief = schedule.GateFailed, "does not hold"
		u.message = fmt.Sprintf("policy %s: health gate %s does not hold since %s: %s", p.Name, one.Name, told.Since.UTC().Format(time.RFC3339), told.Says)
	case told.State == refitv1.GateUnknown:
		u.message = fmt.Sprintf("policy %s: health gate %s can't be asked since %s: %s", p.Name, one.Name, told.Since.UTC().Format(time.RFC3339), told.Says)
	default:
		u.message = fmt.Sprintf("policy %s: what health gate %s has answered last is too old", p.Name, one.Name)
	}
	return u
}

// askGates closes a decision that a health gate does not let be open. A bypass of the very change passes it, and is told which; what opens policies
// for a while does not: it says nothing about how things are. Nor does a bypass at a policy of the platform, which has no gates.
func (g *Gate) askGates(d *Decision, r *record) {
	all := g.unhealthy(d.Policies, r.candidate.Cluster)
	if len(all) == 0 {
		return
	}
	if d.bypassed {
		for _, u := range all {
			d.Message += ", which passes " + u.String()
		}
		return
	}
	u := all[0]
	d.Open, d.Reason, d.PermissiveRemainingSeconds, d.Frees = false, u.reason, 0, true
	d.NextChangeETASeconds = max(1, int64(u.gate.Interval/time.Second))
	d.Message = fmt.Sprintf("%s; it is asked every %s while something waits, and updates start when it holds", u.message, u.gate.Interval/2)
	d.limits = append(d.limits, u.policy.Name, u.gate.Name, u.gate.Interval.String(), string(u.told.State), u.told.Since.UTC().Format(time.RFC3339), u.told.Says, strconv.FormatBool(u.unasked), strconv.Itoa(len(all)))
	if more := len(all) - 1; more > 0 {
		d.Message += fmt.Sprintf("; and %d other health gates don't, or are not known to", more)
	}
}

// Within reports whether the windows let it be open, whatever budgets and health gates say.
func (d *Decision) Within() bool {
	return d.Open || slices.Contains([]schedule.Reason{schedule.BudgetExhausted, schedule.GateFailed, schedule.GateUnknown}, d.Reason)
}

// mostGates bounds how many answers a status has.
const mostGates = 100

// gatesOf returns what the gates of a policy have answered, as a status has it.
func (g *Gate) gatesOf(p *Policy) []refitv1.GateStatus {
	if g.Health == nil || len(p.Gates) == 0 {
		return nil
	}
	var out []refitv1.GateStatus
	for gate, answers := range g.Health.Known(p.version()) {
		for cluster, a := range answers {
			out = append(out, refitv1.GateStatus{
				Name: gate, Cluster: cluster, State: a.State, Since: metav1.NewTime(a.Since.Truncate(time.Second)), Message: a.Says,
			})
		}
	}
	slices.SortFunc(out, func(a, b refitv1.GateStatus) int { // Failing, Passing, Unknown
		passing := func(s refitv1.GateStatus) int { return int(boolean(s.State == refitv1.GatePassing)) }
		return cmp.Or(passing(a)-passing(b), cmp.Compare(a.State, b.State), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Cluster, b.Cluster))
	})
	return out[:min(len(out), mostGates)]
}

// gateKey is a gate of a policy.
type gateKey struct{ namespace, policy, gate string }

// gatesShown returns what the metric says of each gate, by what statuses show: of several clusters the worst. Of a gate that nobody asks it says
// nothing.
func gatesShown(shown []refitv1.ChangeManagementPolicy) map[gateKey]float64 {
	out := map[gateKey]float64{}
	for i := range shown {
		p := &shown[i]
		for _, s := range p.Status.Gates {
			key, value := gateKey{p.Namespace, p.Name, s.Name}, gateOpen(s.State)
			if before, ok := out[key]; !ok || worse(value, before) {
				out[key] = value
			}
		}
	}
	return out
}

// What refit_change_management_gate_open says.
const (
	gateNotKnown = -1
	gateShut     = 0
	gateHolds    = 1
)

func gateOpen(s refitv1.GateState) float64 {
	switch s {
	case refitv1.GatePassing:
		return gateHolds
	case refitv1.GateFailing:
		return gateShut
	default:
		return gateNotKnown
	}
}

// worse reports whether a value tells of something worse: a gate that does not hold is worse than one of which nothing is known.
func worse(a, b float64) bool {
	rank := map[float64]int{gateShut: 0, gateNotKnown: 1, gateHolds: 2}
	return rank[a] < rank[b]
}

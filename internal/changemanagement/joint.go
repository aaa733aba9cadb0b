package changemanagement

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
)

var (
	machinesLabels = []string{"namespace", "cluster", "role"}

	jointDesc = prometheus.NewDesc("refit_change_management_joint_next_change_eta_seconds",
		"Seconds until all policies of a machine let changes start at once, of the machine for which that is longest: 0 now, -1 not within 1000 days or paused, -2 a policy is invalid.",
		machinesLabels, nil)
	apartDesc = prometheus.NewDesc("refit_change_management_never_meeting_machines",
		"Machines whose policies each open some day, but have no window together within 1000 days.", machinesLabels, nil)
	unselectedDesc = prometheus.NewDesc("refit_change_management_unselected_machines",
		"Machines that no policy selects, so that changes of them start at any time.", machinesLabels, nil)
)

// machinesKey are the machines of a cluster and a role.
type machinesKey struct {
	namespace, cluster string
	role               refitv1.Role
}

// machinesOf is what all of their policies mean for them together.
type machinesOf struct {
	unselected int
	eta        int64
	apart      int             // whose policies have no window together
	asked      map[string]bool // sets of policies, and whether theirs are apart
}

// join asks what the policies that select a machine mean together, overrides aside, for the change that waits. Many machines have the same ones.
func (o *seen) join(s *Candidate, policies []*Policy, measured estimates, c Change) {
	key := machinesKey{s.Namespace, s.Cluster, s.Role}
	m := o.machines[key]
	if m == nil {
		m = &machinesOf{asked: map[string]bool{}}
		o.machines[key] = m
	}
	if len(policies) == 0 {
		m.unselected++
		return
	}
	set := strings.Join(names(policies), "/")
	if slices.ContainsFunc(policies, func(p *Policy) bool { return p.Schedule.Scoped() }) && !c.Whichever {
		set += ": " + c.Class.String()
	}
	apart, known := m.asked[set]
	if !known {
		eta := o.together(s, policies, measured, c)
		m.eta = later(m.eta, eta)
		apart = eta == schedule.SecondsNone && !slices.ContainsFunc(policies, func(p *Policy) bool { return o.together(s, []*Policy{p}, measured, c) < 0 })
		m.asked[set] = apart
	}
	if apart {
		m.apart++
	}
}

// together returns in how many seconds all of the policies are open at once, overrides aside.
func (o *seen) together(s *Candidate, policies []*Policy, measured estimates, c Change) int64 {
	return orProbe(measured.longest(s.Role, policies...), func(expected time.Duration) schedule.Decision {
		return Decide(o.now, &Candidate{Subject: s.Subject, Role: s.Role}, bare(policies), Change{Expected: expected, Class: c.Class, Whichever: c.Whichever}).Decision
	}).NextChangeETASeconds
}

// bare returns policies without overrides of their own.
func bare(policies []*Policy) []*Policy {
	out := slices.Clone(policies)
	for i, p := range out {
		if len(p.Own) > 0 {
			without := *p
			without.Own = nil
			out[i] = &without
		}
	}
	return out
}

// later returns which of two numbers of seconds is worse: one that stands for something is.
func later(a, b int64) int64 {
	if a < 0 || b < 0 {
		return min(a, b)
	}
	return max(a, b)
}

func (o *seen) collectMachines(ch chan<- prometheus.Metric) {
	for key, m := range o.machines {
		gauge := func(d *prometheus.Desc, v float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, key.namespace, key.cluster, string(key.role))
		}
		gauge(unselectedDesc, float64(m.unselected))
		if len(m.asked) > 0 {
			gauge(jointDesc, float64(m.eta))
			gauge(apartDesc, float64(m.apart))
		}
	}
}

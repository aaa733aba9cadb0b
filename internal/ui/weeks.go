package ui

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/timeline"
	"github.com/capi-refit/refit/schedule"
)

const (
	// ahead is how many days a timeline looks ahead.
	ahead = 28
	// lanesPerPage is how many policies a timeline shows, maxTogether how many sets of policies, and maxExpected how many changes.
	lanesPerPage, maxTogether, maxExpected = 25, 10, 100
)

// weeks are the next four.
type weeks struct {
	paged

	From  time.Time `json:"from"`
	Until time.Time `json:"until"`
	// Together are the policies that select Machines together, those with the most Machines first.
	Together []lane              `json:"together"`
	Policies []lane              `json:"policies"`
	Expected []timeline.Expected `json:"expected"`
	// MoreTogether and MoreExpected are how many were left out.
	MoreTogether int `json:"moreTogether,omitempty"`
	MoreExpected int `json:"moreExpected,omitempty"`
}

// lane is what policies say, and for how many Machines.
type lane struct {
	timeline.Lane

	Machines int `json:"machines"`
}

// weeksOf returns what the policies permit that a query looks for, and what is expected.
func (s *snapshot) weeksOf(q query) weeks {
	w := weeks{From: s.now.UTC().Truncate(time.Minute), Together: []lane{}, Policies: []lane{}}
	w.Until = w.From.AddDate(0, 0, ahead)
	var shown []*changemanagement.Policy
	shown, w.paged = cut(s.policiesOf(q), q.page, lanesPerPage)
	for _, p := range shown {
		machines := 0
		for _, n := range s.selected[p] {
			machines += n
		}
		w.Policies = append(w.Policies, lane{w.lane(titleOf(p), p), machines})
	}
	s.addTogether(&w, q)
	for _, e := range timeline.Expect(s.pending) {
		if (q.namespace == "" || e.Namespace == q.namespace) && q.named(e.Namespace, e.Cluster, e.Owner) {
			e.Why = shortened(bounded(e.Why), maxListed)
			w.Expected = append(w.Expected, e)
		}
	}
	w.MoreExpected = max(0, len(w.Expected)-maxExpected)
	w.Expected = append([]timeline.Expected{}, w.Expected[:len(w.Expected)-w.MoreExpected]...)
	return w
}

// policiesOf returns the policies that a query looks for.
func (s *snapshot) policiesOf(q query) []*changemanagement.Policy {
	var all []*changemanagement.Policy
	for _, p := range s.policies {
		if (q.namespace == "" || p.Namespace == "" || p.Namespace == q.namespace) && q.named(p.Namespace, p.Name) {
			all = append(all, p)
		}
	}
	return all
}

// addTogether adds the sets of several policies.
func (s *snapshot) addTogether(w *weeks, q query) {
	var sets []*policySet
	for _, key := range slices.Sorted(maps.Keys(s.together)) {
		set := s.together[key]
		if len(set.policies) > 1 && slices.ContainsFunc(set.policies, func(p *changemanagement.Policy) bool {
			return (q.namespace == "" || p.Namespace == q.namespace) && q.named(p.Namespace, p.Name)
		}) {
			sets = append(sets, set)
		}
	}
	slices.SortStableFunc(sets, func(a, b *policySet) int { return cmp.Compare(b.machines, a.machines) })
	w.MoreTogether = max(0, len(sets)-maxTogether)
	for _, set := range sets[:len(sets)-w.MoreTogether] {
		titles := make([]string, len(set.policies))
		for i, p := range set.policies {
			titles[i] = titleOf(p)
		}
		w.Together = append(w.Together, lane{w.lane(strings.Join(titles, " + "), set.policies...), set.machines})
	}
}

// lane lays out policies.
func (w *weeks) lane(title string, policies ...*changemanagement.Policy) timeline.Lane {
	schedules := make([]*schedule.Schedule, len(policies))
	for i, p := range policies {
		schedules[i] = p.Schedule
	}
	l := timeline.LaneOf(w.From, w.Until, title, schedules...)
	l.Problem = bounded(l.Problem)
	for i := range l.Spans {
		l.Spans[i].Text = shortened(bounded(l.Spans[i].Text), maxListed)
	}
	return l
}

func titleOf(p *changemanagement.Policy) string {
	if p.Namespaces != nil {
		return p.Name + " (platform)"
	}
	return fmt.Sprintf("%s/%s", p.Namespace, p.Name)
}

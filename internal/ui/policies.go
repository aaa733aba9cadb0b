package ui

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/schedule"
)

const (
	// policiesPerPage is how many policies a page has.
	policiesPerPage = 50
	// maxSelected is how many of the Clusters are named of which a policy selects Machines, and maxRules how many of its rules.
	maxSelected, maxRules = 20, 30
)

// policyList is a list of policies, those of the platform first.
type policyList struct {
	paged

	Policies []policyRow `json:"policies"`
	// Unselected is how many Machines no policy selects: changes of them start at any time. It is none where that is not known.
	Unselected *int `json:"unselected,omitempty"`
}

// policyRow is a policy, and whom it selects.
type policyRow struct {
	Namespace string            `json:"namespace,omitempty"`
	Name      string            `json:"name"`
	Platform  bool              `json:"platform,omitempty"`
	Strategy  schedule.Strategy `json:"strategy"`
	Zone      string            `json:"zone"`
	Problem   string            `json:"problem,omitempty"`
	Open      bool              `json:"open"`
	// Now says what it is now, and until when.
	Now  string     `json:"now"`
	Next *time.Time `json:"next,omitempty"`

	Selects  []string          `json:"selects"`
	Machines int               `json:"machines"`
	Pending  *int32            `json:"pending,omitempty"`
	Clusters []selectedCluster `json:"clusters"`
	More     int               `json:"more,omitempty"`

	Permits  []string  `json:"permits"`
	Excludes []string  `json:"excludes"`
	Limits   []string  `json:"limits"`
	Gates    []gateRow `json:"gates,omitempty"`
}

type selectedCluster struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Machines  int    `json:"machines"`
}

type gateRow struct {
	Name    string `json:"name"`
	Cluster string `json:"cluster,omitempty"`
	State   string `json:"state"`
	Message string `json:"message,omitempty"`
}

// policyObject is what the API server has of a policy of either kind.
type policyObject struct {
	spec       *refitv1.ChangeManagementPolicySpec
	status     *refitv1.ChangeManagementPolicyStatus
	namespaces *metav1.LabelSelector
	overrides  refitv1.NamespaceOverrides
}

// policyList returns the policies whose names have what a query looks for.
func (f *Fleet) policyList(s *snapshot, q query) policyList {
	out := policyList{Policies: []policyRow{}}
	if s.knowsSelected {
		out.Unselected = new(0)
		if set := s.together[""]; set != nil {
			*out.Unselected = set.machines
		}
	}
	var all []*changemanagement.Policy
	for _, p := range s.policies {
		if (q.namespace == "" || p.Namespace == "" || p.Namespace == q.namespace) && q.named(p.Namespace, p.Name) {
			all = append(all, p)
		}
	}
	var shown []*changemanagement.Policy
	shown, out.paged = cut(all, q.page, policiesPerPage)
	for _, p := range shown {
		out.Policies = append(out.Policies, s.policyRow(p, f.object(p)))
	}
	return out
}

// object returns what the API server has of a policy.
func (f *Fleet) object(p *changemanagement.Policy) policyObject {
	if p.Namespaces != nil {
		if o, ok := one[*refitv1.ClusterChangeManagementPolicy](f, "", p.Name); ok {
			return policyObject{&o.Spec.ChangeManagementPolicySpec, &o.Status, &o.Spec.NamespaceSelector, o.Spec.Overrides}
		}
	} else if o, ok := one[*refitv1.ChangeManagementPolicy](f, p.Namespace, p.Name); ok {
		return policyObject{spec: &o.Spec, status: &o.Status}
	}
	return policyObject{spec: &refitv1.ChangeManagementPolicySpec{}, status: &refitv1.ChangeManagementPolicyStatus{}}
}

func (s *snapshot) policyRow(p *changemanagement.Policy, o policyObject) policyRow {
	widest := p.Schedule.Widest()
	d := schedule.Decide(schedule.Query{Now: s.now}, widest)
	r := policyRow{
		Namespace: p.Namespace, Name: p.Name, Platform: p.Namespaces != nil, Strategy: p.Strategy, Zone: widest.Location().String(),
		Open: d.Open, Now: bounded(d.Message), Selects: selects(o), Pending: o.status.PendingMachines,
		Clusters: []selectedCluster{}, Permits: rules(widest.Permits()), Excludes: rules(widest.Excludes()), Limits: limits(o),
	}
	if err := p.Schedule.Err(s.now); err != nil {
		r.Problem = bounded(err.Error())
	} else if ready := meta.FindStatusCondition(o.status.Conditions, refitv1.ReadyCondition); ready != nil && ready.Status == metav1.ConditionFalse {
		r.Problem = bounded(ready.Message) // refit knows more of it: what it may ask, for example
	}
	switch {
	case d.NextChangeETASeconds > 0:
		r.Next = new(s.now.Add(time.Duration(d.NextChangeETASeconds) * time.Second).UTC())
	case d.Open && d.PermissiveRemainingSeconds > 0:
		r.Next = new(s.now.Add(time.Duration(d.PermissiveRemainingSeconds) * time.Second).UTC())
	}
	for _, name := range slices.SortedFunc(maps.Keys(s.selected[p]), compareNames) {
		n := s.selected[p][name]
		r.Machines += n
		r.Clusters = append(r.Clusters, selectedCluster{name.Namespace, name.Name, n})
	}
	r.More = max(0, len(r.Clusters)-maxSelected)
	r.Clusters = r.Clusters[:len(r.Clusters)-r.More]
	for _, g := range o.status.Gates {
		r.Gates = append(r.Gates, gateRow{bounded(g.Name), bounded(g.Cluster), string(g.State), bounded(g.Message)})
	}
	return r
}

func compareNames(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// selects says whom a policy selects, in words.
func selects(o policyObject) []string {
	out := []string{}
	add := func(what string, s *metav1.LabelSelector) {
		if s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0 {
			out = append(out, what+" "+bounded(metav1.FormatLabelSelector(s)))
		}
	}
	add("namespaces", o.namespaces)
	add("clusters", &o.spec.Selector.Clusters)
	add("machines", &o.spec.Selector.Machines)
	for _, role := range o.spec.Selector.Roles {
		out = append(out, "role "+bounded(string(role)))
	}
	if len(out) == 0 {
		out = append(out, "all")
	}
	return out
}

// rules are the texts of what opens or closes a policy.
func rules(all []schedule.Source) []string {
	out := []string{}
	for _, s := range all[:min(len(all), maxRules)] {
		text := s.Text
		if s.Reason != "" {
			text = s.Reason + ": " + text
		}
		out = append(out, bounded(text))
	}
	if more := len(all) - maxRules; more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return out
}

// limits are what else a policy says, in words.
func limits(o policyObject) []string {
	out := []string{}
	number := func(n int32, text string) {
		if n > 0 {
			out = append(out, fmt.Sprintf(text, n))
		}
	}
	b := o.spec.Budget
	number(b.MaxConcurrent, "%d at once")
	number(b.MaxStartsPerWindow, "%d starts a window")
	number(b.StopAfterFailures, "stops after %d failures")
	word := func(value, text string) {
		if value != "" {
			out = append(out, strings.TrimSpace(text+" "+bounded(value)))
		}
	}
	word(b.MinSpacing, "spaced by")
	word(o.spec.Jitter, "spread over")
	if o.spec.WhenClosed == refitv1.RefuseWhenClosed {
		out = append(out, "refuses changes while closed")
	}
	if o.spec.Replacement == refitv1.ForbidReplacement {
		out = append(out, "forbids replacement")
	}
	if o.spec.Hold == refitv1.HoldAll {
		out = append(out, "holds what disturbs no node, too")
	}
	if o.spec.Deadline != nil {
		out = append(out, "has a deadline")
	}
	if o.overrides == refitv1.AllowOverrides {
		out = append(out, "namespaces may override it")
	}
	return out
}

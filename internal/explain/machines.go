package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/disruption"
)

// Machines says of each machine of an owner what becomes of it, and when, where all of them get the change that is told of the owner.
func (e *Explainer) Machines(ctx context.Context, o *Owner, machines []clusterv1.Machine) error {
	for i := range machines {
		m := &machines[i]
		one := &Machine{Name: m.Name, Verdict: o.Verdict, Disruption: o.Disruption, Why: o.uncovered()}
		one.marked(m, false)
		o.Each = append(o.Each, one)
		if err := e.whenOf(ctx, o, one, m); err != nil {
			return err
		}
	}
	o.recount(machines)
	o.inOrder()
	return nil
}

// recount has the counts say what is, and no more what the replicas were to be.
func (o *Owner) recount(machines []clusterv1.Machine) {
	marked := 0
	for i := range machines {
		if isMarked(&machines[i]) != "" && o.Verdict == InPlace {
			marked++
		}
	}
	if marked = min(marked, o.Machines.InPlace); marked > 0 {
		o.Machines.InPlace -= marked
		o.Machines.Replaced += marked
	}
}

// isMarked returns what has Cluster API replace a machine without asking anybody; empty: nothing.
func isMarked(m *clusterv1.Machine) string {
	for _, name := range []string{clusterv1.DeleteMachineAnnotation, clusterv1.RemediateMachineAnnotation} {
		if _, ok := m.Annotations[name]; ok {
			return "its annotation " + name + " has Cluster API replace it without asking anybody"
		}
	}
	return ""
}

// marked looks at what a machine itself says. An update that waits is none that ends first.
func (one *Machine) marked(m *clusterv1.Machine, waits bool) {
	_, updating := m.Annotations[clusterv1.UpdateInProgressAnnotation]
	switch why := isMarked(m); {
	case !m.DeletionTimestamp.IsZero():
		one.Verdict, one.Disruption, one.Why = Deleted, "", "it is being deleted"
	case why != "" && (one.Verdict == InPlace || one.Verdict == Replace):
		one.Verdict, one.Disruption, one.Why = Replace, disruption.Replace, why
	case updating && !waits:
		one.Why = strings.TrimPrefix(one.Why+"; it is being updated in place now, which ends first", "; ")
	}
}

// uncovered names the first field that is not made in place, and why.
func (o *Owner) uncovered() string {
	for _, f := range o.Fields {
		if !f.Covered {
			return f.Path + ": " + f.Reason
		}
	}
	return ""
}

// whenOf asks the timetable about one machine.
func (e *Explainer) whenOf(ctx context.Context, o *Owner, one *Machine, m *clusterv1.Machine) error {
	if e.Timetable == nil || one.When != nil || !o.isAsked(one, m) {
		return nil // no policy holds anything back
	}
	w, err := e.Timetable.When(ctx, Question{
		Machine: m, Class: o.class, Material: one.Disruption != disruption.None, Replaces: one.Verdict == Replace,
	})
	if err != nil {
		return fmt.Errorf("ask when the change of Machine %s may start: %w", named(m.Namespace, m.Name), err)
	}
	if w == nil {
		return nil
	}
	one.When = w
	if one.Verdict == Replace && len(w.ForbiddenBy) > 0 {
		one.Verdict, one.Disruption, one.Why = Forbidden, disruption.None, "the replacement is forbidden by "+strings.Join(w.ForbiddenBy, ", ")
		if o.Machines.Replaced > 0 {
			o.Machines.Replaced--
		}
	}
	return nil
}

// started is the reason of what no policy holds back any more.
const started = "Started"

// isAsked reports whether policies are asked about what becomes of a machine.
func (o *Owner) isAsked(one *Machine, m *clusterv1.Machine) bool {
	return one.Verdict == InPlace || one.Verdict == Replace && !o.unasked && isMarked(m) == ""
}

// inOrder sorts the machines by when they may start, and takes the first of these instants for the owner's.
func (o *Owner) inOrder() {
	at := func(m *Machine) time.Time {
		if m.When != nil && m.When.Reason == started {
			return time.Time{}
		}
		if m.When == nil || m.When.NotBefore == nil {
			return time.Unix(1<<40, 0)
		}
		return *m.When.NotBefore
	}
	slices.SortFunc(o.Each, func(a, b *Machine) int { return cmp.Or(at(a).Compare(at(b)), strings.Compare(a.Name, b.Name)) })
	o.setWhen(o.first())
	o.sumUp()
}

// first returns when the first of the machines may start, by all of their policies; nil if nothing is known of any.
func (o *Owner) first() *When {
	var first *When
	for _, m := range o.Each {
		switch {
		case m.When == nil:
		case first == nil:
			first = new(*m.When)
			first.ForbiddenBy, first.Policies = nil, sorted(slices.Clone(first.Policies))
		default:
			first.Policies = sorted(append(first.Policies, m.When.Policies...))
			first.Expected = max(first.Expected, m.When.Expected)
		}
	}
	return first
}

// sumUp has the verdict be the worst of the machines'.
func (o *Owner) sumUp() {
	if len(o.Each) == 0 || o.Verdict != Replace && o.Verdict != InPlace {
		return
	}
	o.Verdict = None
	for _, m := range o.Each {
		if m.Verdict != Deleted {
			o.Verdict = worse(o.Verdict, m.Verdict)
		}
	}
	if o.Verdict == Forbidden {
		o.AtOnce = 0
	}
}

// UpToDate reports whether Cluster API says of a machine that it is as its owner wants it. It is not known of one without the condition.
func UpToDate(m *clusterv1.Machine) (yes, known bool) {
	c := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineUpToDateCondition)
	if c == nil || c.Status == metav1.ConditionUnknown {
		return false, false
	}
	return c.Status == metav1.ConditionTrue, true
}

// sorted returns texts in order, each once.
func sorted(texts []string) []string {
	slices.Sort(texts)
	return slices.Compact(texts)
}

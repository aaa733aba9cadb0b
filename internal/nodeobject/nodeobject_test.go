package nodeobject

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/kubeadm"
	"github.com/capi-refit/refit/internal/node"
)

// show is what a Node shows, or is registered with: labels as "key=value", taints as "key=value:effect".
func show(items ...string) kubeadm.Registration {
	var r kubeadm.Registration
	var labels, taints []string
	for _, i := range items {
		if strings.Contains(i, ":") {
			taints = append(taints, i)
		} else {
			labels = append(labels, i)
		}
	}
	r.Labels, _ = kubeadm.ParseLabels(strings.Join(labels, ","))
	r.Taints, _ = kubeadm.ParseTaints(strings.Join(taints, ","))
	return r
}

func nodeShowing(items ...string) *corev1.Node {
	r, n := show(items...), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	n.Labels, n.Spec.Taints = r.Labels, r.Taints
	return n
}

// shown is the reverse of nodeShowing.
func shown(n *corev1.Node) []string {
	var out []string
	for key, value := range n.Labels {
		out = append(out, key+"="+value)
	}
	for _, t := range n.Spec.Taints {
		out = append(out, t.Key+"="+t.Value+":"+string(t.Effect))
	}
	slices.Sort(out)
	return out
}

// object is of a Node that was registered with what was says. Nil: that is not known.
func object(was []string, want ...string) *Object {
	o := &Object{Want: show(want...), Taint: func() ([]disruption.Action, error) { return []disruption.Action{{Type: disruption.None}}, nil }}
	if was != nil {
		r := show(was...)
		o.Was = &r
	}
	return o
}

// edit edits a Node, and keeps what tells refit's record from another's.
func edit(o *Object, n *corev1.Node) *Edit {
	e := o.Edit(n)
	if e.Records != nil {
		o.Records = e.Records
	}
	return e
}

func list(items ...string) []string { return append([]string{}, items...) }

func TestNodeEdit(t *testing.T) {
	for name, tc := range map[string]struct {
		was, want, is, after []string
		actions, notes       string
		conflict             bool
	}{
		"a label comes":                               {was: list(), want: list("a=b"), is: list("x=y"), after: list("a=b", "x=y"), actions: "None"},
		"a label changes":                             {was: list("a=b"), want: list("a=c"), is: list("a=b"), after: list("a=c"), actions: "None"},
		"a label goes":                                {was: list("a=b"), want: list(), is: list("a=b", "x=y"), after: list("x=y"), actions: "None"},
		"a label that others changed stays":           {was: list("a=b"), want: list("a=b"), is: list("a=c"), after: list("a=c"), notes: "changed there and not in the specs"},
		"a label that others took away stays away":    {was: list("a=b"), want: list("a=b"), is: list(), after: list(), notes: "changed there"},
		"one that both changed is the specs'":         {was: list("a=b"), want: list("a=c"), is: list("a=d"), after: list("a=c"), actions: "None", conflict: true},
		"one that both changed to the same":           {was: list("a=b"), want: list("a=c"), is: list("a=c"), after: list("a=c")},
		"one that others have is taken":               {was: list(), want: list("a=c"), is: list("a=d"), after: list("a=c"), actions: "None", conflict: true},
		"one that others changed does not go":         {was: list("a=b"), want: list(), is: list("a=c"), after: list("a=c"), notes: "others have given it another value"},
		"without a baseline what differs is changed":  {want: list("a=b"), is: list("a=c", "x=y"), after: list("a=b", "x=y"), actions: "None", notes: "is not known"},
		"without a baseline nothing goes":             {want: list(), is: list("a=c"), after: list("a=c")},
		"a taint comes":                               {was: list(), want: list("a=b:NoSchedule"), is: list(), after: list("a=b:NoSchedule"), actions: "None"},
		"a taint that evicts comes":                   {was: list(), want: list("a=b:NoExecute"), is: list("x=:NoSchedule"), after: list("a=b:NoExecute", "x=:NoSchedule"), actions: "Drain"},
		"a taint that evicts goes":                    {was: list("a=b:NoExecute"), want: list(), is: list("a=b:NoExecute"), after: list(), actions: "None"},
		"a taint gets another effect":                 {was: list("a=b:NoExecute"), want: list("a=b:NoSchedule"), is: list("a=b:NoExecute"), after: list("a=b:NoSchedule"), actions: "None"},
		"a taint gets another value":                  {was: list("a=b:NoSchedule"), want: list("a=c:NoSchedule"), is: list("a=b:NoSchedule"), after: list("a=c:NoSchedule"), actions: "None"},
		"a taint that others took away stays away":    {was: list("a=b:NoSchedule"), want: list("a=b:NoSchedule"), is: list(), after: list(), notes: "changed there"},
		"a taint that others changed does not go":     {was: list("a=b:NoSchedule"), want: list(), is: list("a=c:NoSchedule"), after: list("a=c:NoSchedule"), notes: "another value"},
		"a cordon stays":                              {was: list("a=b:NoSchedule"), want: list(), is: list("a=b:NoSchedule", "node.kubernetes.io/unschedulable=:NoSchedule"), after: list("node.kubernetes.io/unschedulable=:NoSchedule"), actions: "None"},
		"kubeadm's own taint goes with the specs":     {was: list(kubeadm.ControlPlaneTaint + "=:NoSchedule"), want: list(), is: list(kubeadm.ControlPlaneTaint + "=:NoSchedule"), after: list(), actions: "None"},
		"kubeadm's own taint does not come by itself": {want: list(kubeadm.ControlPlaneTaint + "=:NoSchedule"), is: list(), after: list()},
	} {
		t.Run(name, func(t *testing.T) {
			o, n := object(tc.was, tc.want...), nodeShowing(tc.is...)
			plan := node.Plan{}
			o.Plan(n, &plan)
			require.Equal(t, slices.Sorted(slices.Values(tc.is)), shown(n), "planning changes nothing")
			require.Equal(t, tc.actions, describeActions(plan.Actions))
			require.Contains(t, strings.Join(plan.Notes, "; "), tc.notes)
			require.Equal(t, tc.notes == "", len(plan.Notes) == 0, "%s", plan.Notes)
			if len(plan.Changes) > 0 {
				require.Equal(t, tc.conflict, plan.Changes[0].Conflict)
				require.Equal(t, "Node n1", plan.Changes[0].String())
			}
			e := edit(o, n)
			require.Equal(t, slices.Sorted(slices.Values(tc.after)), shown(n))
			require.Empty(t, e.Missing(n))
			again := edit(o, n)
			require.Empty(t, again.Done)
			require.Nil(t, again.Records)
		})
	}
}

func describeActions(actions []disruption.Action) string {
	var out []string
	for _, a := range actions {
		out = append(out, a.String())
	}
	return strings.Join(out, ",")
}

// TestNodeEditRemembers follows a Node from specs to specs, when its bootstrap data is gone.
func TestNodeEditRemembers(t *testing.T) {
	n := nodeShowing("x=y")
	var records []string
	step := func(want ...string) *Edit {
		o := object(nil, want...)
		o.Records = records
		e := edit(o, n)
		records = o.Records
		return e
	}
	require.NotEmpty(t, step("a=b", "t=:NoSchedule").Done)
	require.JSONEq(t, `{"labels":{"a":"b"},"taints":[{"key":"t","effect":"NoSchedule"}]}`, n.Annotations[appliedAnnotation])
	require.NotEmpty(t, step("c=d").Done)
	require.Equal(t, []string{"c=d", "x=y"}, shown(n), "what the specs no longer have goes")
	require.NotEmpty(t, step().Done)
	require.Equal(t, []string{"x=y"}, shown(n))
	require.Equal(t, "{}", n.Annotations[appliedAnnotation], "bootstrap's say no longer counts")
	require.Len(t, records, 2, "this one, and the one before it")
}

// TestARecordThatRefitDidNotWrite: a kubelet may write annotations of its own Node, and must not have refit take away what it may not.
func TestARecordThatRefitDidNotWrite(t *testing.T) {
	guarded := []string{"dedicated=secret:NoSchedule", "node-restriction.kubernetes.io/pci=yes"}
	for name, forged := range map[string]string{
		"a record": `{"labels":{"node-restriction.kubernetes.io/pci":"yes"},"taints":[{"key":"dedicated","value":"secret","effect":"NoSchedule"}]}`,
		"no JSON":  "?",
	} {
		t.Run(name, func(t *testing.T) {
			n := nodeShowing(append(guarded, "a=b")...)
			n.Annotations = map[string]string{appliedAnnotation: forged}
			o := object(list("a=b"), "a=c")
			e := edit(o, n)
			require.Equal(t, slices.Sorted(slices.Values(append(guarded, "a=c"))), shown(n), "what bootstrap registered counts")
			require.Len(t, e.Notes, 1)
			require.Contains(t, e.Notes[0], "not as refit has written it")
			require.JSONEq(t, `{"labels":{"a":"c"}}`, n.Annotations[appliedAnnotation])
			require.Len(t, o.Records, 1)
		})
	}
}

// TestARecordThatWasNotWritten: refit ended after it had kept the record's digest, and other specs are asked for before it is back.
func TestARecordThatWasNotWritten(t *testing.T) {
	n, o := nodeShowing("x=y"), object(nil, "a=b")
	edit(o, n)
	o.Want = show("c=d")
	edit(o, n.DeepCopy()) // which is not written
	o.Want = show("e=f")
	edit(o, n)
	require.Equal(t, []string{"e=f", "x=y"}, shown(n), "the record that the Node has is still refit's")
}

func TestNodeWithoutAChangeGetsNoRecord(t *testing.T) {
	n := nodeShowing("a=b")
	require.Nil(t, object(list("a=b"), "a=b").Edit(n).Records)
	require.NotContains(t, n.Annotations, appliedAnnotation)
}

func TestLabelsAndTaintsOfTheMachineStay(t *testing.T) {
	n := nodeShowing("a=m", "t=m:NoSchedule", "b=b")
	n.Annotations = map[string]string{
		clusterv1.LabelsFromMachineAnnotation: "a,b", clusterv1.TaintsFromMachineAnnotation: "t:NoSchedule",
	}
	e := object(list("b=b"), "a=s", "t=s:NoSchedule").Edit(n)
	require.Empty(t, e.Done)
	require.Len(t, e.Notes, 3)
	require.Equal(t, []string{"a=m", "b=b", "t=m:NoSchedule"}, shown(n))
}

func TestNodeThatCantBeKnown(t *testing.T) {
	o := object(list("a=b", "t=:NoSchedule"), "c=d")
	o.Want.LabelsUnknown, o.Was.TaintsUnknown = true, true
	n := nodeShowing("a=b", "t=:NoSchedule")
	o.Edit(n)
	require.Equal(t, []string{"a=b", "t=:NoSchedule"}, shown(n), "nothing is taken away, and nothing put there")
}

func TestNodeBlocks(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Object, *corev1.Node)
		want   string
	}{
		"a rule that says no": {func(o *Object, _ *corev1.Node) {
			o.Taint = func() ([]disruption.Action, error) { return nil, errors.New("says no") }
		}, "says no"},
		"a conflict that is refused": {func(o *Object, n *corev1.Node) { o.Refuse, n.Labels = true, map[string]string{"a": "x"} }, "conflicts are refused"},
	} {
		t.Run(name, func(t *testing.T) {
			o, n, plan := object(list("a=b"), "a=c", "t=:NoSchedule"), nodeShowing("a=b"), node.Plan{}
			tc.change(o, n)
			o.Plan(n, &plan)
			require.Len(t, plan.Blocked, 1)
			require.Contains(t, plan.Blocked[0].Reason, tc.want)
			require.Empty(t, plan.Changes)
			require.Empty(t, plan.Actions)
		})
	}
}

// TestNodeEditLaws: whatever a Node shows, foreign labels and taints stay, and what is edited once is not edited again.
func TestNodeEditLaws(t *testing.T) {
	item := rapid.SampledFrom([]string{"a=1", "a=2", "b=1", "c=", "t=1:NoSchedule", "t=2:NoSchedule", "t=1:NoExecute", "u=:PreferNoSchedule"})
	rapid.Check(t, func(t *rapid.T) {
		name := func(s string) string { // what tells labels and taints from others
			key, value, _ := strings.Cut(s, "=")
			_, effect, _ := strings.Cut(value, ":")
			return key + effect
		}
		draw := func(label string) []string { return rapid.SliceOfNDistinct(item, 0, 5, name).Draw(t, label) }
		o := object(draw("was"), draw("want")...)
		if rapid.Bool().Draw(t, "unknown") {
			o.Was = nil
		}
		n := nodeShowing(append(draw("is"), "foreign=1", "node.kubernetes.io/unschedulable=:NoSchedule")...)
		e := edit(o, n)
		require.Empty(t, e.Missing(n))
		require.Contains(t, shown(n), "foreign=1")
		require.Contains(t, shown(n), "node.kubernetes.io/unschedulable=:NoSchedule")
		after := n.DeepCopy()
		again := edit(o, n)
		require.Empty(t, again.Done)
		require.Equal(t, after, n)
	})
}

package drain

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientsetfake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// drainRule makes a rule for all pods and Machines.
func drainRule(name string, behavior clusterv1.MachineDrainRuleDrainBehavior, edits ...func(*clusterv1.MachineDrainRuleSpec)) *clusterv1.MachineDrainRule {
	r := &clusterv1.MachineDrainRule{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: name}}
	r.Spec.Drain.Behavior = behavior
	for _, edit := range edits {
		edit(&r.Spec)
	}
	return r
}

func ordered(order int32) func(*clusterv1.MachineDrainRuleSpec) {
	return func(s *clusterv1.MachineDrainRuleSpec) { s.Drain.Order = ptr.To(order) }
}

func forPods(selector, namespaces *metav1.LabelSelector) func(*clusterv1.MachineDrainRuleSpec) {
	return func(s *clusterv1.MachineDrainRuleSpec) {
		s.Pods = append(s.Pods, clusterv1.MachineDrainRulePodSelector{Selector: selector, NamespaceSelector: namespaces})
	}
}

func forMachines(selector, clusters *metav1.LabelSelector) func(*clusterv1.MachineDrainRuleSpec) {
	return func(s *clusterv1.MachineDrainRuleSpec) {
		s.Machines = append(s.Machines, clusterv1.MachineDrainRuleMachineSelector{Selector: selector, ClusterSelector: clusters})
	}
}

func by(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

var broken = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}

// Which pods are touched at all is as with kubectl drain --force --ignore-daemonsets --delete-emptydir-data, but for those that
// have finished.
func TestPodsThatLeave(t *testing.T) {
	emptyDir := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "set"}}
	for name, tc := range map[string]struct {
		pod     *corev1.Pod
		without bool // the DaemonSet
		leaves  bool
	}{
		"a ReplicaSet's":                {pod: pod("a"), leaves: true},
		"nobody's":                      {pod: pod("a", func(p *corev1.Pod) { p.OwnerReferences = nil }), leaves: true},
		"with an emptyDir":              {pod: pod("a", emptyDir), leaves: true},
		"pending":                       {pod: pod("a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }), leaves: true},
		"a DaemonSet's":                 {pod: pod("a", of("DaemonSet"))},
		"a DaemonSet's that is gone":    {pod: pod("a", of("DaemonSet")), without: true, leaves: true},
		"a static pod":                  {pod: pod("a", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} })},
		"succeeded":                     {pod: pod("a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })},
		"failed":                        {pod: pod("a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })},
		"on another node":               {pod: pod("a", func(p *corev1.Pod) { p.Spec.NodeName = "w2" })},
		"labelled to be skipped":        {pod: pod("a", labelled("skip"))},
		"labelled so in other letters":  {pod: pod("a", labelled("Skip"))},
		"labelled with something else":  {pod: pod("a", labelled("perhaps")), leaves: true},
		"labelled, while it terminates": {pod: pod("a", labelled("skip"), deletedAt(start))},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.add(tc.pod)
			if !tc.without {
				w.add(set)
			}
			p := w.pass()
			require.Equal(t, !tc.leaves, p.Done, p.Message)
			if tc.leaves {
				require.Equal(t, "a", w.evictions.names())
				require.Equal(t, "1 pod left: 1 terminating (web/a)", p.Message)
				return
			}
			require.Empty(t, w.evictions.names())
			require.Equal(t, "the node is drained: it has no pods that are to leave", p.Message)
		})
	}
}

func TestRules(t *testing.T) {
	const ( // what becomes of the pod
		evicted = "1 pod left: 1 terminating (web/a)"
		stays   = "the node is drained: it has no pods that are to leave"
		waits   = "1 pod left: 1 to complete (web/a)"
	)
	type rules = []*clusterv1.MachineDrainRule
	for name, tc := range map[string]struct {
		rules rules
		label string
		want  string
	}{
		"none":                                 {want: evicted},
		"skip":                                 {rules: rules{drainRule("r", skips)}, want: stays},
		"wait":                                 {rules: rules{drainRule("r", awaits)}, want: waits},
		"drain":                                {rules: rules{drainRule("r", drains, ordered(7))}, want: evicted},
		"the first by name counts":             {rules: rules{drainRule("b", skips), drainRule("a", awaits)}, want: waits},
		"the label wins":                       {rules: rules{drainRule("r", skips)}, label: "wait-completed", want: waits},
		"the label is read with a blind eye":   {label: "WaitCompleted", want: waits},
		"the pod is selected":                  {rules: rules{drainRule("r", skips, forPods(by("app", "a"), nil))}, want: stays},
		"the pod is not selected":              {rules: rules{drainRule("r", skips, forPods(by("app", "b"), nil))}, want: evicted},
		"one of the pod selectors is enough":   {rules: rules{drainRule("r", skips, forPods(by("app", "b"), nil), forPods(nil, by("team", "web")))}, want: stays},
		"pod and namespace are selected":       {rules: rules{drainRule("r", skips, forPods(by("app", "a"), by("team", "web")))}, want: stays},
		"the namespace is not selected":        {rules: rules{drainRule("r", skips, forPods(by("app", "a"), by("team", "db")))}, want: evicted},
		"empty selectors select all":           {rules: rules{drainRule("r", skips, forPods(&metav1.LabelSelector{}, &metav1.LabelSelector{}))}, want: stays},
		"the next rule, if one does not match": {rules: rules{drainRule("a", skips, forPods(nil, by("team", "db"))), drainRule("b", awaits)}, want: waits},
		"the Machine is selected":              {rules: rules{drainRule("r", skips, forMachines(by("os", "linux"), by("stage", "test")))}, want: stays},
		"the Machine is not selected":          {rules: rules{drainRule("r", skips, forMachines(by("os", "windows"), nil))}, want: evicted},
		"the Cluster is not selected":          {rules: rules{drainRule("r", skips, forMachines(nil, by("stage", "prod")))}, want: evicted},
		"one of the Machine selectors is enough": {
			rules: rules{drainRule("r", skips, forMachines(by("os", "windows"), nil), forMachines(nil, nil))}, want: stays,
		},
		"of another namespace": {
			rules: rules{func() *clusterv1.MachineDrainRule { r := drainRule("r", skips); r.Namespace = "other"; return r }()}, want: evicted,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.add(pod("a", labelled(tc.label)))
			for _, r := range tc.rules {
				w.add(r)
			}
			p := w.pass()
			require.Equal(t, tc.want, p.Message)
			require.Equal(t, tc.want == evicted, w.evictions.names() == "a")
			require.Equal(t, tc.want == stays, p.Done)
		})
	}
}

// What can't be read or understood is an error, and nothing is evicted.
func TestRulesFailClosed(t *testing.T) {
	refuses := func(verb, resource string) func(*world) {
		return func(w *world) {
			answer := func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errAway }
			w.clientset.(*clientsetfake.Clientset).PrependReactor(verb, resource, answer)
		}
	}
	unreadable := func(what interceptor.Funcs) func(*world) {
		return func(w *world) { w.drainer.Rules = interceptor.NewClient(w.management, what) }
	}
	added := func(r *clusterv1.MachineDrainRule) func(*world) { return func(w *world) { w.add(r) } }
	for name, tc := range map[string]struct {
		world func(*world)
		text  string
	}{
		"the pods can't be read":    {refuses("list", "pods"), "choose its pods: connection refused"},
		"a DaemonSet can't be read": {refuses("get", "daemonsets"), "cannot delete connection refused: web/d"},
		"the rules can't be read": {
			unreadable(failing[*clusterv1.MachineDrainRuleList]()), "read the MachineDrainRules in namespace lab: connection refused",
		},
		"the Cluster can't be read": {
			unreadable(failing[*clusterv1.Cluster]()), "read Cluster lab/c1, whose labels MachineDrainRules select: connection refused",
		},
		"the nodes can't be read": {
			func(w *world) { w.intercept(failing[*corev1.NodeList]()) },
			"look for other Nodes that pods could go to: connection refused",
		},
		"the namespace can't be read": {
			func(w *world) { w.intercept(failing[*corev1.Namespace]()) },
			"compare pod web/a with MachineDrainRule r: read Namespace web: connection refused",
		},
		"the namespace is not there": {
			func(w *world) { w.add(pod("a", func(p *corev1.Pod) { p.Namespace = "aaa" })) },
			`read Namespace aaa: namespaces "aaa" not found`,
		},
		"a behavior is unknown": {added(drainRule("x", "Beg")), `use MachineDrainRule lab/x: its behavior "Beg" is not known`},
		"a pod selector is broken": {
			added(drainRule("x", skips, forPods(broken, nil))), "use MachineDrainRule lab/x: read spec.pods[0]",
		},
		"a namespace selector is broken": {
			added(drainRule("x", skips, forPods(nil, broken))), "use MachineDrainRule lab/x: read spec.pods[0]",
		},
		"one of another Machine's is broken": {
			added(drainRule("x", skips, forMachines(by("os", "windows"), nil), forMachines(broken, nil))),
			"use MachineDrainRule lab/x: read spec.machines[1]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.add(pod("a"), pod("d", of("DaemonSet")), drainRule("r", drains, forPods(nil, by("team", "db"))))
			w.add(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "set"}})
			tc.world(w)
			p, err := w.drainer.Pass(t.Context(), w.req)
			require.ErrorContains(t, err, "drain Node w1: ")
			require.ErrorContains(t, err, tc.text)
			require.Zero(t, p)
			require.Empty(t, w.evictions.names())
		})
	}
}

// One group after another: each leaves when the one before is gone, and what is to complete is in the group 0.
func TestOrder(t *testing.T) {
	w := newWorld(t)
	for name, order := range map[string]int32{"first": -5, "last": 100, "later": 50} {
		w.add(pod(name), drainRule(name, drains, ordered(order), forPods(by("app", name), nil)))
	}
	w.add(pod("plain"), pod("job", labelled("wait-completed")))
	for _, step := range []struct {
		evicted, message string
		left             int
		leave            []string
	}{
		{"first", "5 pods left: 1 terminating (web/first), 1 to complete (web/job), 3 to be evicted after these (web/last, web/later, web/plain)", 5, nil},
		{"", "5 pods left: 1 terminating (web/first), 1 to complete (web/job), 3 to be evicted after these (web/last, web/later, web/plain)", 5, []string{"first"}},
		{"plain", "4 pods left: 1 terminating (web/plain), 1 to complete (web/job), 2 to be evicted after these (web/last, web/later)", 4, []string{"plain"}},
		{"", "3 pods left: 1 to complete (web/job), 2 to be evicted after these (web/last, web/later)", 3, []string{"job"}},
		{"later", "2 pods left: 1 terminating (web/later), 1 to be evicted after these (web/last)", 2, []string{"later"}},
		{"last", "1 pod left: 1 terminating (web/last)", 1, []string{"last"}},
		{"", "the node is drained: it has no pods that are to leave", 0, nil},
	} {
		p := w.pass()
		require.Equal(t, step.message, p.Message)
		require.Equal(t, step.evicted, w.evictions.names(), step.message)
		require.Equal(t, step.left, p.Left)
		require.Equal(t, step.left == 0, p.Done)
		w.gone(step.leave...)
		w.clock.SetTime(w.clock.Now().Add(time.Second))
	}
}

// A pod that is to complete is waited for until it has, not until somebody deletes it.
func TestCompleted(t *testing.T) {
	w := newWorld(t)
	job := pod("job", labelled("wait-completed"))
	w.add(job)
	require.False(t, w.pass().Done)
	job.Status.Phase = corev1.PodSucceeded
	_, err := w.clientset.CoreV1().Pods("web").UpdateStatus(t.Context(), job, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.True(t, w.pass().Done)
	require.Empty(t, w.evictions.names())
}

func TestManyPods(t *testing.T) {
	w := newWorld(t)
	for i := range 30 {
		w.add(pod(fmt.Sprintf("p%02d", i)))
	}
	p := w.pass()
	require.Equal(t, "30 pods left: 30 terminating (web/p00, web/p01, web/p02, and 27 more)", p.Message)
	require.Len(t, w.evictions.asked, 30)
	require.Equal(t, p, w.pass())
	require.Len(t, w.evictions.asked, 30, "no eviction is repeated")
}

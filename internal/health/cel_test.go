package health

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/workload"
	"github.com/capi-refit/refit/internal/workload/workloadtest"
)

func deployment(namespace string, ready int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", Labels: map[string]string{"app": "web\x1b[2J"}},
		Status:     appsv1.DeploymentStatus{Replicas: 3, ReadyReplicas: ready},
	}
}

// two are a management cluster with objects and the workload cluster of Cluster c1 with others.
func two(management, workloads []client.Object) *Sources {
	return &Sources{
		Management: managementtest.NewBuilder(managementtest.NewScheme(controlplanev1.AddToScheme)).WithObjects(management...).Build(),
		Workloads:  workloadtest.New(clock.RealClock{}, workloads...),
	}
}

func TestObjects(t *testing.T) {
	inWorkload := object(func(o *refitv1.GateObject) { o.Cluster, o.Namespace = refitv1.WorkloadCluster, "shop" })
	const passing, failing, unknown = refitv1.GatePassing, refitv1.GateFailing, refitv1.GateUnknown
	for name, tc := range map[string]struct {
		gate                  refitv1.HealthGate
		management, workloads []client.Object
		state                 refitv1.GateState
		says                  string
	}{
		"it is ready":                            {webReady(), []client.Object{deployment("fleet", 2)}, nil, passing, ""},
		"it is not":                              {webReady(), []client.Object{deployment("fleet", 1)}, nil, failing, "web.status.?readyReplicas.orValue(0) >= 2 is false: web.status.?readyReplicas.orValue(0) is 1"},
		"none is ready":                          {webReady(), []client.Object{deployment("fleet", 0)}, nil, failing, "web.status.?readyReplicas.orValue(0) is 0"},
		"it is not there":                        {webReady(), nil, nil, unknown, `read Deployment fleet/web of the management cluster: deployments.apps "web" not found`},
		"it is another namespace's":              {webReady(), []client.Object{deployment("other", 2)}, nil, unknown, "not found"},
		"a field that is not there":              {webReady(expression("web.status.readyReplicas >= 2")), []client.Object{deployment("fleet", 0)}, nil, unknown, "no such key: readyReplicas"},
		"of the workload cluster":                {webReady(inWorkload), nil, []client.Object{deployment("shop", 2)}, passing, ""},
		"of the workload cluster, and not ready": {webReady(inWorkload), []client.Object{deployment("shop", 2)}, []client.Object{deployment("shop", 1)}, failing, "is 1"},
		"a node of the workload cluster": {
			webReady(object(func(o *refitv1.GateObject) { o.Cluster, o.APIVersion, o.Kind = refitv1.WorkloadCluster, "v1", "Node" }), expression("web.spec.?unschedulable.orValue(false)")),
			nil, []client.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "web"}}}, failing, "is false",
		},
		"several comparisons": {
			webReady(expression("web.status.replicas == 3 && web.metadata.name != 'web' && web.status.readyReplicas == 9")),
			[]client.Object{deployment("fleet", 2)}, nil, failing, `is false: web.status.replicas is 3, web.metadata.name is "web"`,
		},
		"a value with what terminals obey": {
			webReady(expression("web.metadata.labels.app == 'web'")), []client.Object{deployment("fleet", 2)}, nil, failing, `web.metadata.labels.app is "web [2J"`,
		},
		"a list": {
			webReady(expression("web.status.conditions.all(c, c.status == 'True')")),
			[]client.Object{func() client.Object {
				d := deployment("fleet", 2)
				d.Status.Conditions = []appsv1.DeploymentCondition{{Type: "Available", Status: corev1.ConditionFalse}}
				return d
			}()}, nil, failing, "is false",
		},
		"neither true nor false": {webReady(expression("web.metadata.name")), []client.Object{deployment("fleet", 2)}, nil, unknown, "web.metadata.name is neither true nor false"},
		"it would take for ever": {
			webReady(expression("[" + strings.TrimSuffix(strings.Repeat("1,", 100), ",") + "].all(a, " +
				"[" + strings.TrimSuffix(strings.Repeat("1,", 100), ",") + "].all(b, " +
				"[" + strings.TrimSuffix(strings.Repeat("1,", 100), ",") + "].all(c, a + b + c == 3)))")),
			[]client.Object{deployment("fleet", 2)}, nil, unknown, "actual cost limit exceeded",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := ask(t, tc.gate, two(tc.management, tc.workloads))
			require.Equal(t, tc.state, a.State, a.Says)
			require.Contains(t, a.Says, tc.says)
			require.NotContains(t, a.Says, "\x1b")
		})
	}
	// An API server answers with what has no namespace, whatever namespace is asked for.
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	clusterWide := &Sources{Management: interceptor.NewClient(managementtest.NewBuilder(managementtest.NewScheme(controlplanev1.AddToScheme)).WithObjects(node).Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			key.Namespace = ""
			return c.Get(ctx, key, obj, opts...)
		},
	})}
	a := ask(t, webReady(object(func(o *refitv1.GateObject) { o.APIVersion, o.Kind = "v1", "Node" }), expression("web.metadata.name == 'web'")), clusterWide)
	require.Equal(t, unknown, a.State)
	require.Contains(t, a.Says, "is in no namespace")
	away := &Sources{Workloads: &workloadtest.Cluster{Err: workload.ErrUnavailable}}
	a = ask(t, webReady(inWorkload), away)
	require.Equal(t, unknown, a.State)
	require.Contains(t, a.Says, "the workload cluster can't be reached")
}

// TestExpressionsWithoutABound: what is not counted, or only afterwards, is refused before anything is evaluated. Each of these would take for ever.
func TestExpressionsWithoutABound(t *testing.T) {
	// nested binds in 40 comprehensions what is made of the value before.
	nested := func(first, next, last string) string {
		text, value := "", first
		for i := range 40 {
			name := fmt.Sprintf("v%d", i)
			text += "[" + value + "].all(" + name + ","
			value = strings.ReplaceAll(next, "v", name)
		}
		return text + strings.ReplaceAll(last, "v", value) + strings.Repeat(")", 40)
	}
	for name, tc := range map[string]struct{ expression, says string }{
		"a macro that copies":           {"optional.of(web.a)" + strings.Repeat(".optMap(web,web)", 100) + ".hasValue()", "undeclared reference to 'optMap'"},
		"another one":                   {"optional.of(web.a)" + strings.Repeat(".optFlatMap(web,web.?b)", 80) + ".hasValue()", "undeclared reference to 'optFlatMap'"},
		"a list that doubles":           {nested("[1]", "v+v", "(v)==(v)"), errNested.Error()},
		"lists of lists":                {nested("1", "[v,v]", "v==v"), errNested.Error()},
		"an object's list that doubles": {nested("web.metadata.finalizers", "v+v", "'x' in (v)"), errNested.Error()},
		"maps":                          {nested("1", "{'a':v,'b':v}", "v==v"), errNested.Error()},
		"lists by map":                  {"web.l.map(a, web.l.map(b, [a, b])).all(c, c == c)", errNested.Error()},
		"behind a condition":            {nested("1", "(true ? dyn([v,v]) : 1)", "v==v"), errNested.Error()},
		"a pattern of an object":        {"'a'.matches(web.metadata.name)", errPattern.Error()},
		"a pattern that is large":       {"web.metadata.name.matches('(a{30}){30}')", "the pattern of matches() is too large"},
		"a pattern that is none":        {"matches(web.metadata.name, '(')", "the pattern of matches() is none"},
	} {
		t.Run(name, func(t *testing.T) {
			gates, err := Compile([]refitv1.HealthGate{webReady(expression(tc.expression))})
			require.ErrorContains(t, err, tc.says)
			require.Empty(t, gates)
		})
	}
}

// TestWhatPeopleWriteHasABound.
func TestWhatPeopleWriteHasABound(t *testing.T) {
	for _, text := range []string{
		"web.status.?readyReplicas.orValue(0) in [2, 3]",
		"web.metadata.name.matches('^[a-z]{1,20}-?[0-9]*$')",
		"web.status.?conditions.orValue([]).all(c, c.type in ['Progressing'] || c.status == 'True')",
		"web.status.?conditions.orValue([]).filter(c, c.type == 'Available').map(c, c.status) == ['True']",
		"size(web.status.?conditions.orValue([]) + []) >= 0 && [web.status.replicas, 1 + 1].exists(n, n == 2)",
		"has(web.spec.paused) ? !web.spec.paused : {'a': 1}['a'] == 1",
	} {
		_, err := Compile([]refitv1.HealthGate{webReady(expression(text))})
		require.NoError(t, err, text)
	}
}

// TestComparingCostsWhatIsCompared: each comparison of an object with itself is one of all that is in it.
func TestComparingCostsWhatIsCompared(t *testing.T) {
	d := deployment("fleet", 2)
	d.Annotations = map[string]string{}
	for i := range 2000 {
		d.Annotations[fmt.Sprint("a", i)] = "b"
	}
	a := ask(t, webReady(expression("web.metadata.annotations.all(a, web == web)")), two([]client.Object{d}, nil))
	require.Equal(t, refitv1.GateUnknown, a.State)
	require.Contains(t, a.Says, "actual cost limit exceeded")
}

// TestAControlPlaneIsReadWithoutWhatItsNodesAreBootstrappedFrom, which has passwords and keys as a KubeadmConfig does.
func TestAControlPlaneIsReadWithoutWhatItsNodesAreBootstrappedFrom(t *testing.T) {
	const secret = "hunter2"
	kcp := &controlplanev1.KubeadmControlPlane{ObjectMeta: metav1.ObjectMeta{
		Namespace: "fleet", Name: "web", Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: secret},
	}}
	kcp.Spec.KubeadmConfigSpec.Files = []bootstrapv1.File{{Path: "/etc/key", Content: secret}}
	kcp.Status.Replicas = new(int32(3))
	isKCP := object(func(o *refitv1.GateObject) {
		o.APIVersion, o.Kind = controlplanev1.GroupVersion.String(), "KubeadmControlPlane"
	})
	for _, text := range []string{
		"web.spec.kubeadmConfigSpec.files[0].content == ''",
		"web.metadata.annotations['" + corev1.LastAppliedConfigAnnotation + "'] == ''",
	} {
		a := ask(t, webReady(isKCP, expression(text)), two([]client.Object{kcp}, nil))
		require.Equal(t, refitv1.GateUnknown, a.State, a.Says)
		require.NotContains(t, a.Says, secret)
	}
	require.Equal(t, refitv1.GatePassing, ask(t, webReady(isKCP, expression("web.status.replicas == 3")), two([]client.Object{kcp}, nil)).State)
}

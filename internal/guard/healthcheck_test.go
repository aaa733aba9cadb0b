package guard

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

const healthCheckOfWorkers = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineHealthCheck
metadata: {name: mhc, namespace: fleet, uid: uid-mhc}
spec: {clusterName: c1, selector: {matchLabels: {cluster.x-k8s.io/deployment-name: md}}, checks: {nodeStartupTimeoutSeconds: 600}}
`

func TestHealthChecksThatReplaceKeptMachinesAreWarnedOf(t *testing.T) {
	skipped := func(m *clusterv1.Machine) {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, clusterv1.MachineSkipRemediationAnnotation, "")
	}
	const says = "of the 2 Machines that this selects, policy keep forbids the replacement of w-1 and 1 more (replacement: Forbid); Cluster API replaces those that are found ill, and asks nobody"
	for name, tc := range map[string]struct {
		words    []string
		machines []client.Object
		policy   client.Object
		says     string
	}{
		"it selects them":          {nil, machines(), keep(), says},
		"and that is the strict":   {nil, machines(), keep(as("Strict")), says},
		"control planes":           {[]string{"matchLabels: {cluster.x-k8s.io/deployment-name: md}", "matchExpressions: [{key: cluster.x-k8s.io/control-plane, operator: Exists}]"}, machines(), keep(), "of the 3 Machines that this selects, policy keep forbids the replacement of m-1 and 2 more"},
		"one of them is kept off":  {nil, []client.Object{worker("w-1", skipped), worker("w-2")}, keep(), "of the 1 Machines that this selects, policy keep forbids the replacement of w-2 (replacement"},
		"all are":                  {nil, []client.Object{worker("w-1", skipped)}, keep(), ""},
		"of another Cluster":       {[]string{"clusterName: c1", "clusterName: c2"}, machines(), keep(), ""},
		"others":                   {[]string{"deployment-name: md", "deployment-name: md-2"}, machines(), keep(), ""},
		"they may be replaced":     {nil, machines(), saturdays("weekly"), ""},
		"another policy keeps":     {nil, machines(), keep(kind.Roles("ControlPlane")), ""},
		"a selector that is wrong": {[]string{"matchLabels: {cluster.x-k8s.io/deployment-name: md}", "matchExpressions: [{key: a, operator: Near}]"}, machines(), keep(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, outside, append(append(fleet(t), tc.machines...), tc.policy)...)
			about := func(operation admissionv1.Operation, edits ...func(*admission.Request)) answer {
				mhc := objectsOf(t, healthCheckOfWorkers, tc.words...)[0]
				return w.ask(review(t, mhc, mhc, append(edits, func(r *admission.Request) {
					r.Operation, r.Kind = operation, metav1.GroupVersionKind{Group: clusterv1.GroupVersion.Group, Version: "v1beta2", Kind: healthCheckKind}
				})...))
			}
			outcome, counted := passed, 0.
			if tc.says != "" {
				outcome = warned
			}
			for _, operation := range []admissionv1.Operation{admissionv1.Create, admissionv1.Update} {
				got := about(operation)
				require.True(t, got.allowed)
				counted++
				if tc.says == "" {
					require.Empty(t, got.says)
				} else {
					require.Contains(t, got.says, tc.says)
					require.Equal(t, string(warned), got.AuditAnnotations["outcome"])
				}
				yes := true
				require.Equal(t, got, about(operation, func(r *admission.Request) { r.DryRun = &yes }))
				require.Equal(t, counted, testutil.ToFloat64(w.guard.Metrics.edits.WithLabelValues(healthCheckKind, string(outcome))))
			}
			require.Empty(t, about(admissionv1.Delete).says)
			require.Empty(t, about(admissionv1.Update, func(r *admission.Request) { r.SubResource = "status" }).says)
			w.guard.Namespace = "other"
			require.Empty(t, about(admissionv1.Update).says)
		})
	}
}

// broken is a cache that can't be read.
type broken struct{ client.Reader }

func (broken) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("it is away")
}

func TestAHealthCheckThatIsNotJudgedIsSaidSo(t *testing.T) {
	w := newWorld(t, outside, append(append(fleet(t), machines()...), keep())...)
	w.guard.Cached = broken{w}
	mhc := objectsOf(t, healthCheckOfWorkers)[0]
	got := w.ask(review(t, mhc, mhc, func(r *admission.Request) {
		r.Kind = metav1.GroupVersionKind{Group: clusterv1.GroupVersion.Group, Version: "v1beta2", Kind: healthCheckKind}
	}))
	require.True(t, got.allowed)
	require.Equal(t, string(unjudged), got.AuditAnnotations["outcome"])
	require.Contains(t, got.says, "could not tell")
}

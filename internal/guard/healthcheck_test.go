package guard

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/protection"
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
	held := func(m *clusterv1.Machine) { require.NoError(t, protection.HoldMachine(m)) }
	marked := func(record string) func(*clusterv1.Machine) {
		return func(m *clusterv1.Machine) {
			m.Annotations = map[string]string{clusterv1.MachineSkipRemediationAnnotation: "refit", record: "uid:" + clusterv1.MachineSkipRemediationAnnotation}
		}
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
		"one of them is kept off":  {nil, []client.Object{worker("w-1", skipped), worker("w-2")}, keep(), "of the 2 Machines that this selects, policy keep forbids the replacement of w-2 (replacement"},
		"for an update only":       {nil, []client.Object{worker("w-1", marked(protection.AddedAnnotation)), worker("w-2", skipped)}, keep(), "policy keep forbids the replacement of w-1 (replacement"},
		"for a hold only":          {nil, []client.Object{worker("w-1", held), worker("w-2", held)}, keep(), says},
		"for good, and held":       {nil, []client.Object{worker("w-1", skipped, held)}, keep(), ""},
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

// made is a review of a MachineHealthCheck that somebody makes.
func made(t *testing.T, edits ...func(spec map[string]any)) admission.Request {
	mhc := objectsOf(t, healthCheckOfWorkers)[0]
	for _, edit := range edits {
		edit(mhc.Object["spec"].(map[string]any))
	}
	return review(t, mhc, mhc, func(r *admission.Request) {
		r.Operation, r.Kind = admissionv1.Create, metav1.GroupVersionKind{Group: clusterv1.GroupVersion.Group, Version: "v1beta2", Kind: healthCheckKind}
	})
}

// TestEachPolicyIsNamedForItsOwnMachines: who reads it looks there.
func TestEachPolicyIsNamedForItsOwnMachines(t *testing.T) {
	all := fleet(t)
	for i, pool := range []string{"a", "b", "b", "a", "c", "d", "e"} {
		all = append(all, worker(fmt.Sprintf("w-%d", i), func(m *clusterv1.Machine) { m.Labels["pool"] = pool }))
	}
	for _, pool := range []string{"a", "b", "c", "d", "e"} {
		p := keep(func(s *spec) { s.Selector.Machines.MatchLabels = map[string]string{"pool": pool} })
		p.SetName("keep-" + pool)
		p.SetUID(types.UID("uid-keep-" + pool))
		all = append(all, p)
	}
	got := newWorld(t, outside, all...).ask(made(t))
	require.Contains(t, got.says, "of the 7 Machines that this selects, policy keep-a forbids the replacement of w-0 and 1 more, policy keep-b that of w-1 and 1 more, policy keep-c that of w-4, "+
		"and 2 more policies that of others (replacement: Forbid)")
}

// TestAFaultRefusesNoHealthCheck, nor does one that can't be read: it is a warning's, and refuses none.
func TestAFaultRefusesNoHealthCheck(t *testing.T) {
	w := newWorld(t, outside, append(append(fleet(t), machines()...), keep())...)
	unread := w.ask(made(t, func(spec map[string]any) { spec["checks"] = map[string]any{"nodeStartupTimeoutSeconds": "600s"} }))
	w.guard.Cached = nil // which panics
	for _, got := range []answer{unread, w.ask(made(t))} {
		require.True(t, got.allowed, got.says)
		require.Equal(t, string(unjudged), got.AuditAnnotations["outcome"])
		require.Contains(t, got.says, "could not tell")
	}
	require.Equal(t, 2., testutil.ToFloat64(w.guard.Metrics.edits.WithLabelValues(healthCheckKind, string(unjudged))))
}

func TestAHealthCheckThatIsNotJudgedIsSaidSo(t *testing.T) {
	w := newWorld(t, outside, append(append(fleet(t), machines()...), keep())...)
	w.guard.Cached = broken{w}
	got := w.ask(made(t))
	require.True(t, got.allowed)
	require.Equal(t, string(unjudged), got.AuditAnnotations["outcome"])
	require.Contains(t, got.says, "could not tell")
}

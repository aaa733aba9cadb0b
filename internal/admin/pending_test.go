package admin

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/printer"
)

func pendingChange(namespace, cluster string, owner refitv1.PendingOwner, role refitv1.Role, cause refitv1.PendingCause, message string, machines ...refitv1.PendingMachine) *refitv1.PendingChange {
	p := &refitv1.PendingChange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: owner.Kind + "-" + owner.Name, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster}}}
	p.Spec = refitv1.PendingChangeSpec{Cluster: cluster, Owner: owner, Role: role}
	p.Status = refitv1.PendingChangeStatus{Machines: int32(len(machines)), List: machines, Causes: []refitv1.PendingCount{{Cause: cause, Machines: int32(len(machines))}}}
	p.Status.Conditions = []metav1.Condition{{Type: refitv1.ChangePendingCondition, Status: metav1.ConditionTrue, Reason: string(cause), Message: message}}
	return p
}

// waiting are a change that a window holds back, with an estimate, and one that nobody knows the end of.
func waiting() []client.Object {
	at := func(d time.Duration) *metav1.Time { return new(metav1.NewTime(start.Add(d))) }
	workers := pendingChange("fleet", "prod", refitv1.PendingOwner{Kind: "MachineDeployment", Name: "md"}, refitv1.WorkerRole, refitv1.PendingReplacement, "2 to be replaced;\npolicy a: OutsideWindow",
		refitv1.PendingMachine{Name: "w1", Cause: refitv1.PendingReplacement, Reason: "OutsideWindow", EarliestStart: at(time.Hour)},
		refitv1.PendingMachine{Name: "w2", Cause: refitv1.PendingReplacement, Reason: "OutsideWindow", EarliestStart: at(2 * time.Hour)})
	workers.Status.EarliestStart, workers.Status.LastDone, workers.Status.More = at(time.Hour), at(3*time.Hour), 5
	cluster := pendingChange("fleet", "prod", refitv1.PendingOwner{Kind: "Cluster", Name: "prod"}, "", refitv1.PendingReplacement, "2 to be replaced", workers.Status.List...)
	other := pendingChange("lab", "test", refitv1.PendingOwner{Kind: "KubeadmControlPlane", Name: "cp"}, refitv1.ControlPlaneRole, refitv1.PendingUpgrade, "1 to be upgraded", refitv1.PendingMachine{Name: "cp1"})
	return []client.Object{workers, cluster, other}
}

func TestPending(t *testing.T) {
	for name, tc := range map[string]struct {
		scope  Scope
		format string
		want   string
	}{
		"a namespace": {Scope{Namespace: "fleet"}, printer.Table, `OWNER                 CAUSE        MACHINES  EARLIEST              LAST DONE             REASON
Cluster/prod          Replacement  2         -                     -                     2 to be replaced
MachineDeployment/md  Replacement  2         2026-10-03T21:00:00Z  2026-10-03T23:00:00Z  2 to be replaced; policy a: OutsideWindow
`},
		"all namespaces, of one cluster": {Scope{Cluster: "test"}, printer.Table, `NAMESPACE  OWNER                   CAUSE    MACHINES  EARLIEST  LAST DONE  REASON
lab        KubeadmControlPlane/cp  Upgrade  1         -         -          1 to be upgraded
`},
		"with the Machines": {Scope{Namespace: "fleet"}, printer.Wide, `OWNER                 CAUSE        MACHINES  EARLIEST              LAST DONE             REASON
Cluster/prod          Replacement  2         -                     -                     2 to be replaced
MachineDeployment/md  Replacement  2         2026-10-03T21:00:00Z  2026-10-03T23:00:00Z  2 to be replaced; policy a: OutsideWindow
- Machine/w1          Replacement            2026-10-03T21:00:00Z                        OutsideWindow
- Machine/w2          Replacement            2026-10-03T22:00:00Z                        OutsideWindow
- and 5 more
`},
		"nothing": {Scope{Namespace: "empty"}, printer.Table, "nothing waits in namespace empty\n"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, waiting()...)
			require.NoError(t, (&Pending{Client: w, Out: &w.out, Scope: tc.scope, Format: tc.format}).Show(t.Context()))
			require.Equal(t, tc.want, w.out.String())
		})
	}
}

func TestPendingForPrograms(t *testing.T) {
	for format, decode := range map[string]func([]byte, any) error{
		printer.JSON: json.Unmarshal, printer.YAML: func(data []byte, into any) error { return yaml.Unmarshal(data, into) },
	} {
		for namespace, n := range map[string]int{"fleet": 2, "": 3, "empty": 0} {
			w := newWorld(t, waiting()...)
			require.NoError(t, (&Pending{Client: w, Out: &w.out, Scope: Scope{Namespace: namespace}, Format: format}).Show(t.Context()))
			var list refitv1.PendingChangeList
			require.NoError(t, decode(w.out.Bytes(), &list))
			require.Equal(t, "PendingChangeList", list.Kind)
			require.NotNil(t, list.Items, "no list is no empty one")
			require.Len(t, list.Items, n)
			for _, p := range list.Items {
				require.Equal(t, "PendingChange", p.Kind)
				require.NotEmpty(t, p.Status.List)
			}
		}
	}
}

package slots

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

func soaks(mu *refitv1.MachineUpdate) {
	mu.Status.Phase, mu.Status.SoakingSince = refitv1.PhaseApplying, &metav1.Time{Time: start}
}

func TestNoNextNodeWhileOneSoaks(t *testing.T) {
	const waits = "node node-b is watched until its soak has ended (MachineUpdate b), and no next node of the cluster is taken before that"
	verifies := func(mu *refitv1.MachineUpdate) {
		mu.Status.Phase, mu.Status.Step = refitv1.PhaseApplying, "verify"
	}
	silent := func(mu *refitv1.MachineUpdate) {
		mu.Status.Phase, mu.Status.Reason = refitv1.PhaseWaiting, refitv1.ReasonUnreachable
	}
	led := func(mu *refitv1.MachineUpdate) { mu.Status.Step = "apply" }
	for name, tc := range map[string]struct {
		objects []client.Object // besides worker a, which asks
		want    string
	}{
		"a worker":                {join(with(worker("b"), holds, soaks), others(8)), waits},
		"a control plane":         {join(with(controlPlane("b"), holds, soaks), others(8)), waits},
		"two":                     {join(with(worker("c"), holds, soaks), with(worker("b"), holds, soaks), others(20)), waits},
		"one that fell silent":    {join(with(worker("b"), holds, soaks, silent), others(8)), waits},
		"one of another leader":   {join(with(worker("b"), holds, soaks, led), others(8)), waits},
		"one that was moved":      {join(with(worker("b"), holds, soaks, recorded), others(8)), waits},
		"one that still works":    {join(with(worker("b"), holds, verifies), others(8)), ""},
		"one that failed then":    {join(with(worker("b"), holds, soaks, fails), others(8)), ""},
		"one that has no slot":    {join(with(worker("b"), soaks), others(8)), ""},
		"one of another cluster":  {join(with(worker("b", elsewhere), holds, soaks), others(8)), ""},
		"and no room in any case": {join(with(worker("b"), holds, soaks), others(2)), "workers: 1 of 4 nodes may be out at once (--max-unavailable-workers 20%), and these are: b (updating)"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Limits{}, join(all(worker("a")), tc.objects)...)
			require.Equal(t, tc.want, w.take("a"))
		})
	}
	t.Run("what is down is mended", func(t *testing.T) {
		for _, tc := range []struct {
			self *clusterv1.Machine
			want string
		}{
			{worker("sick", notReady), ""},
			{controlPlane("out", memberDown), ""},
			{worker("under-pressure", condition(healthy, metav1.ConditionFalse)), waits},
			{worker("new", notReady, noNode), waits},
			{controlPlane("alarm", ill), waits},
			{controlPlane("silent", notReady), waits},
		} {
			w := newWorld(t, atMost(9), join(all(tc.self), with(worker("b"), holds, soaks), all(controlPlane("x"), controlPlane("y")), others(18))...)
			require.Equal(t, tc.want, w.take(tc.self.Name), tc.self.Name)
		}
	})
	t.Run("those that have slots go on", func(t *testing.T) {
		w := newWorld(t, Limits{}, join(with(worker("a"), holds), with(worker("b"), holds, soaks), others(18))...)
		for _, ask := range []func() (*Full, error){
			func() (*Full, error) { return w.slots.MayBegin(t.Context(), get(w, "a", &clusterv1.Machine{}), w) },
			func() (*Full, error) { return w.slots.MayGoOn(t.Context(), get(w, "a", &clusterv1.Machine{}), w) },
		} {
			full, err := ask()
			require.NoError(t, err)
			require.Nil(t, full)
		}
	})
}

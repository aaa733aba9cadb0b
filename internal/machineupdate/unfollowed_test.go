package machineupdate

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/nodedisruption"
)

func TestALoginIsConfirmedForWorkThatNobodyFollows(t *testing.T) {
	w, d := awaitingWorld(t, awaitsLogin, goesOn)
	var machine clusterv1.Machine
	require.NoError(t, w.Get(t.Context(), key, &machine))
	u := &update{Reconciler: w.reconciler, mu: w.update(), regarding: &machine}
	status, known := u.lastOnNode(t.Context(), &machine)
	require.True(t, known)
	require.True(t, underWay(status), "it ends before the node is left")
	require.Equal(t, []string{"1 status", "2 confirm"}, d.asked)
}

// TestALoginIsConfirmedForSpecsFromBefore has other specs be asked for while the work for those from before waits for a login.
func TestALoginIsConfirmedForSpecsFromBefore(t *testing.T) {
	for name, plan := range map[string]node.Plan{
		"while those wait for its end": drainA,
		"while those are blocked":      {Blocked: []node.Problem{{Path: "/etc/app/a", Reason: "it is a directory"}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := cutOff(t, drainA)
			d := &loginDialer{fakeNode: w.node}
			w.reconciler.Dialer = d
			before := w.update().Spec.Digest
			w.change()
			w.ask()
			require.NotEqual(t, before, w.update().Spec.Digest)
			awaits, on := awaitsLogin, goesOn
			awaits.Digest, on.Digest = before, before
			w.node.plans, w.node.applied = []node.Plan{plan}, []node.Status{on}
			w.node.before = func(verb string) {
				w.node.err = nil
				if verb == "apply" {
					w.node.err = &node.AgentError{Reason: node.ReasonBusy, Message: "a run for other specs is under way"}
				}
			}
			w.reconcile()
			require.Equal(t, refitv1.PhaseWaiting, w.update().Status.Phase)
			require.Empty(t, d.confirmed, "nothing waits for one yet")

			w.node.applied = []node.Status{awaits, on}
			w.clock.Step(time.Minute)
			w.reconcile()
			require.Equal(t, refitv1.PhaseWaiting, w.update().Status.Phase)
			require.Len(t, d.confirmed, 1)
			require.Equal(t, []node.StatusRequest{{
				Protocol: node.Protocol, Machine: d.confirmed[0].Machine, Digest: before, Token: 1234, Confirm: true,
			}}, d.confirmed)
		})
	}
}

// TestALoginIsConfirmedWhateverTheUpdateWaitsFor has something else keep an update from its node while the work there waits for a login.
func TestALoginIsConfirmedWhateverTheUpdateWaitsFor(t *testing.T) {
	unreadable := errors.New("the policies can't be listed")
	for name, tc := range map[string]struct {
		meets  func(*world)
		reason string // that it shows then, if that is another
		err    error
	}{
		"the specs are gone": {func(w *world) {
			var config bootstrapv1.KubeadmConfig
			require.NoError(w.t, w.Get(w.t.Context(), key, &config))
			require.NoError(w.t, w.Delete(w.t.Context(), &config))
		}, refitv1.ReasonSpecs, nil},
		"a policy is invalid": {func(w *world) {
			w.reconciler.Disruptions = failing(&nodedisruption.InvalidError{Policy: "strict", Err: errors.New("it is empty")})
		}, refitv1.ReasonBlocked, nil},
		"policies can't be read":                           {func(w *world) { w.reconciler.Disruptions = failing(unreadable) }, "", unreadable},
		"the Cluster can't be read":                        {func(w *world) { w.reconciler.Live = withoutClusters{w.reconciler.Live} }, "", errNoCluster},
		"the node is held":                                 {func(w *world) { w.hold(true) }, refitv1.ReasonHold, nil},
		"it is held for very long":                         {func(w *world) { w.hold(true); w.clock.Step(lease.WorkerDuration) }, refitv1.ReasonHold, nil},
		"the Cluster is paused":                            {func(w *world) { w.pause(true) }, refitv1.ReasonPaused, nil},
		"the MachineUpdate of a paused Cluster is deleted": {func(w *world) { w.pause(true); w.deleteUpdate() }, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := cutOff(t, drainA)
			d := &loginDialer{fakeNode: w.node}
			w.reconciler.Dialer, w.reconciler.ConfirmRetry = d, time.Nanosecond
			w.node.err, w.node.before = nil, nil
			w.node.applied = []node.Status{awaitsLogin, goesOn}
			tc.meets(w)
			_, err := w.reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
			require.ErrorIs(t, err, tc.err)
			if tc.reason != "" {
				require.Equal(t, tc.reason, w.requirePhase(refitv1.PhaseWaiting).Reason)
			}
			require.Len(t, d.confirmed, 1)
		})
	}
}

// TestARunThatItsNodeTakesUpHasNotEnded has somebody hold a node that has just booted, before its timer has taken its run up.
func TestARunThatItsNodeTakesUpHasNotEnded(t *testing.T) {
	w := cutOff(t, rebootA)
	d := &loginDialer{fakeNode: w.node}
	w.reconciler.Dialer, w.reconciler.ConfirmRetry = d, time.Nanosecond
	w.hold(true)
	w.node.err, w.node.before = nil, nil
	w.node.applied = []node.Status{{State: node.Running, Interrupted: true, Resumes: true}}
	w.reconcile()
	require.Contains(t, w.update().Status.Message, "work is under way on the node")
	w.node.applied = []node.Status{awaitsLogin}
	w.clock.Step(10 * time.Second)
	w.reconcile()
	require.Len(t, d.confirmed, 1)
}

// withoutClusters is an API server that can't read Clusters.
type withoutClusters struct{ client.Reader }

var errNoCluster = errors.New("etcdserver: request timed out")

func (r withoutClusters) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if _, ok := obj.(*clusterv1.Cluster); ok {
		return errNoCluster
	}
	return r.Reader.Get(ctx, key, obj, opts...)
}

package machineupdate

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
)

// halfWay has the node be at work when the server loses sight of it.
func (w *world) halfWay() {
	w.t.Helper()
	w.ask()
	w.node.plans = []node.Plan{writeA}
	w.node.applied = []node.Status{{State: node.Running, Step: "write", Done: 1, Total: 9}}
	w.node.before = func(verb string) {
		if verb == "status" {
			w.node.err = &node.AgentError{Reason: node.ReasonBusy, Message: "the connection is lost"}
		}
	}
	w.reconcile()
	w.node.before, w.node.err = nil, nil
	require.NotNil(w.t, w.update().Status.ApplyingSince)
}

// setContent changes the content of the file in the specs.
func (w *world) setContent(content string) {
	w.t.Helper()
	var config bootstrapv1.KubeadmConfig
	require.NoError(w.t, w.Get(w.t.Context(), key, &config))
	config.Spec.Files[0].Content = content
	require.NoError(w.t, w.Update(w.t.Context(), &config))
}

// failingHosts can't read KnownHosts.
type failingHosts struct{ client.Reader }

func (f failingHosts) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if _, ok := obj.(*refitv1.KnownHost); ok {
		return apierrors.NewInternalError(errors.New("etcdserver: leader changed"))
	}
	return f.Reader.Get(ctx, key, obj, opts...)
}

// A node that can't be asked once may still be at work: it is not given up before it has answered, or its lease has lapsed.
func TestWithdrawalWaitsForANodeThatCanNotBeAsked(t *testing.T) {
	for name, spoil := range map[string]func(*world) (mend func()){
		"it does not answer": func(w *world) func() {
			w.node.dialErr = errors.Join(remote.ErrUnreachable, errors.New("i/o timeout"))
			return func() { w.node.dialErr = nil }
		},
		"its host key can't be read": func(w *world) func() {
			live := w.reconciler.Live
			w.reconciler.Live = failingHosts{live}
			return func() { w.reconciler.Live = live }
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.halfWay()
			w.mark(false)
			mend := spoil(w)
			w.reconcile()
			st := w.update().Status
			require.NotEqual(t, refitv1.PhaseFailed, st.Phase, st.Message)
			require.NotEmpty(t, *w.leaseOf().Spec.HolderIdentity, "the lease is kept")

			mend()
			w.node.applied = []node.Status{succeeded}
			w.reconcile()
			st = w.update().Status
			require.Equal(t, refitv1.PhaseFailed, st.Phase, st.Message)
			require.Equal(t, refitv1.ReasonWithdrawn, st.Reason)
			w.requireFree(false)
		})
	}
}

// What a node had before it was changed says nothing about it afterwards, whatever became of the change.
func TestNobodyIsToldThatANodeHasWhatItHadBefore(t *testing.T) {
	w := newWorld(t)
	before := w.succeed()
	w.change()
	w.mark(true)
	w.halfWay()
	require.Empty(t, w.update().Status.AppliedDigest)

	w.setContent("three\n")
	w.ask() // supersedes what is under way
	w.node.applied = []node.Status{
		{State: node.Succeeded, Digest: "of-the-second", Token: 2},
		{State: node.Failed, Token: 3, RolledBack: true, Message: "the unit does not start"},
	}
	w.reconcile()
	w.reconcile()
	w.mark(false)
	mu := w.update()
	mu.Annotations = map[string]string{refitv1.RetryAnnotation: "1"}
	require.NoError(t, w.Update(t.Context(), mu))
	w.reconcile()
	require.Equal(t, refitv1.PhaseFailed, w.update().Status.Phase)

	w.setContent(secretContent + "\n")
	require.Equal(t, before, w.digest())
	w.mark(true)
	w.node.calls = nil
	require.False(t, w.ask(), "the node has not been asked")
}

// An earlier version of refit kept host keys in the status. Withdrawn or not, the key stays known.
func TestAWithdrawnUpdateLeavesTheHostKey(t *testing.T) {
	w := newWorld(t)
	w.ask()
	mu := w.update()
	mu.Status.HostKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGenuine"
	require.NoError(t, w.Status().Update(t.Context(), mu))
	w.mark(false)
	w.reconcile()
	w.requireGone()
	var known refitv1.KnownHost
	require.NoError(t, w.Get(t.Context(), key, &known))
	require.Equal(t, "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGenuine", known.Spec.HostKey)
}

// TestOnlyWhatHasChangedTheNodeCountsAsAStart withdraws updates after they have failed, and after another try was asked for, too.
func TestOnlyWhatHasChangedTheNodeCountsAsAStart(t *testing.T) {
	undrained := func(t *testing.T) *world {
		w := drainingForAMinute(t)
		w.clock.Step(time.Minute)
		w.reconcile()
		require.Equal(t, "DrainTimedOut", w.requirePhase(refitv1.PhaseFailed).Reason)
		return w
	}
	for name, tc := range map[string]struct {
		begin  func(*testing.T) *world
		starts int
	}{
		"a node that was not drained in time": {undrained, 0},
		"a node that was put back":            {func(t *testing.T) *world { return failed(t, true) }, 1},
		"a node that may be half changed":     {func(t *testing.T) *world { return failed(t, false) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			for _, tried := range []bool{false, true} {
				w := tc.begin(t)
				require.Len(t, w.update().Status.Starts, tc.starts)
				w.annotate(refitv1.RetryAnnotation)
				if tried {
					w.hold(true)
					w.reconcile()
					w.requireWaiting(refitv1.ReasonHold, "")
				}
				w.mark(false)
				w.reconcile()
				var mu refitv1.MachineUpdate
				if err := w.Get(t.Context(), key, &mu); tc.starts == 0 {
					require.True(t, apierrors.IsNotFound(err), "nothing is known but that it was asked for")
				} else {
					require.NoError(t, err)
					require.Len(t, mu.Status.Starts, tc.starts)
				}
			}
		})
	}
}

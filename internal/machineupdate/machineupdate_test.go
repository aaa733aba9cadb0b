package machineupdate

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/internal/workload"
	"github.com/capi-refit/refit/internal/workload/workloadtest"
)

func TestUpdateIsMadeOnceAndThenDone(t *testing.T) {
	w := newWorld(t)
	w.node.plans = []node.Plan{writeA, {Drift: []node.Drift{{Ref: node.FileRef("/etc/app/b"), What: []string{"content"}}}}}
	w.node.applied = []node.Status{{State: node.Running, Step: "write /etc/app/a", Done: 1, Total: 2}, succeeded}

	done := w.ask()
	require.False(t, done)
	require.Zero(t, w.reconcile().RequeueAfter)
	require.Equal(t, []string{"plan", "apply", "status", "plan"}, w.node.calls)

	mu := w.update()
	require.Equal(t, refitv1.PhaseSucceeded, mu.Status.Phase)
	require.Equal(t, []refitv1.Change{{Kind: "File", Name: "/etc/app/a", Operation: "Write"}}, mu.Status.Changes)
	require.Equal(t, []string{"None"}, mu.Status.Actions)
	require.Contains(t, mu.Status.Notes[0], "/etc/app/b was changed on the node")
	require.Equal(t, int32(1), mu.Status.Attempts)
	require.Equal(t, "192.0.2.1:22", mu.Status.Address)
	require.Equal(t, "m1", mu.OwnerReferences[0].Name)
	require.Equal(t, metav1.ConditionTrue, mu.Status.Conditions[0].Status)

	done = w.ask()
	require.True(t, done)
	w.reconcile()
	require.Len(t, w.node.calls, 4, "a finished update is not made again")
}

func TestWhatAnUpdateWaitsFor(t *testing.T) {
	for name, tc := range map[string]struct {
		arrange func(*world)
		reason  string
		message string
	}{
		"no NodeAccess": {func(w *world) {
			require.NoError(t, w.Delete(t.Context(), &refitv1.NodeAccess{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "all"}}))
		}, refitv1.ReasonNodeAccess, "no NodeAccess in namespace lab selects Machine m1"},
		"two NodeAccesses": {func(w *world) {
			two := &refitv1.NodeAccess{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "too"}}
			require.NoError(t, w.Create(t.Context(), two))
		}, refitv1.ReasonNodeAccess, "the NodeAccesses all, too all select Machine m1"},
		"no key": {func(w *world) {
			require.NoError(t, w.Update(t.Context(), withoutKey(w)))
		}, refitv1.ReasonNodeAccess, `NodeAccess all: spec.ssh.privateKeySecretRef: the Secret lab/other has no key`},
		"an address that is none": {func(w *world) {
			w.machine(func(m *clusterv1.Machine) { m.Annotations = map[string]string{refitv1.AddressAnnotation: "a:b:c"} })
		}, refitv1.ReasonNodeAccess, "capi-refit.dev/address"},
		"a node that is not reachable": {func(w *world) { w.node.dialErr = errRefused }, refitv1.ReasonUnreachable, "connection refused"},
		"a wrong host key": {func(w *world) {
			w.node.dialErr = &remote.DialError{Attempts: []remote.Attempt{{Address: "192.0.2.1:22", Err: &remote.HostKeyError{Host: "192.0.2.1:22", Want: "X"}}}}
		}, refitv1.ReasonHostKey, "nothing was sent to it"},
		"a login that is refused":  {func(w *world) { w.node.dialErr = remote.ErrUnauthorized }, refitv1.ReasonNodeAccess, "refuses the login"},
		"a connection that breaks": {func(w *world) { w.node.dialErr = remote.ErrConnectionLost }, refitv1.ReasonUnreachable, "connection lost"},
		"a plan that is blocked": {func(w *world) {
			w.node.plans = []node.Plan{{Blocked: []node.Problem{{Path: "/etc/app/a", Reason: "it is a directory"}}}}
		}, refitv1.ReasonBlocked, "/etc/app/a: it is a directory"},
		"an earlier run": {func(w *world) { w.node.err = &node.AgentError{Reason: node.ReasonBusy, Message: "busy"} }, refitv1.ReasonBusy, "busy"},
		"another machine's node": {func(w *world) {
			w.node.err = &node.AgentError{Reason: node.ReasonOtherMachine, Message: "this is the node of m2"}
		}, refitv1.ReasonBlocked, "this is the node of m2"},
		"a full disk": {func(w *world) { w.node.err = &node.AgentError{Reason: node.ReasonInternal, Message: "no space left"} }, refitv1.ReasonAgent, "no space left"},
		"an infrastructure machine that is not there": {func(w *world) {
			w.machine(func(m *clusterv1.Machine) { m.Spec.InfrastructureRef.Name = "gone" })
		}, refitv1.ReasonSpecs, `the desired specs can't be read, so that the node is not touched: read KubeadmConfig gone`},
		"a paused Machine": {func(w *world) {
			w.machine(func(m *clusterv1.Machine) { m.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })
		}, refitv1.ReasonPaused, "paused"},
		"a Machine that goes": {func(w *world) {
			w.machine(func(m *clusterv1.Machine) { m.Finalizers = []string{"x/y"} })
			require.NoError(t, w.Delete(t.Context(), &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "m1"}}))
		}, refitv1.ReasonDeleting, "not touched any more"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.ask()
			tc.arrange(w)
			require.Positive(t, w.reconcile().RequeueAfter)
			mu := w.update()
			require.Equal(t, refitv1.PhaseWaiting, mu.Status.Phase)
			require.Equal(t, tc.reason, mu.Status.Reason)
			require.Contains(t, mu.Status.Message, tc.message)
			require.NotContains(t, w.node.calls, "apply")
			p := progressOf(mu, managementtest.Start)
			require.False(t, p.Done)
			require.Equal(t, retryWaiting, p.RetryAfter)
		})
	}
}

// withoutKey returns the NodeAccess with a Secret that lacks the key.
func withoutKey(w *world) *refitv1.NodeAccess {
	require.NoError(w.t, w.Create(w.t.Context(), secret("other")))
	var access refitv1.NodeAccess
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Namespace: "lab", Name: "all"}, &access))
	access.Spec.SSH.PrivateKeySecretRef.Name = "other"
	return &access
}

func TestMachineThatIsGone(t *testing.T) {
	w := newWorld(t)
	w.ask()
	require.NoError(t, w.Delete(t.Context(), &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "m1"}}))
	require.Zero(t, w.reconcile(), "the MachineUpdate goes with it")
	require.Empty(t, w.node.calls)
}

func TestWaitingEndsByItself(t *testing.T) {
	w := newWorld(t)
	w.ask()
	w.node.dialErr = errRefused
	w.reconcile()
	w.reconcile()
	require.Len(t, w.events.Events, 1, "the same news is told once")
	w.node.dialErr, w.node.plans, w.node.applied = nil, []node.Plan{writeA, {}}, []node.Status{succeeded}
	w.reconcile()
	require.Equal(t, refitv1.PhaseSucceeded, w.update().Status.Phase)
}

// TestWhatWaitsShowsForWhat has an update that waits look again: it is told of once, and until it has begun counts as one that waits.
func TestWhatWaitsShowsForWhat(t *testing.T) {
	for name, tc := range map[string]struct {
		plans  []node.Plan
		reason string
	}{
		"before it has begun": {[]node.Plan{{Blocked: []node.Problem{{Path: "/etc/app/a", Reason: "it is a directory"}}}}, refitv1.ReasonBlocked},
		"when all is done":    {[]node.Plan{restartA, settled}, refitv1.ReasonNode},
	} {
		t.Run(name, func(t *testing.T) {
			w := under(t, restartA)
			w.node.plans = tc.plans
			n := w.clusterNode()
			workloadtest.Ready(corev1.ConditionFalse)(n)
			require.NoError(t, w.workload.Client.Status().Update(t.Context(), n))
			w.reconcile()
			require.Equal(t, tc.reason, w.requirePhase(refitv1.PhaseWaiting).Reason)
			told, looked := len(w.events.Events), false
			w.node.before = func(string) {
				looked = true
				if w.update().Status.Attempts == 0 {
					require.Equal(t, tc.reason, w.requirePhase(refitv1.PhaseWaiting).Reason)
				}
			}
			w.reconcile()
			require.True(t, looked)
			require.Equal(t, tc.reason, w.requirePhase(refitv1.PhaseWaiting).Reason)
			require.Len(t, w.events.Events, told, "the same news is told once")
		})
	}
}

// TestWhatIsSilentIsAskedLessAndLessOften as long as nothing was begun; a node that may be half changed is asked as before.
func TestWhatIsSilentIsAskedLessAndLessOften(t *testing.T) {
	w := newWorld(t)
	w.ask()
	w.node.dialErr = errRefused
	for _, step := range []struct{ after, want time.Duration }{
		{0, retryDefault}, {30 * time.Second, retryDefault}, {30 * time.Second, 15 * time.Second}, {time.Hour, retrySilent},
	} {
		w.clock.Step(step.after)
		require.Equal(t, step.want, w.reconcile().RequeueAfter)
	}
	w.node.dialErr, w.workload.Err = nil, workload.ErrUnavailable
	require.Equal(t, retrySilent, w.reconcile().RequeueAfter)
	w.workload.Err, w.node.plans = nil, []node.Plan{{Blocked: []node.Problem{{Path: "/etc/app/a", Reason: "it is a directory"}}}}
	w.reconcile()
	w.node.dialErr = errRefused
	require.Equal(t, retryDefault, w.reconcile().RequeueAfter, "it has answered meanwhile")

	w = under(t, restartA, nightly()) // while a window is closed as well
	w.node.dialErr = errRefused
	w.reconcile()
	w.clock.Step(time.Minute)
	require.Equal(t, 15*time.Second, w.reconcile().RequeueAfter)
	require.Equal(t, refitv1.ReasonWindow, w.update().Status.Reason)
	w.clock.Step(24 * time.Hour)
	w.change()
	w.ask()
	require.Equal(t, retryDefault, w.reconcile().RequeueAfter, "other specs")

	w = planned(t, drainA) // a node that is drained is missed
	w.withPod()
	w.reconcile()
	w.requirePhase(refitv1.PhaseDraining)
	w.node.dialErr = errRefused
	for range 3 {
		require.Equal(t, retryDefault, w.reconcile().RequeueAfter)
		w.clock.Step(time.Minute)
	}

	w = newWorld(t)
	w.halfWay()
	w.node.dialErr = errRefused
	for range 3 {
		require.Equal(t, retryDefault, w.reconcile().RequeueAfter)
		w.clock.Step(5 * time.Minute)
	}
}

func TestFailedIsTriedAgainWhenAsked(t *testing.T) {
	w := newWorld(t)
	w.ask()
	w.node.plans = []node.Plan{writeA}
	w.node.applied = []node.Status{{State: node.Failed, Message: "restart x.service failed", RolledBack: true}}
	require.Zero(t, w.reconcile())
	mu := w.update()
	require.Equal(t, refitv1.PhaseFailed, mu.Status.Phase)
	require.Contains(t, mu.Status.Message, "restart x.service failed")
	require.Contains(t, mu.Status.Message, "refit retry -n lab m1")
	done := w.ask()
	require.False(t, done)

	calls := len(w.node.calls)
	require.Zero(t, w.reconcile())
	require.Len(t, w.node.calls, calls, "not without being asked")

	mu.Annotations = map[string]string{refitv1.RetryAnnotation: "1"}
	require.NoError(t, w.Update(t.Context(), mu))
	w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
	w.reconcile()
	require.Equal(t, refitv1.PhaseSucceeded, w.update().Status.Phase)
	require.Greater(t, w.node.tokens[1], w.node.tokens[0], "each attempt has a higher token")
}

func TestNotDoneBeforeTheNodeShowsIt(t *testing.T) {
	for message, after := range map[string]node.Plan{
		"the node does not show what was applied": writeA,
		"something on the node changes it":        {Drift: []node.Drift{{Ref: node.FileRef("/etc/app/a"), What: []string{"content"}}}},
	} {
		w := newWorld(t)
		w.ask()
		w.node.plans, w.node.applied = []node.Plan{writeA, after}, []node.Status{succeeded}
		w.reconcile()
		require.Equal(t, refitv1.PhaseFailed, w.update().Status.Phase)
		require.Contains(t, w.update().Status.Message, message)
	}
}

// TestAPartThatTheSpecsDidNotChangeIsLeft: of a user who gets a key, the password that he has changed himself, for example.
func TestAPartThatTheSpecsDidNotChangeIsLeft(t *testing.T) {
	w := newWorld(t)
	w.ask()
	alice := node.Ref{Kind: node.UserKind, Name: "alice"}
	done := node.Status{State: node.Succeeded, Changes: []node.Change{{Ref: alice, Operation: node.Write}}}
	drift := []node.Drift{{Ref: alice, What: []string{"password"}}}
	w.node.plans = []node.Plan{{Changes: done.Changes, Drift: drift}, {Drift: drift}}
	w.node.applied = []node.Status{done}
	w.reconcile()
	st := w.requirePhase(refitv1.PhaseSucceeded)
	require.Contains(t, st.Notes, "user alice was changed on the node (password) and not in the specs; it was left as it is")
}

func TestInterruptedWorkIsTakenUpAgain(t *testing.T) {
	w := newWorld(t)
	w.ask()
	w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{{State: node.Running, Interrupted: true}, succeeded}
	w.reconcile()
	require.Equal(t, []string{"plan", "apply", "apply", "plan"}, w.node.calls)
	require.Equal(t, refitv1.PhaseSucceeded, w.update().Status.Phase)
}

func TestWorkForOtherSpecsEndsFirst(t *testing.T) {
	w := newWorld(t)
	w.ask()
	w.node.plans, w.node.applied = []node.Plan{writeA}, []node.Status{{State: node.Running, Digest: "another"}}
	w.reconcile()
	require.Equal(t, refitv1.ReasonBusy, w.update().Status.Reason)
}

func TestOtherSpecsWhileWaiting(t *testing.T) {
	w := newWorld(t)
	w.ask()
	w.node.dialErr = errRefused
	w.reconcile()
	first := w.update().Spec.Digest
	w.change()
	w.reconcile()
	require.Equal(t, refitv1.ReasonSpecs, w.update().Status.Reason, "the specs that Cluster API asked for are gone")
	w.ask()
	require.NotEqual(t, first, w.update().Spec.Digest)
	w.node.dialErr, w.node.plans, w.node.applied = nil, []node.Plan{writeA, {}}, []node.Status{succeeded}
	w.reconcile()
	require.Equal(t, w.update().Spec.Digest, w.update().Status.ObservedDigest)
	require.Equal(t, refitv1.PhaseSucceeded, w.update().Status.Phase)
}

func TestDoneIsNotAnsweredForOtherSpecs(t *testing.T) {
	w := newWorld(t)
	w.ask()
	w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
	w.reconcile()
	w.change()
	done := w.ask()
	require.False(t, done)
	done = w.ask()
	require.False(t, done, "what is known is about the specs before")
}

func TestDoneIsNotAnsweredOutOfAStaleCache(t *testing.T) {
	w := newWorld(t)
	w.ask()
	w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
	w.reconcile()
	digest := w.digest()
	stale := newWorld(t) // as the cache was: nothing but this MachineUpdate is read from it
	mu := w.update()
	mu.ResourceVersion = ""
	require.NoError(t, stale.Create(t.Context(), mu.DeepCopy()))
	mu = w.update()
	mu.Spec.Digest = "another"
	require.NoError(t, w.Update(t.Context(), mu))
	p, err := (&Store{Client: stale, Live: w, Clock: w.clock}).Update(t.Context(), key.Namespace, key.Name, digest)
	require.NoError(t, err)
	require.False(t, p.Done)
}

func TestMachineUpdateOfAnEarlierMachine(t *testing.T) {
	w := newWorld(t)
	w.ask()
	mu := w.update()
	mu.OwnerReferences[0].UID = "uid-0"
	mu.Status.Phase, mu.Status.ObservedDigest = refitv1.PhaseSucceeded, mu.Spec.Digest
	require.NoError(t, w.Update(t.Context(), mu))
	done := w.ask()
	require.False(t, done, "the Machine before this one was updated, not this one")
	w.reconcile()
	w.ask()
	require.Equal(t, "uid-1", string(w.update().OwnerReferences[0].UID))
}

func TestLostRaceOfTwoLeaders(t *testing.T) {
	w := newWorld(t)
	w.ask()
	w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
	mu := w.update()
	other := w.update()
	other.Status.Instance = "refit-1"
	require.NoError(t, w.Status().Update(t.Context(), other))
	u := &update{Reconciler: w.reconciler, mu: mu}
	_, err := u.run(t.Context())
	require.Error(t, err, "somebody else has written")
	require.Empty(t, w.node.calls, "the node is not touched")
}

func TestHostKeyIsRecordedBeforeAnythingIsSent(t *testing.T) {
	w := newWorld(t)
	w.ask()
	mu := w.update()
	u := &update{Reconciler: w.reconciler, mu: mu}
	require.NoError(t, u.begin(t.Context()))
	require.NoError(t, u.set(t.Context(), func(s *refitv1.MachineUpdateStatus) { s.HostKey = "ssh-ed25519 AAAA" }))
	require.Equal(t, "ssh-ed25519 AAAA", w.update().Status.HostKey)
	w.change()
	w.ask()
	u = &update{Reconciler: w.reconciler, mu: w.update()}
	require.NoError(t, u.begin(t.Context()))
	require.Equal(t, "ssh-ed25519 AAAA", w.update().Status.HostKey, "other specs do not make it another node")
}

func TestRetryAfter(t *testing.T) {
	for phase, want := range map[refitv1.Phase]time.Duration{
		refitv1.PhasePending: retrySoon, refitv1.PhaseStaging: retrySoon, refitv1.PhaseApplying: retryWorking,
		refitv1.PhaseVerifying: retrySoon, refitv1.PhaseWaiting: retryWaiting, refitv1.PhaseFailed: retryFailed,
	} {
		p := progressOf(&refitv1.MachineUpdate{Status: refitv1.MachineUpdateStatus{Phase: phase}}, managementtest.Start)
		require.False(t, p.Done, phase)
		require.Equal(t, want, p.RetryAfter, phase)
	}
	for waited, want := range map[time.Duration]time.Duration{
		0: retryWaiting, 2 * time.Minute: retryWaiting, 4*time.Minute + 4*time.Second: 30 * time.Second, time.Hour: retryWaitingAtMost, -time.Hour: retryWaiting,
	} {
		mu := &refitv1.MachineUpdate{Status: refitv1.MachineUpdateStatus{Phase: refitv1.PhaseWaiting, StartedAt: ptr.To(metav1.NewTime(managementtest.Start))}}
		require.Equal(t, want, progressOf(mu, managementtest.Start.Add(waited)).RetryAfter, waited)
	}
	for waited, want := range map[time.Duration]time.Duration{0: retryWaiting, 30 * time.Second: retryWaiting, time.Minute: 30 * time.Second, 2 * time.Minute: retryWaitingAtMost} {
		mu := &refitv1.MachineUpdate{Status: refitv1.MachineUpdateStatus{Phase: refitv1.PhaseWaiting, Reason: refitv1.ReasonWindow, StartedAt: ptr.To(metav1.NewTime(managementtest.Start))}}
		require.Equal(t, want, progressOf(mu, managementtest.Start.Add(waited)).RetryAfter, waited)
	}
	seen := map[time.Duration]bool{}
	for i := range 50 {
		mu := &refitv1.MachineUpdate{Status: refitv1.MachineUpdateStatus{Phase: refitv1.PhaseWaiting, Reason: refitv1.ReasonLease}}
		mu.Name = fmt.Sprint("m", i)
		after := progressOf(mu, managementtest.Start).RetryAfter
		require.True(t, after >= 15*time.Second && after <= time.Minute, after)
		require.Zero(t, after%time.Second, "Cluster API knows seconds only")
		seen[after] = true
	}
	require.Greater(t, len(seen), 10, "those who wait for a node don't ask together")
}

package machineupdate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/audit"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/schedule"
)

// restartA is a plan that disturbs the node.
var restartA = node.Plan{Changes: writeA.Changes, Actions: []disruption.Action{{Type: disruption.Restart, Unit: "app.service"}}}

// nightly is open from 22:00 to 23:00 UTC. The world's clock says 20:00.
func nightly() *refitv1.ChangeManagementPolicy {
	p := &refitv1.ChangeManagementPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "nightly"}}
	p.Spec.Strategy = schedule.MaintenanceScheduleStrategy
	p.Spec.MaintenanceSchedule = &schedule.MaintenanceSchedule{Permit: []schedule.Permit{{Recurrence: "FREQ=DAILY", StartTime: "22:00", Duration: "1h"}}}
	return p
}

// under has the world's machine be under policies, and an update be asked for.
func under(t *testing.T, plan node.Plan, policies ...*refitv1.ChangeManagementPolicy) *world {
	w := newWorld(t)
	for _, p := range policies {
		require.NoError(t, w.Create(t.Context(), p))
	}
	w.readPolicies()
	w.node.plans, w.node.applied = []node.Plan{plan, {}}, []node.Status{succeeded}
	require.False(t, w.ask())
	return w
}

// restart is what becomes of the server: another one with nothing but what is written down.
func (w *world) restart() {
	fresh := newGate(w.Client, w.policies, w.clock)
	w.reconciler.Gate = fresh
}

func permittedReason(mu *refitv1.MachineUpdate) string {
	if c := meta.FindStatusCondition(mu.Status.Conditions, refitv1.PermittedCondition); c != nil {
		return string(c.Status) + " " + c.Reason
	}
	return ""
}

func TestHeldUntilTheWindowOpens(t *testing.T) {
	w := under(t, restartA, nightly())
	w.node.plans = []node.Plan{restartA, restartA, {}}
	result := w.reconcile()
	mu := w.update()
	require.Equal(t, refitv1.PhaseWaiting, mu.Status.Phase)
	require.Equal(t, refitv1.ReasonWindow, mu.Status.Reason)
	require.Contains(t, mu.Status.Message, "policy nightly: OutsideWindow; opens at 2026-10-03T22:00:00Z")
	require.Contains(t, mu.Status.Message, "it takes: Restart app.service")
	require.Equal(t, "False OutsideWindow", permittedReason(mu))
	require.Positive(t, result.RequeueAfter)
	require.Equal(t, []string{"plan"}, w.node.calls, "the node is looked at once")

	for range 3 { // nobody connects again, and nothing is written
		w.reconcile()
	}
	require.Equal(t, []string{"plan"}, w.node.calls)
	require.Equal(t, mu.ResourceVersion, w.update().ResourceVersion)

	w.clock.SetTime(w.clock.Now().Add(2 * time.Hour))
	w.restart()
	w.reconcile()
	mu = w.update()
	require.Equal(t, refitv1.PhaseSucceeded, mu.Status.Phase)
	require.Equal(t, "True Open", permittedReason(mu))
	require.Equal(t, w.clock.Now().Unix(), mu.Status.Admission.AdmittedAt.Unix())
	require.Equal(t, "2026-10-03T22:00:00Z", mu.Status.Admission.Window.Start.UTC().Format(time.RFC3339))
	require.Equal(t, []string{"nightly"}, mu.Status.Admission.Policies)
	require.Len(t, mu.Status.Starts, 1)
	require.True(t, w.ask())
}

// TestHeldByThePlatform demands that nobody is told to annotate the Machine, which opens no policy of the platform.
func TestHeldByThePlatform(t *testing.T) {
	w := newWorld(t)
	platform := &refitv1.ClusterChangeManagementPolicy{ObjectMeta: metav1.ObjectMeta{Name: "platform"}}
	platform.Spec.Strategy = schedule.RestrictiveStrategy
	require.NoError(t, w.Create(t.Context(), platform))
	w.readPolicies()
	w.node.plans = []node.Plan{restartA}
	require.False(t, w.ask())
	w.reconcile()
	mu := w.update()
	require.Equal(t, "False Paused", permittedReason(mu))
	require.Contains(t, mu.Status.Message, "policy ClusterChangeManagementPolicy platform is restrictive")
	require.Contains(t, mu.Status.Message, "kubectl annotate clusterchangemanagementpolicies platform "+refitv1.BypassAnnotation+"="+mu.ChangeID())
	require.NotContains(t, mu.Status.Message, "kubectl annotate machine")
}

func TestClosed(t *testing.T) {
	all, invalid, restrictive := nightly(), nightly(), nightly()
	all.Spec.Hold = refitv1.HoldAll
	invalid.Spec.MaintenanceSchedule.TimeZone = "Mars/Olympus"
	restrictive.Name, restrictive.Spec.Strategy = "never", schedule.RestrictiveStrategy
	weekly := nightly()
	weekly.Name, weekly.Spec.MaintenanceSchedule.Permit[0].StartTime = "mornings", "06:00"
	for name, test := range map[string]struct {
		plan     node.Plan
		policies []*refitv1.ChangeManagementPolicy
		phase    refitv1.Phase
		reason   string // of Permitted
		calls    []string
	}{
		"what does not disturb the node does not wait": {
			writeA, []*refitv1.ChangeManagementPolicy{nightly()}, refitv1.PhaseSucceeded, "True NotMaterial", []string{"plan", "apply", "plan"},
		},
		"with hold All it does, and nobody connects": {
			writeA, []*refitv1.ChangeManagementPolicy{all}, refitv1.PhaseWaiting, "False OutsideWindow", nil,
		},
		"an invalid policy holds everything back, and nobody connects": {
			writeA, []*refitv1.ChangeManagementPolicy{invalid}, refitv1.PhaseWaiting, "False InvalidPolicy", nil,
		},
		"all policies must be open": {
			restartA, []*refitv1.ChangeManagementPolicy{nightly(), weekly}, refitv1.PhaseWaiting, "False NoWindowWithinHorizon", []string{"plan"},
		},
		"a policy that stops changes stops all, and nobody connects": {
			writeA, []*refitv1.ChangeManagementPolicy{restrictive}, refitv1.PhaseWaiting, "False Paused", nil,
		},
		"without a policy nothing waits": {restartA, nil, refitv1.PhaseSucceeded, "True Open", []string{"plan", "apply", "plan"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := under(t, test.plan, test.policies...)
			w.reconcile()
			mu := w.update()
			require.Equal(t, test.phase, mu.Status.Phase, mu.Status.Message)
			require.Equal(t, test.reason, permittedReason(mu))
			require.Equal(t, test.calls, w.node.calls)
			if test.reason == "True NotMaterial" {
				require.Empty(t, mu.Status.Starts, "it takes nothing out of a budget")
			}
		})
	}
}

func TestPolicyChangesWhileItHolds(t *testing.T) {
	for name, change := range map[string]func(*world){
		"it is deleted": func(w *world) { require.NoError(w.t, w.Delete(w.t.Context(), nightly())) },
		"it becomes permissive": func(w *world) {
			p := nightly()
			require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKeyFromObject(p), p))
			p.Spec.Strategy = schedule.PermissiveStrategy
			require.NoError(w.t, w.Update(w.t.Context(), p))
		},
		"the Machine has an override": func(w *world) {
			w.machine(func(m *clusterv1.Machine) {
				m.Annotations = map[string]string{
					refitv1.PermissiveUntilAnnotation:                                "2026-10-03T21:00:00Z",
					refitv1.PermissiveSinceAnnotation:                                "2026-10-03T20:00:00Z 2026-10-03T21:00:00Z",
					refitv1.PermissiveUntilAnnotation + refitv1.OverrideReasonSuffix: "CVE-2026-1",
				}
			})
		},
		"the change is bypassed": func(w *world) {
			w.machine(func(m *clusterv1.Machine) {
				m.Annotations = map[string]string{refitv1.BypassAnnotation: w.update().Spec.Digest}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := under(t, restartA, nightly())
			w.node.plans = []node.Plan{restartA, restartA, {}}
			w.reconcile()
			require.Equal(t, refitv1.PhaseWaiting, w.update().Status.Phase)
			change(w)
			w.readPolicies()
			w.reconcile()
			require.Equal(t, refitv1.PhaseSucceeded, w.update().Status.Phase, w.update().Status.Message)
		})
	}
}

func TestOverrideIsToldOf(t *testing.T) {
	w := under(t, restartA, nightly())
	w.machine(func(m *clusterv1.Machine) {
		m.Annotations = map[string]string{
			refitv1.BypassAnnotation:                                w.update().Spec.Digest,
			refitv1.BypassAnnotation + refitv1.OverrideReasonSuffix: "CVE-2026-1",
		}
	})
	w.reconcile()
	require.Equal(t, "True Overridden", permittedReason(w.update()))
	require.Contains(t, w.update().Status.Admission.Message, "CVE-2026-1")
	require.Contains(t, <-w.events.Events, "ChangeManagementOverridden")
}

// TestAStopStopsWhatDoesNotDisturb: what people stop by an override is everything, and only a bypass of this change passes it, which is recorded
// for whoever asks later.
func TestAStopStopsWhatDoesNotDisturb(t *testing.T) {
	for name, plan := range map[string]node.Plan{"a restart": restartA, "what does not disturb": writeA} {
		t.Run(name, func(t *testing.T) { stopAndPass(t, plan) })
	}
}

func stopAndPass(t *testing.T, plan node.Plan) {
	w := under(t, writeA)
	log := &overrideLog{}
	w.reconciler.Audit = log
	annotate := func(annotations map[string]string) {
		w.machine(func(m *clusterv1.Machine) { m.Annotations = annotations })
	}
	stop := map[string]string{refitv1.RestrictiveUntilAnnotation: "true", refitv1.RestrictiveUntilAnnotation + refitv1.OverrideReasonSuffix: "incident 7"}
	annotate(stop)
	w.reconcile()
	require.Equal(t, "False Overridden", permittedReason(w.update()))
	require.Empty(t, w.node.calls)
	require.Empty(t, log.entries)

	w.node.plans = []node.Plan{plan, plan, {}}
	stop[refitv1.BypassAnnotation] = w.update().Spec.Digest
	annotate(stop)
	log.err = errRefused
	_, err := w.reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	require.ErrorIs(t, err, errRefused)
	require.NotContains(t, w.node.calls, "apply", "what can't be recorded does not start")

	log.err = nil
	w.node.plans = []node.Plan{plan, {}}
	w.reconcile()
	w.requirePhase(refitv1.PhaseSucceeded)
	require.Len(t, log.entries, 1)
	require.Equal(t, audit.EventOverridden, log.entries[0].Event)
	require.Equal(t, key.Name, log.entries[0].Machine.Name)
	var told string
	for len(w.events.Events) > 0 {
		told += <-w.events.Events + "\n"
	}
	require.Regexp(t, "ChangeManagementOverridden .*which passes restrictive-until", told)
	require.Contains(t, log.entries[0].Note, "which passes restrictive-until=true on Machine "+key.Name+" (incident 7)")
}

// TestAPermitIsForOneChange: under a manual policy nothing begins before somebody permits it, whatever it does.
func TestAPermitIsForOneChange(t *testing.T) {
	for name, plan := range map[string]node.Plan{"a restart": restartA, "what does not disturb": writeA} {
		t.Run(name, func(t *testing.T) {
			manual := nightly()
			manual.Spec = refitv1.ChangeManagementPolicySpec{Policy: schedule.Policy{Strategy: schedule.ManualStrategy}}
			w := under(t, plan, manual)
			log := &overrideLog{}
			w.reconciler.Audit = log
			w.reconcile()
			require.Equal(t, "False Manual", permittedReason(w.update()))
			require.Empty(t, w.node.calls)

			mu := w.update()
			metav1.SetMetaDataAnnotation(&mu.ObjectMeta, refitv1.PermitAnnotation, changemanagement.PermitValue(w.clock.Now(), mu.ChangeID(), time.Time{}, "ann"))
			require.NoError(t, w.Update(t.Context(), mu))
			w.node.plans = []node.Plan{plan, {}}
			w.reconcile()
			w.requirePhase(refitv1.PhaseSucceeded)
			require.Contains(t, w.update().Status.Admission.Message, "permitted by ann at ")
			require.Len(t, log.entries, 1)
			require.Equal(t, audit.EventPermitted, log.entries[0].Event)

			w.change()
			w.ask()
			w.reconcile()
			require.Equal(t, "False Manual", permittedReason(w.update()), "other specs are another change")
		})
	}
}

// overrideLog is a fake of the audit log.
type overrideLog struct {
	entries []audit.Entry
	err     error
}

func (l *overrideLog) Append(e audit.Entry) (audit.Entry, error) {
	if l.err == nil {
		l.entries = append(l.entries, e)
	}
	return e, l.err
}

// started has an update whose work is under way on the node, in a window that then closes.
func started(t *testing.T, onNode node.Status) *world {
	w := under(t, restartA, nightly())
	w.clock.SetTime(w.clock.Now().Add(2*time.Hour + 30*time.Minute))
	w.node.plans = []node.Plan{restartA, restartA, {}}
	w.node.applied = []node.Status{onNode}
	w.node.applyErr = errRefused
	w.reconcile()
	require.Equal(t, refitv1.PhaseWaiting, w.update().Status.Phase)
	require.NotNil(t, w.update().Status.Admission)
	w.node.applyErr, w.node.digest = nil, w.update().Spec.Digest
	w.clock.SetTime(w.clock.Now().Add(time.Hour))
	w.restart()
	return w
}

func TestWhatHasStartedIsNotHeldBack(t *testing.T) {
	w := started(t, node.Status{State: node.Succeeded, Changes: writeA.Changes, Actions: restartA.Actions})
	before := w.update().Status.Admission
	w.reconcile()
	mu := w.update()
	require.Equal(t, refitv1.PhaseSucceeded, mu.Status.Phase, mu.Status.Message)
	require.Equal(t, before.AdmittedAt.Unix(), mu.Status.Admission.AdmittedAt.Unix())
	require.Len(t, mu.Status.Starts, 1)
}

func TestWhatWasAdmittedAndNeverReachedTheNodeIsHeldBack(t *testing.T) {
	w := started(t, node.Status{State: node.Idle, Digest: "none"})
	w.reconcile()
	mu := w.update()
	require.Equal(t, refitv1.PhaseWaiting, mu.Status.Phase)
	require.Equal(t, "False OutsideWindow", permittedReason(mu))
	require.Nil(t, mu.Status.Admission)
	require.NotContains(t, w.node.calls[2:], "apply")
}

// TestAStartThatWasTakenBack has a hold be met before the node was changed: the window's only start is still to be had.
func TestAStartThatWasTakenBack(t *testing.T) {
	p := nightly()
	p.Spec.Budget = refitv1.Budget{MaxStartsPerWindow: 1}
	w := under(t, drainA, p)
	w.reconcile()
	w.requireWaiting(refitv1.ReasonWindow, "")
	w.clock.SetTime(w.clock.Now().Add(2*time.Hour + time.Minute))
	w.node.plans = []node.Plan{drainA}
	w.withPod()
	w.reconcile()
	require.Len(t, w.requirePhase(refitv1.PhaseDraining).Starts, 1)

	w.hold(true)
	w.clock.Step(time.Minute)
	w.reconcile()
	require.Empty(t, w.requireWaiting(refitv1.ReasonHold, "").Starts)

	w.hold(false)
	w.podGoes()
	w.clock.Step(time.Minute)
	w.node.plans = []node.Plan{drainA, settled}
	w.reconcile()
	require.Len(t, w.requirePhase(refitv1.PhaseSucceeded).Starts, 1)
}

// forgetful is a Gate that tells what it was to forget.
type forgetful struct {
	Gate
	starts [][]metav1.Time
}

// Forget implements Gate.
func (f *forgetful) Forget(mu *refitv1.MachineUpdate) { f.starts = append(f.starts, mu.Status.Starts) }

func TestTheGateForgetsWhatWasTakenBack(t *testing.T) {
	w := draining(t)
	gate := &forgetful{Gate: w.reconciler.Gate}
	w.reconciler.Gate = gate
	w.reconcile()
	require.Empty(t, gate.starts, "the drain goes on")
	w.hold(true)
	w.reconcile()
	require.Len(t, gate.starts, 1)
	require.Empty(t, gate.starts[0])
}

func TestAnUnreachableNodeThatIsHeldBackShowsBoth(t *testing.T) {
	w := under(t, restartA, nightly())
	w.node.dialErr = errRefused
	w.reconcile()
	mu := w.update()
	require.Equal(t, refitv1.ReasonWindow, mu.Status.Reason)
	require.Contains(t, mu.Status.Message, "opens at 2026-10-03T22:00:00Z")
	require.Contains(t, mu.Status.Message, "connection refused")
}

// TestWhatRunsOnANodeIsLookedAfterWhileAPolicyIsClosed: a run may wait for a login, and its lease is released when it has ended.
func TestWhatRunsOnANodeIsLookedAfterWhileAPolicyIsClosed(t *testing.T) {
	var mu refitv1.MachineUpdate
	mu.Spec.Digest, mu.Status.ObservedDigest = "d", "d"
	mu.Status.Phase, mu.Status.Reason = refitv1.PhaseWaiting, refitv1.ReasonWindow
	require.True(t, waitsForPolicyOnly(&mu))
	mu.Status.ApplyingSince = &metav1.Time{}
	require.False(t, waitsForPolicyOnly(&mu))
}

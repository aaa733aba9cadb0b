package admin

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/printer"
)

func (w *world) drift() *Drift {
	return &Drift{Client: w, Clock: w.clock, Out: &w.out, Progress: &w.progress, Admin: "alice"}
}

// found has a MachineUpdate say what a comparison has found.
func found(status metav1.ConditionStatus, reason, message string, resources ...refitv1.DriftedResource) func(*refitv1.MachineUpdate) {
	return func(mu *refitv1.MachineUpdate) {
		at := metav1.NewTime(start.Add(-2 * time.Minute))
		d := mu.Status.Drift
		if d == nil {
			d = &refitv1.DriftStatus{}
		}
		d.CheckedAt = &at
		if status != metav1.ConditionUnknown {
			d.ComparedAt, d.Resources, d.Total = &at, resources, int32(len(resources))
		}
		mu.Status.Drift = d
		meta.SetStatusCondition(&mu.Status.Conditions, metav1.Condition{Type: refitv1.DriftedCondition, Status: status, Reason: reason, Message: message})
	}
}

var (
	motd = refitv1.DriftedResource{Kind: "File", Name: "/etc/motd", What: []string{"content", "mode"}}
	ntp  = refitv1.DriftedResource{Kind: "NTP", What: []string{"servers"}}
)

func TestShowDrift(t *testing.T) {
	isDrifted := found(metav1.ConditionTrue, refitv1.DriftFound, "it is not as it was", motd, ntp)
	for name, tc := range map[string]struct {
		changes []func(*refitv1.MachineUpdate)
		want    string
	}{
		"not compared yet": {nil, "The node of Machine fleet/a was not compared yet. To have it compared: refit drift --now -n fleet a\n"},
		"as it was applied": {
			[]func(*refitv1.MachineUpdate){found(metav1.ConditionFalse, refitv1.DriftNone, "the node shows what was applied")},
			lines("Machine fleet/a has not drifted, as of 2026-10-03T19:58:00Z (2m ago).", "AsApplied: the node shows what was applied"),
		},
		"drifted": {[]func(*refitv1.MachineUpdate){isDrifted}, lines(
			"Machine fleet/a has drifted, as of 2026-10-03T19:58:00Z (2m ago).", "Changed: it is not as it was", "",
			"KIND  NAME       DIFFERS", "File  /etc/motd  content, mode", "NTP   -          servers",
		)},
		"more than are listed": {[]func(*refitv1.MachineUpdate){isDrifted, func(mu *refitv1.MachineUpdate) { mu.Status.Drift.Total = 52 }}, lines(
			"Machine fleet/a has drifted, as of 2026-10-03T19:58:00Z (2m ago).", "Changed: it is not as it was", "",
			"KIND  NAME       DIFFERS", "File  /etc/motd  content, mode", "NTP   -          servers", "and 50 more",
		)},
		"drifted, and not reached since": {
			[]func(*refitv1.MachineUpdate){isDrifted, found(metav1.ConditionUnknown, refitv1.ReasonUnreachable, "no\x1b[2Jthing\nanswers")},
			lines(
				"Whether Machine fleet/a has drifted is not known, as of 2026-10-03T19:58:00Z (2m ago).", "Unreachable: no [2Jthing answers", "",
				"When it was compared last, as of 2026-10-03T19:58:00Z (2m ago), it had:", "",
				"KIND  NAME       DIFFERS", "File  /etc/motd  content, mode", "NTP   -          servers",
			),
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, machine("a"), update("a", refitv1.PhaseSucceeded, "", "", tc.changes...))
			require.NoError(t, w.drift().Show(t.Context(), w.machine()))
			require.Equal(t, tc.want, w.said())
			d := w.drift()
			d.Format = printer.JSON
			require.NoError(t, d.Show(t.Context(), w.machine()))
			var v driftView
			require.NoError(t, json.Unmarshal(w.out.Bytes(), &v))
			require.Equal(t, "a", v.Machine)
			require.Equal(t, len(tc.changes) > 0, v.Condition != nil && v.Drift != nil)
		})
	}
}

func TestDriftOfWhatWasNeverUpdated(t *testing.T) {
	w := newWorld(t, machine("a"))
	require.ErrorContains(t, w.drift().Show(t.Context(), w.machine()), "nothing was applied to Machine fleet/a")
	w = newWorld(t, machine("a"), update("a", refitv1.PhaseSucceeded, "", "", func(mu *refitv1.MachineUpdate) { mu.OwnerReferences[0].UID = "0" }))
	require.ErrorContains(t, w.drift().Show(t.Context(), w.machine()), "of an earlier Machine")
	w.fail = func(string, client.Object) error { return errors.New("no route") }
	require.ErrorContains(t, w.drift().Show(t.Context(), machine("a")), "no route")
}

func TestCompareNow(t *testing.T) {
	w := newWorld(t, machine("a"), update("a", refitv1.PhaseSucceeded, "", ""))
	// refit answers when it is looked for the third time.
	looks := 0
	w.fail = func(verb string, obj client.Object) error {
		if mu, ok := obj.(*refitv1.MachineUpdate); ok && verb == "get" && mu.Name == "" {
			if looks++; looks == 4 {
				w.answer(found(metav1.ConditionTrue, refitv1.DriftFound, "it is not as it was", motd))
			}
		}
		return nil
	}
	require.NoError(t, w.drift().Now(t.Context(), w.machine(), time.Minute))
	require.Contains(t, w.said(), "File  /etc/motd  content, mode")
	require.Contains(t, w.progress.String(), "Asked refit to compare the node of Machine fleet/a")
	require.Equal(t, start.Add(2*time.Second), w.clock.Now())
}

// answer writes what refit has found.
func (w *world) answer(change func(*refitv1.MachineUpdate)) {
	fail := w.fail
	w.fail = nil
	defer func() { w.fail = fail }()
	var mu refitv1.MachineUpdate
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKeyFromObject(machine("a")), &mu))
	require.Regexp(w.t, `^2026-10-03T20:00:00Z alice$`, mu.Annotations[refitv1.CheckDriftAnnotation])
	change(&mu)
	mu.Status.Drift.ObservedCheck = mu.Annotations[refitv1.CheckDriftAnnotation]
	require.NoError(w.t, w.Status().Update(w.t.Context(), &mu))
}

func TestCompareNowThatIsNotAnswered(t *testing.T) {
	w := newWorld(t, machine("a"), update("a", refitv1.PhaseSucceeded, "", ""))
	require.ErrorContains(t, w.drift().Now(t.Context(), w.machine(), time.Minute), "not compared within 1m0s")

	w = newWorld(t, machine("a"), update("a", refitv1.PhaseWaiting, refitv1.ReasonWindow, "later"))
	require.ErrorContains(t, w.drift().Now(t.Context(), w.machine(), time.Minute), "when its update has succeeded, and that is Waiting (Window)")
	require.Empty(t, w.progress.String(), "nothing was asked for")

	w = newWorld(t, machine("a"), update("a", refitv1.PhaseSucceeded, "", ""))
	w.fail = func(verb string, _ client.Object) error {
		if verb == "patch" {
			return errors.New("forbidden")
		}
		return nil
	}
	require.ErrorContains(t, w.drift().Now(t.Context(), w.machine(), time.Minute), "annotate MachineUpdate fleet/a: forbidden")
}

package machineupdate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/schedule"
)

// reloadsNow is open for changes up to a disruption, and each night for all.
func reloadsNow(upTo schedule.Disruption) *refitv1.ChangeManagementPolicy {
	p := nightly()
	p.Spec.MaintenanceSchedule.Permit = append(p.Spec.MaintenanceSchedule.Permit, schedule.Permit{
		Recurrence: "FREQ=DAILY", StartTime: "19:00", Duration: "2h", Changes: &schedule.PermittedChanges{MaxDisruption: upTo},
	})
	return p
}

func TestScopedWindows(t *testing.T) {
	holdAll := func(p *refitv1.ChangeManagementPolicy) *refitv1.ChangeManagementPolicy {
		p = p.DeepCopy()
		p.Spec.Hold = refitv1.HoldAll
		return p
	}
	images := reloadsNow("Reboot")
	images.Spec.MaintenanceSchedule.Permit[1].Changes.Kinds = []schedule.Kind{schedule.ImageKind}
	quiet := node.Plan{Changes: writeA.Changes, Actions: []disruption.Action{{Type: disruption.None}}}
	for name, test := range map[string]struct {
		plan   node.Plan
		policy *refitv1.ChangeManagementPolicy
		reason string // of Permitted
		calls  []string
	}{
		"what it is for starts":                           {restartA, reloadsNow("Restart"), "True Open", []string{"plan", "apply", "plan"}},
		"what takes more waits":                           {restartA, reloadsNow("Reload"), "False OutsideWindow", []string{"plan"}},
		"with hold All the node is looked at, too":        {restartA, holdAll(reloadsNow("Restart")), "True Open", []string{"plan", "apply", "plan"}},
		"and what takes more waits":                       {restartA, holdAll(reloadsNow("Reload")), "False OutsideWindow", []string{"plan"}},
		"and what takes nothing, if it is of other kinds": {quiet, holdAll(images), "False OutsideWindow", []string{"plan"}},
		"which starts otherwise":                          {quiet, images, "True NotMaterial", []string{"plan", "apply", "plan"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := under(t, test.plan, test.policy.DeepCopy())
			if test.reason[:4] == "True" {
				w.node.plans = []node.Plan{test.plan, {}}
			}
			w.reconcile()
			mu := w.update()
			require.Equal(t, test.reason, permittedReason(mu), mu.Status.Message)
			require.Equal(t, test.calls, w.node.calls)
			for range 3 { // nobody connects again, and nothing is written
				w.reconcile()
			}
			require.Equal(t, test.calls, w.node.calls)
			require.Equal(t, mu.ResourceVersion, w.update().ResourceVersion)
		})
	}
}

func TestPlansOfServersThatKnewNoScopesAreMadeAgain(t *testing.T) {
	w := under(t, restartA, nightly())
	w.node.plans = []node.Plan{restartA, restartA, {}}
	w.reconcile()
	mu := w.update()
	require.Equal(t, "Restart", mu.Status.Plan.Disruption)
	require.Equal(t, []string{"Configuration"}, mu.Status.Plan.Kinds)
	mu.Status.Plan.Disruption, mu.Status.Plan.Kinds = "", nil
	require.NoError(t, w.Status().Update(t.Context(), mu))

	p := reloadsNow("Restart")
	p.ResourceVersion = resourceVersion(t, w, p.Name)
	require.NoError(t, w.Update(t.Context(), p))
	w.readPolicies()
	w.clock.SetTime(w.clock.Now().Add(time.Second))
	w.restart()
	w.reconcile()
	require.Equal(t, "True Open", permittedReason(w.update()))
}

func resourceVersion(t *testing.T, w *world, name string) string {
	t.Helper()
	var p refitv1.ChangeManagementPolicy
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: name}, &p))
	return p.ResourceVersion
}

func TestClassOfAPlan(t *testing.T) {
	version, file := node.Change{Ref: node.Ref{Kind: node.VersionKind}}, node.Change{Ref: node.Ref{Kind: node.FileKind, Name: "/etc/a"}}
	const config, patch, minor = "Configuration", "PatchVersion", "MinorVersion"
	reboot := []disruption.Action{{Type: disruption.Reboot}}
	for name, tc := range map[string]struct {
		plan       node.Plan
		runs       string
		disruption string
		kinds      []string
	}{
		"nothing":                           {node.Plan{}, "v1.36.0", "None", []string{config}},
		"a file":                            {node.Plan{Changes: []node.Change{file}, Actions: reboot}, "v1.36.0", "Reboot", []string{config}},
		"a patch restarts the kubelet":      {node.Plan{Changes: []node.Change{version}}, "v1.36.0", "Restart", []string{patch}},
		"a minor":                           {node.Plan{Changes: []node.Change{version}, Actions: []disruption.Action{{Type: disruption.Drain}}}, "v1.35.7", "Drain", []string{minor}},
		"a minor and a file":                {node.Plan{Changes: []node.Change{version, file}}, "v1.35.7", "Restart", []string{minor, config}},
		"a version beside the kubelet":      {node.Plan{Changes: []node.Change{version}}, "v1.36.1", "Restart", []string{patch, minor}},
		"a version that can't be read":      {node.Plan{Changes: []node.Change{version}}, "", "Restart", []string{patch, minor}},
		"a unit that is stopped":            {node.Plan{Changes: []node.Change{{Ref: node.Ref{Kind: node.UnitKind, Name: "a.service"}, Switches: true}}}, "v1.36.0", "Restart", []string{config}},
		"an action that refit knows not of": {node.Plan{Changes: []node.Change{file}, Actions: []disruption.Action{{Type: "Explode"}}}, "v1.36.0", "Replace", []string{config}},
	} {
		t.Run(name, func(t *testing.T) {
			machine := &clusterv1.Machine{}
			machine.Spec.Version = "v1.36.1"
			u := &update{regarding: machine, plan: tc.plan, runs: tc.runs}
			require.Equal(t, tc.disruption, disruptionOf(tc.plan))
			require.Equal(t, tc.kinds, u.kinds())
		})
	}
}

// TestOtherRulesWithHoldAll demands that a node is asked again what a change takes when the rules for that are others, in a window for some changes.
func TestOtherRulesWithHoldAll(t *testing.T) {
	p := reloadsNow("Restart")
	p.Spec.Hold = refitv1.HoldAll
	reboot := node.Plan{Changes: restartA.Changes, Actions: []disruption.Action{{Type: disruption.Reboot}}}
	w := under(t, reboot, p)
	w.node.plans = []node.Plan{reboot, restartA, {}}
	w.reconcile()
	require.Equal(t, "False OutsideWindow", permittedReason(w.update()))
	w.reconcile()
	require.Equal(t, []string{"plan"}, w.node.calls)

	w.reconciler.Disruptions = fixedRules(t, disruption.BuiltinRules(), "calm")
	w.reconcile()
	require.Equal(t, "True Open", permittedReason(w.update()), w.update().Status.Message)
}

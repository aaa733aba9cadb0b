package changemanagement

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/schedule"
)

func TestDisruptionsAreTheActionsInTheirOrder(t *testing.T) {
	all := schedule.Disruptions()
	for i, d := range all {
		require.True(t, disruption.ActionType(d).Known(), d)
		for _, worse := range all[i:] {
			require.Equal(t, disruption.ActionType(worse), disruption.Worst(disruption.ActionType(d), disruption.ActionType(worse)))
		}
	}
	for _, known := range []disruption.ActionType{
		disruption.None, disruption.DaemonReload, disruption.TrustStoreUpdate, disruption.RebuildInitramfs, disruption.RebuildBootloader, disruption.Reload,
		disruption.Restart, disruption.NetworkReload, disruption.StaticPodRefresh, disruption.Drain, disruption.Reboot, disruption.Replace,
	} {
		require.Contains(t, all, schedule.Disruption(known))
	}
}

// upTo has all permits be for changes that take no more.
func upTo(d schedule.Disruption, kinds ...schedule.Kind) edit {
	return func(s *spec) {
		for i := range s.MaintenanceSchedule.Permit {
			s.MaintenanceSchedule.Permit[i].Changes = &schedule.PermittedChanges{MaxDisruption: d, Kinds: kinds}
		}
	}
}

// also permits what another policy does.
func also(o *refitv1.ChangeManagementPolicy) edit {
	return func(s *spec) {
		s.MaintenanceSchedule.Permit = append(s.MaintenanceSchedule.Permit, o.Spec.MaintenanceSchedule.Permit...)
	}
}

// takes has the node have planned an update.
func takes(d schedule.Disruption, kinds ...schedule.Kind) func(*refitv1.MachineUpdate) {
	return func(mu *refitv1.MachineUpdate) {
		mu.Status.Plan = &refitv1.PlannedWork{Material: true, Disruption: string(d), WorstAction: string(d)}
		for _, kind := range kinds {
			mu.Status.Plan.Kinds = append(mu.Status.Plan.Kinds, string(kind))
		}
	}
}

// add makes policies, and has them read.
func (w *world) add(all ...*refitv1.ChangeManagementPolicy) {
	w.T.Helper()
	for _, p := range all {
		require.NoError(w.T, w.Create(w.T.Context(), p))
		w.Reread(p.Name)
	}
}

func held(mu *refitv1.MachineUpdate) {
	mu.Status.Phase, mu.Status.Reason = refitv1.PhaseWaiting, refitv1.ReasonWindow
}

// TestDriftIsNotOfTheLastChange demands that a node is compared in the windows that there are, and not in those of the update before.
func TestDriftIsNotOfTheLastChange(t *testing.T) {
	w := newWorld(t, cluster("c1", nil, nil), worker("w1"), update("w1", ended, takes("Drain", schedule.MinorVersionKind)))
	w.add(saturdays("a", upTo("", schedule.ConfigurationKind), func(s *spec) { s.Hold = refitv1.HoldAll }))
	d := w.ask("w1")
	require.False(t, d.KeepsOff())
	w.Clock.SetTime(outside)
	d = w.ask("w1")
	require.True(t, d.KeepsOff())
}

func TestWhatTheNodeHasPlannedIsTheClass(t *testing.T) {
	config, patch := schedule.ConfigurationKind, schedule.PatchVersionKind
	for name, tc := range map[string]struct {
		policies  []*refitv1.ChangeManagementPolicy
		update    []func(*refitv1.MachineUpdate)
		open      bool
		undecided bool
		keepsOff  bool
	}{
		"in scope":                      {some(saturdays("a", upTo("Restart"))), upd(takes("Reload", config)), true, false, false},
		"takes more":                    {some(saturdays("a", upTo("Restart"))), upd(takes("Reboot", config)), false, false, false},
		"of another kind":               {some(saturdays("a", upTo("", config))), upd(takes("Reload", patch)), false, false, false},
		"a policy beside it is for all": {some(saturdays("a", upTo("Restart")), saturdays("b")), upd(takes("Reboot", config)), false, false, false},
		"not planned":                   {some(saturdays("a", upTo("Restart"))), nil, false, true, false},
		"not planned, and all is held":  {some(saturdays("a", upTo("Restart"), holds)), nil, false, true, false},
		"not planned, and no window is open for anything":     {some(saturdays("a", upTo("Restart"), holds), weekly("b", "WE", upTo("Restart"))), nil, false, false, true},
		"planned, and all is held":                            {some(saturdays("a", upTo("Restart"), holds)), upd(takes("Reboot", config)), false, false, true},
		"not planned, and it does not matter":                 {some(saturdays("a")), nil, true, false, false},
		"planned by a server that knew of no scopes":          {some(saturdays("a", upTo("Restart"))), upd(takes("")), false, true, false},
		"planned for specs before":                            {some(saturdays("a", upTo("Restart"))), upd(takes("Reload", config), func(mu *refitv1.MachineUpdate) { mu.Status.ObservedDigest = "before" }), false, true, false},
		"invalid":                                             {some(onMars("a", upTo("Restart"))), nil, false, false, true},
		"two kinds of which the permit has one":               {some(saturdays("a", upTo("", patch))), upd(takes("Restart", patch, config)), false, false, false},
		"two permits of one policy, of which each has one":    {some(saturdays("a", upTo("", patch), also(saturdays("b", upTo("", config))))), upd(takes("Restart", patch, config)), false, false, false},
		"two policies of which one says nothing of the kinds": {some(saturdays("a", upTo("", patch)), saturdays("b")), upd(takes("Restart", patch)), true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, cluster("c1", nil, nil), worker("w1"), update("w1", tc.update...))
			w.add(tc.policies...)
			d := w.ask("w1")
			require.Equal(t, tc.open, d.Open, d.Message)
			require.Equal(t, tc.undecided, d.Undecided)
			require.Equal(t, tc.keepsOff, d.KeepsOff())
			require.Zero(t, d.LookIn)
		})
	}
}

func TestWhenANodeIsToBeLookedAt(t *testing.T) {
	w := newWorld(t, cluster("c1", nil, nil), worker("w1"), update("w1"))
	w.add(weekly("a", "SU", also(weekly("", "FR", upTo("Restart"))), holds))
	d := w.ask("w1")
	require.Equal(t, int64(23*60*60), d.NextChangeETASeconds)
	require.Equal(t, 23*time.Hour, d.LookIn, "the next window is for all")
	w.Clock.SetTime(closes.Add(48 * time.Hour))
	d = w.ask("w1")
	require.Equal(t, 88*time.Hour, d.LookIn, "on Friday")
	require.False(t, d.Undecided)
}

func upd(edits ...func(*refitv1.MachineUpdate)) []func(*refitv1.MachineUpdate) { return edits }

func TestTheMessageTellsWhyAnOpenWindowDoesNotCount(t *testing.T) {
	w := newWorld(t, cluster("c1", nil, nil), worker("w1"), update("w1", takes("Reboot", schedule.ConfigurationKind)))
	w.add(weekly("a", "SU", also(saturdays("", upTo("Restart")))))
	require.Equal(t, "policy a (windows for changes up to Restart don't count: this one is of Configuration and takes Reboot): OutsideWindow; opens at 2026-10-04T20:00:00Z", w.ask("w1").Message)
}

func TestJitterAndFitAreThoseOfTheWindowsThatCount(t *testing.T) {
	// For reloads the window has been open for a day, for reboots it opens at 20:00.
	day := weekly("", "FR,SA", func(s *spec) {
		s.MaintenanceSchedule.Permit[0].StartTime, s.MaintenanceSchedule.Permit[0].Duration = "", ""
	}, upTo("Reload"))
	w := newWorld(t, cluster("c1", nil, nil), worker("w1"), update("w1", takes("Reboot")), update("w2", takes("Reload")), worker("w2"))
	w.add(saturdays("a", also(day), expects("7h")))
	require.Equal(t, opened, w.ask("w1").Window.Start)
	require.Equal(t, instant("2026-10-02T00:00:00Z"), w.ask("w2").Window.Start)
	w.Clock.SetTime(closes.Add(-time.Hour))
	require.False(t, w.ask("w1").Open, "an hour is left")
}

func TestHooksAskByTheClass(t *testing.T) {
	class := func(d schedule.Disruption, kinds ...schedule.Kind) func(*inplace.Proposal) {
		return func(p *inplace.Proposal) { p.Class = schedule.Class{Kinds: kinds, Disruption: d} }
	}
	w := newWorld(t, cluster("c1", nil, nil), worker("w1"))
	w.add(saturdays("a", refuses, upTo("Restart")))
	for _, tc := range []struct {
		says string
		p    inplace.Proposal
	}{
		{"", propose(class("Restart", schedule.ConfigurationKind))},
		{"this one is of Configuration and takes Reboot", propose(class("Reboot", schedule.ConfigurationKind))},
		{"this one is of Image and takes Replace", propose(class(schedule.ReplaceDisruption, schedule.ImageKind), replacing)},
		{"this one may be of any kind", propose()},
	} {
		_, err := w.permit(tc.p)
		if tc.says == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, tc.says)
	}
}

func TestUpgradesByTheClass(t *testing.T) {
	minor, patch := schedule.MinorVersionKind, schedule.PatchVersionKind
	for name, tc := range map[string]struct {
		policy *refitv1.ChangeManagementPolicy
		pool   string
		from   string
		says   string // nothing: it may start
	}{
		"in place":                        {saturdays("a", upTo("Drain", minor)), "", "v1.35.1", ""},
		"in place, and it takes too much": {saturdays("a", upTo("Restart", minor)), "", "v1.35.1", "this one is of MinorVersion and takes Drain"},
		"not in place":                    {saturdays("a", upTo("Drain", minor)), "gpu", "v1.35.1", "this one is of MinorVersion and takes Replace"},
		"another kind":                    {saturdays("a", upTo("Drain", patch)), "", "v1.35.1", "this one is of MinorVersion"},
		"a patch":                         {saturdays("a", upTo("Drain", patch)), "", "v1.36.2", ""},
		"the version that it has":         {saturdays("a", upTo("Restart", minor)), "", "v1.36.0", ""},
		"a version that is not known":     {saturdays("a", upTo("Drain", patch)), "", "", "is of PatchVersion and MinorVersion"},
	} {
		t.Run(name, func(t *testing.T) {
			m := worker("w1", ofPool(tc.pool))
			m.Spec.Version = tc.from
			w := newWorld(t, cluster("c1", nil, nil), m)
			w.add(tc.policy)
			p := w.upgraded(upgrade(inplace.UpgradedWorkers))
			require.Equal(t, tc.says == "", p.Done, p.Message)
			require.Contains(t, p.Message, tc.says)
		})
	}
}

func TestStatusIsAboutSomeChange(t *testing.T) {
	w := newWorld(t, cluster("c1", nil, nil), worker("w1"))
	w.add(saturdays("a", upTo("Restart")))
	st, _ := w.show(w.status())
	require.True(t, *st.Open)
	c := meta.FindStatusCondition(st.Conditions, refitv1.ChangesRestrictedCondition)
	require.Equal(t, "changes may start that these are for: FREQ=WEEKLY;BYDAY=SA 20:00 8h UTC, for changes up to Restart", c.Message)
	require.Equal(t, opened.Unix(), st.Current.Start.Unix())
}

func TestMetricsAreAboutTheChangesThatWait(t *testing.T) {
	const eta = "next_change_eta_seconds"
	sundays := weekly("a", "SU", also(saturdays("", upTo("Restart"))))
	series := func(value, role string) string {
		return eta + `{cluster="c1",namespace="fleet",policy="a",role="` + role + `"} ` + value
	}
	for name, tc := range map[string]struct {
		updates []func(*refitv1.MachineUpdate)
		want    string
	}{
		"nothing waits":    {nil, "0"},
		"a reload waits":   {upd(held, takes("Reload")), "0"},
		"a reboot waits":   {upd(held, takes("Reboot")), "82800"},
		"something waits":  {upd(held), "82800"},
		"a reboot has run": {upd(takes("Reboot"), ended), "0"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, cluster("c1", nil, nil), worker("w1"), update("w1", tc.updates...))
			w.add(sundays.DeepCopy())
			require.Equal(t, series(tc.want, "Worker"), w.collected(eta))
			require.Equal(t, "joint_"+eta+`{cluster="c1",namespace="fleet",role="Worker"} `+tc.want, w.collected("joint_"+eta))
		})
	}
	w := newWorld(t, cluster("c1", nil, nil), worker("w1"), worker("w2"), update("w1", held, takes("Reload")), update("w2", held, takes("Reboot")))
	w.add(sundays.DeepCopy())
	require.Equal(t, series("82800", "Worker"), w.collected(eta), "the last of those that wait")
}

func TestABudgetsWindowIsThatOfAllChanges(t *testing.T) {
	w := newWorld(t, cluster("c1", nil, nil), worker("w1"), worker("w2"), update("w1", takes("Reload")), update("w2", takes("Reload")))
	w.add(saturdays("a", upTo("Restart"), budget(refitv1.Budget{MaxStartsPerWindow: 1})))
	require.True(t, w.admit("w1").Open)
	require.Contains(t, w.ask("w2").Message, "the next ones may at 2026-10-10T20:00:00Z")
}

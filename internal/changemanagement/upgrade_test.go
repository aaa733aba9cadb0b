package changemanagement

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/policykind"
)

func upgrade(part inplace.UpgradedPart) inplace.Upgrade {
	return inplace.Upgrade{Namespace: "fleet", Cluster: "c1", Part: part, From: "v1.35.1", To: "v1.36.0"}
}

// upgraded asks, and checks what holds for every answer.
func (w *world) upgraded(u inplace.Upgrade) inplace.Progress {
	w.T.Helper()
	p, err := w.hooks.Upgrade(w.T.Context(), u)
	require.NoError(w.T, err)
	require.Contains(w.T, p.Message, fmt.Sprintf("the upgrade of the %s from v1.35.1 to v1.36.0", u.Part))
	if p.Done {
		require.Zero(w.T, p.RetryAfter)
	} else {
		require.GreaterOrEqual(w.T, p.RetryAfter, time.Second)
		require.LessOrEqual(w.T, p.RetryAfter, time.Minute)
	}
	return p
}

func TestUpgrade(t *testing.T) {
	const controlPlanes, workers = inplace.UpgradedControlPlane, inplace.UpgradedWorkers
	sunday := opened.Add(25 * time.Hour)
	byRole := some(saturdays("cp", roles(refitv1.ControlPlaneRole)), weekly("w", "SU", roles(refitv1.WorkerRole)))
	pool := map[string]string{"pool": "gpu"}
	two := []client.Object{controlPlane("cp1"), worker("w1")}
	for name, tc := range map[string]struct {
		policies []*refitv1.ChangeManagementPolicy
		machines []client.Object
		cluster  map[string]string
		now      time.Time // inside, unless it is given
		part     inplace.UpgradedPart
		done     bool
		says     string
	}{
		"no policy":                                                {nil, two, nil, time.Time{}, controlPlanes, true, "no policy selects the machine"},
		"the control plane, on its day":                            {byRole, two, nil, inside, controlPlanes, true, "open until " + text(closes)},
		"the workers, not on the control plane's day":              {byRole, two, nil, inside, workers, false, "policy w: OutsideWindow; opens at 2026-10-04T20:00:00Z"},
		"the control plane, not on the workers' day":               {byRole, two, nil, sunday, controlPlanes, false, "policy cp: OutsideWindow; opens at 2026-10-10T20:00:00Z"},
		"the workers, on their day":                                {byRole, two, nil, sunday, workers, true, "open until"},
		"a policy for some of the machines":                        {some(never("a", machines(pool))), append(two, worker("w2", ofPool("gpu"))), nil, inside, workers, true, "may start"},
		"a policy for all of the machines":                         {some(never("a", machines(pool))), []client.Object{worker("w2", ofPool("gpu"))}, nil, inside, workers, false, "policy a is restrictive"},
		"a policy for machines that are not there":                 {some(never("a", machines(pool))), two, nil, inside, workers, true, "may start"},
		"the machines of another cluster do not matter":            {some(never("a", machines(pool))), append(two, worker("w2", ofPool("gpu"), inCluster("c2"))), nil, inside, workers, true, "may start"},
		"the machines of another role do not matter":               {some(never("a", machines(pool))), append(two, controlPlane("cp2", ofPool("gpu"))), nil, inside, workers, true, "may start"},
		"no machines yet, by role":                                 {byRole, nil, nil, inside, controlPlanes, true, "open until"},
		"no machines yet, by the other role":                       {byRole, nil, nil, inside, workers, false, "policy w: OutsideWindow"},
		"an invalid policy":                                        {some(onMars("a")), two, nil, inside, workers, false, "policy a is invalid, and so closed"},
		"a closed policy is told before an invalid one":            {some(never("a"), onMars("b", machines(pool))), append(two, worker("w2", ofPool("gpu"))), nil, inside, workers, false, "policy a is restrictive"},
		"what opens is told before what never opens":               {some(saturdays("a"), never("b", machines(pool))), append(two, worker("w2", ofPool("gpu"))), nil, outside, workers, false, "2026-10-03T20:00:00Z"},
		"the first of more that open is told":                      {some(saturdays("a"), weekly("b", "SA", machines(pool), func(s *spec) { s.MaintenanceSchedule.Permit[0].StartTime = "22:00" })), append(two, worker("w2", ofPool("gpu"))), nil, outside, workers, false, "2026-10-03T20:00:00Z"},
		"one that forbids replacement, of a version in place":      {some(anytime("a", forbids)), two, nil, inside, workers, true, "may start"},
		"the same while it is closed":                              {some(never("a", forbids)), two, nil, inside, workers, false, "policy a is restrictive"},
		"one that forbids the replacement of a machine":            {some(anytime("a", forbids)), append(two, worker("w2", ofPool("gpu"))), nil, inside, workers, false, "policy a forbids replacement (replacement: Forbid), and Machine w2 is not brought to the version in place: no KubernetesSource has v1.36.0; set replacement: Allow"},
		"one that forbids replacement of some machines":            {some(anytime("a", forbids, machines(pool))), append(two, worker("w2", ofPool("gpu"))), nil, inside, workers, false, "policy a forbids replacement"},
		"one that forbids replacement of others":                   {some(anytime("a", forbids, roles(refitv1.ControlPlaneRole))), append(two, worker("w2", ofPool("gpu"))), nil, inside, workers, true, "may start"},
		"one that allows the replacement of a machine":             {some(anytime("a")), append(two, worker("w2", ofPool("gpu"))), nil, inside, workers, true, "may start"},
		"one that forbids replacement, of a part without machines": {some(anytime("a", forbids)), nil, nil, inside, workers, true, "may start"},
		"a Cluster that is permissive":                             {some(never("a")), two, map[string]string{permissiveKey: text(inside.Add(time.Hour))}, inside, workers, true, "permissive-until"},
		"a Cluster that is restrictive":                            {some(anytime("a")), two, map[string]string{restrictiveKey: "true"}, inside, workers, false, "restrictive-until=true on Cluster c1"},
		"a Cluster that bypasses another change":                   {some(never("a")), two, map[string]string{bypassKey: "0123456789abcdef"}, inside, workers, false, "policy a is restrictive"},
		"the window opens in a moment":                             {some(saturdays("a")), two, nil, opened.Add(-3 * time.Second), workers, false, "opens at"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := append([]client.Object{cluster("c1", nil, tc.cluster), cluster("c2", nil, nil)}, tc.machines...)
			for _, p := range tc.policies {
				objects = append(objects, p)
			}
			w := newWorld(t, objects...)
			if !tc.now.IsZero() {
				w.Clock.SetTime(tc.now)
			}
			p := w.upgraded(upgrade(tc.part))
			require.Equal(t, tc.done, p.Done, p.Message)
			require.Contains(t, p.Message, tc.says)
			require.Equal(t, p, w.upgraded(upgrade(tc.part)), "it says the same again")
			w.hooks.Client = reversed{w}
			require.Equal(t, p, w.upgraded(upgrade(tc.part)), "in whatever order a cache has the machines")
		})
	}
}

// reversed is a cache that has Machines in another order.
type reversed struct{ client.Reader }

func (r reversed) List(ctx context.Context, out client.ObjectList, opts ...client.ListOption) error {
	err := r.Reader.List(ctx, out, opts...)
	if list, ok := out.(*clusterv1.MachineList); ok {
		slices.Reverse(list.Items)
	}
	return err
}

func TestMessagesDoNotDependOnTheOrderOfMachines(t *testing.T) {
	w := newWorld(t, cluster("c1", nil, nil), worker("w1", ofPool("a")), worker("w2", ofPool("b")),
		saturdays("a", machines(map[string]string{"pool": "a"})), saturdays("b", machines(map[string]string{"pool": "b"})))
	w.Clock.SetTime(outside)
	p := w.upgraded(upgrade(inplace.UpgradedWorkers))
	w.hooks.Client = reversed{w}
	require.Equal(t, p, w.upgraded(upgrade(inplace.UpgradedWorkers)))
}

func TestAnUpgradeIsAskedForAgainWhenItsWindowOpens(t *testing.T) {
	w := newWorld(t, cluster("c1", nil, nil), saturdays("a"))
	for before, want := range map[time.Duration]time.Duration{
		time.Hour: retryUpgrade, 15 * time.Second: 15 * time.Second, 3 * time.Second: 3 * time.Second, 200 * time.Millisecond: time.Second,
	} {
		w.Clock.SetTime(opened.Add(-before))
		require.Equal(t, want, w.upgraded(upgrade(inplace.UpgradedWorkers)).RetryAfter)
	}
}

func TestAnUpgradeStartsByTheDigestOfItsMessage(t *testing.T) {
	w := newWorld(t, cluster("c1", nil, nil), controlPlane("cp1"), worker("w1"), never("a"))
	command := regexp.MustCompile(`kubectl annotate cluster -n fleet c1 (\S+)=(\S+)$`)
	u := upgrade(inplace.UpgradedControlPlane)
	m := command.FindStringSubmatch(w.upgraded(u).Message)
	require.Len(t, m, 3)
	require.Equal(t, bypassKey, m[1])
	c := get(w, "c1", &clusterv1.Cluster{})
	c.Annotations = map[string]string{m[1]: m[2]}
	require.NoError(t, w.Update(t.Context(), c))

	require.True(t, w.upgraded(u).Done)
	w.RequireEvent(regexp.QuoteMeta(m[2]))
	require.False(t, w.upgraded(upgrade(inplace.UpgradedWorkers)).Done, "the workers are another change")
	u.To = "v1.36.1"
	p, err := w.hooks.Upgrade(t.Context(), u)
	require.NoError(t, err)
	require.False(t, p.Done, "another version is another change")
}

// TestOneUpgradeHasOneDigest asks as two hooks do: the one after the control plane knows just the version that it has reached.
func TestOneUpgradeHasOneDigest(t *testing.T) {
	w := newWorld(t, cluster("c1", nil, nil), never("a"))
	u := upgrade(inplace.UpgradedWorkers)
	before := w.upgraded(u)
	u.From = u.To
	after, err := w.hooks.Upgrade(t.Context(), u)
	require.NoError(t, err)
	require.Contains(t, after.Message, "the upgrade of the workers to v1.36.0 is held back")
	digest := regexp.MustCompile(`=\S+$`)
	require.Equal(t, digest.FindString(before.Message), digest.FindString(after.Message))
}

func TestJitterSpreadsClustersNotTheirMachines(t *testing.T) {
	var objects []client.Object
	for i := range 20 {
		objects = append(objects, worker(fmt.Sprintf("w%d", i)))
	}
	w := newWorld(t, append(objects, cluster("c1", nil, nil), saturdays("a", jitter("4h")))...)
	s := &Candidate{UID: "fleet/c1"}
	policies, err := w.policies.Select(&Candidate{Subject: inplace.Subject{Namespace: "fleet"}})
	require.NoError(t, err)
	start := startOf(t, opened, s, policies, Change{})
	w.Clock.SetTime(start.Add(-time.Second))
	require.False(t, w.upgraded(upgrade(inplace.UpgradedWorkers)).Done)
	w.Clock.SetTime(start)
	require.True(t, w.upgraded(upgrade(inplace.UpgradedWorkers)).Done)
}

func TestUpgradeNeedsToKnow(t *testing.T) {
	w := newWorld(t, cluster("c1", nil, nil), worker("w1"))
	w.hooks.Policies = NewPolicies(nil, nil, nil)
	_, err := w.hooks.Upgrade(t.Context(), upgrade(inplace.UpgradedWorkers))
	require.ErrorIs(t, err, policykind.ErrUnread)
	w.hooks.Client = broken{}
	_, err = w.hooks.Upgrade(t.Context(), upgrade(inplace.UpgradedWorkers))
	require.ErrorIs(t, err, errDown)
	w = newWorld(t)
	_, err = w.hooks.Upgrade(t.Context(), upgrade(inplace.UpgradedWorkers))
	require.ErrorContains(t, err, "Cluster fleet/c1")
}

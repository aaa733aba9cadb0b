package guard

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// TestWhatCantBeReadHidesNothing: of machines whose MachineSet is gone nothing is sure, and what is sure of others is told.
func TestWhatCantBeReadHidesNothing(t *testing.T) {
	w := newWorld(t, outside, append(append(fleet(t), worker("w-1", outdated)), keep())...)
	got := w.edit(workers, disks)
	require.True(t, got.allowed)
	require.Equal(t, "warned", got.AuditAnnotations["outcome"])
	require.Contains(t, got.says, "MachineSet fleet/ms")
	w = newWorld(t, outside, append(append(fleet(t), worker("w-1", outdated)), keep(as(refitv1.StrictGuard)))...)
	require.False(t, w.edit(workers, disks).allowed)

	more := []client.Object{worker("w-1"), worker("w-2", outdated), keep()}
	for i := range mostSets + 1 {
		name := fmt.Sprintf("old-%d", i)
		more = append(more, worker("x-"+name, outdated, func(m *clusterv1.Machine) {
			m.OwnerReferences = ownedBy(clusterv1.GroupVersion.String(), "MachineSet", name)
		}))
	}
	w = newWorld(t, outside, append(fleet(t), more...)...)
	require.False(t, w.edit(workers, disks).allowed)

	w = newWorld(t, outside, append(append(fleet(t), master("m-1"), master("m-2", outdated)), keep())...)
	got = w.edit(controlPlane, size)
	require.False(t, got.allowed)
	require.Contains(t, got.says, "can't tell whether m-2")
}

// TestReplicasHideNoChange: machines are there until they are deleted, whatever replicas say.
func TestReplicasHideNoChange(t *testing.T) {
	w := newWorld(t, outside, append(append(fleet(t), machines()...), keep())...)
	zero := []string{"replicas: 2", "replicas: 0"}
	require.False(t, w.edit(workers, append(slices.Clone(disks), zero...)).allowed)
	require.False(t, w.ask(review(t, objectsOf(t, workers, zero...)[0], objectsOf(t, workers, append(slices.Clone(disks), zero...)...)[0])).allowed)
	require.False(t, w.edit(topology, append([]string{"{name: one}", "{name: two}"}, zero...)).allowed)
	require.Empty(t, w.edit(workers, zero).says)
	onDelete := []string{"{type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}", "{type: OnDelete}"}
	require.Contains(t, w.edit(workers, slices.Concat(disks, zero, onDelete)).says, "until somebody deletes it")
}

// TestRolloutAfterCountsFromRollingUpdate: with OnDelete it has meant nothing.
func TestRolloutAfterCountsFromRollingUpdate(t *testing.T) {
	w := newWorld(t, outside, append(append(fleet(t), machines()...), keep(as(refitv1.StrictGuard)))...)
	stored := []string{"rollout: {strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}", `rollout: {after: "2026-01-01T00:00:00Z", strategy: {type: OnDelete}`}
	got := w.ask(review(t, objectsOf(t, workers, stored...)[0], objectsOf(t, workers, always...)[0]))
	require.False(t, got.allowed, got.says)
}

// TestYoungMachinesOfAControlPlaneStay: rollout.after replaces what was made before.
func TestYoungMachinesOfAControlPlaneStay(t *testing.T) {
	young := func(m *clusterv1.Machine) { m.CreationTimestamp.Time = outside.Add(-time.Hour) }
	w := newWorld(t, outside, append(append(fleet(t), master("m-1", young)), keep(as(refitv1.StrictGuard)))...)
	require.Empty(t, w.edit(controlPlane, always).says)
	require.False(t, w.edit(controlPlane, []string{"rollout: {strategy", `rollout: {after: "2026-10-01T11:30:00Z", strategy`}).allowed)
}

// TestPartsThatGo: one that is renamed has its machines replaced, and one that goes has them deleted.
func TestPartsThatGo(t *testing.T) {
	renamed := []string{"name: md-0", "name: md-1"}
	w := newWorld(t, outside, append(append(fleet(t), machines()...), keep(as(refitv1.StrictGuard)))...)
	require.False(t, w.edit(topology, renamed).allowed)
	withoutWorkers, _, _ := strings.Cut(topology, "    workers:")
	gone := w.ask(review(t, objectsOf(t, topology)[0], objectsOf(t, withoutWorkers)[0]))
	require.True(t, gone.allowed)
	require.Contains(t, gone.says, "would be deleted")
	w = newWorld(t, outside, append(append(fleet(t), machines()...), keep())...)
	got := w.edit(topology, renamed)
	require.True(t, got.allowed)
	require.Contains(t, got.says, "makes those of md-1")
}

// TestWhatMachinesHaveSaysNoCondition: it stands still while an owner is paused.
func TestWhatMachinesHaveSaysNoCondition(t *testing.T) {
	ms := objectsOf(t, strings.NewReplacer("kind: MachineDeployment", "kind: MachineSet", "name: md", "name: ms", "uid-md", "uid-ms").Replace(workers))[0]
	infra := objectsOf(t, "apiVersion: infrastructure.cluster.x-k8s.io/v1\nkind: AcmeMachine\nmetadata: {name: m-1, namespace: fleet, annotations: {cluster.x-k8s.io/cloned-from-name: infra-1}}\n")[0]
	w := newWorld(t, outside, append(append(fleet(t), worker("w-1"), master("m-1"), ms, infra), keep(as(refitv1.StrictGuard)))...)
	got := w.ask(review(t, objectsOf(t, workers, disks...)[0], objectsOf(t, workers)[0]))
	require.True(t, got.allowed, got.says)
	got = w.ask(review(t, objectsOf(t, controlPlane, size...)[0], objectsOf(t, controlPlane)[0]))
	require.True(t, got.allowed, got.says)
	got = w.ask(review(t, objectsOf(t, workers, motd...)[0], objectsOf(t, workers, append(slices.Clone(motd), surge...)...)[0]))
	require.False(t, got.allowed, "it is in two steps what is refused in one")
}

// TestEditsThatAreNotReadAreCounted: somebody has to see that there are such.
func TestEditsThatAreNotReadAreCounted(t *testing.T) {
	w := newWorld(t, outside)
	got := w.guard.Unread("it is too large")
	require.True(t, got.Allowed)
	require.Contains(t, got.Warnings[0], "it is too large")
	require.Equal(t, 1., testutil.ToFloat64(w.guard.Metrics.edits.WithLabelValues("", "unjudged")))
}

// TestASurgeForWhatIsUnderWay: what is made in place was stored before, and a surge comes to it.
func TestASurgeForWhatIsUnderWay(t *testing.T) {
	surges := []string{"maxSurge: 0", "maxSurge: 1"}
	byDefault := []string{", rollingUpdate: {maxSurge: 0, maxUnavailable: 1}", ""}
	for name, tc := range map[string]struct {
		of     string
		stored []string
		wants  []string
		behind bool
		edit   func(*spec)
		says   string
	}{
		"a control plane":               {controlPlane, file, slices.Concat(file, surges), true, nil, "of 2 Machines of KubeadmControlPlane/fleet/kcp would be replaced, or another one instead, without refit being asked: Cluster API is making a change that was stored before"},
		"strictly":                      {controlPlane, file, slices.Concat(file, surges), true, as(refitv1.StrictGuard), "guard: Refuse"},
		"with nothing under way":        {controlPlane, nil, surges, false, nil, ""},
		"that goes":                     {controlPlane, surges, nil, true, nil, ""},
		"that is there":                 {controlPlane, surges, slices.Concat(surges, []string{"replicas: 3", "replicas: 5"}), true, nil, ""},
		"and another change is told":    {controlPlane, nil, slices.Concat(file, surges), true, nil, "makes one machine more, and deletes the last old one: the others are updated in place"},
		"a part of a topology":          {topology, nil, byDefault, true, nil, "of 2 Machines of Cluster/fleet/c1 MachineDeployment md-0 would be replaced"},
		"strictly, of a topology":       {topology, nil, byDefault, true, as(refitv1.StrictGuard), "comes to make one machine more for it"},
		"a topology with nothing to do": {topology, nil, byDefault, false, as(refitv1.StrictGuard), ""},
	} {
		t.Run(name, func(t *testing.T) {
			is := func(*clusterv1.Machine) {}
			if tc.behind {
				is = outdated
			}
			if tc.edit == nil {
				tc.edit = as(refitv1.RefuseGuard)
			}
			some := []client.Object{worker("w-1", is), worker("w-2", is), master("m-1", is), master("m-2", is), master("m-3"), keep(tc.edit)}
			w := newWorld(t, outside, append(fleet(t), some...)...)
			got := w.ask(review(t, objectsOf(t, tc.of, tc.stored...)[0], objectsOf(t, tc.of, tc.wants...)[0]))
			if tc.says == "" {
				require.Empty(t, got.says)
				return
			}
			require.Contains(t, got.says, tc.says)
			require.Equal(t, tc.edit != nil && strings.Contains(name, "strictly"), !got.allowed, got.says)
			require.Equal(t, 1, strings.Count(got.says, "one machine more"), "it is said once: %s", got.says)
			if got.allowed {
				require.Equal(t, 1., testutil.ToFloat64(w.guard.Metrics.unasked.WithLabelValues("surge")))
			}
		})
	}
}

// TestASurgeIsFoundBesideWhatElseAnEditBrings: what is under way is none of what the edit brings, and comes to surge whatever that is.
func TestASurgeIsFoundBesideWhatElseAnEditBrings(t *testing.T) {
	var (
		surges  = []string{"maxSurge: 0", "maxSurge: 1"}
		soon    = []string{"rollout: {strategy: {rollingUpdate: {maxSurge: 0}}}", `rollout: {after: "2027-01-01T00:00:00Z", strategy: {rollingUpdate: {maxSurge: 1}}}`}
		now     = []string{"rollout: {strategy: {rollingUpdate: {maxSurge: 0}}}", `rollout: {after: "2026-01-01T00:00:00Z", strategy: {rollingUpdate: {maxSurge: 1}}}`}
		younger = []string{"rollout: {strategy: {rollingUpdate: {maxSurge: 0}}}", `rollout: {after: "2025-01-01T00:00:00Z", strategy: {rollingUpdate: {maxSurge: 1}}}`}
		expires = []string{"rollout: {strategy: {rollingUpdate: {maxSurge: 0}}}", "rollout: {before: {certificatesExpiryDays: 21}, strategy: {rollingUpdate: {maxSurge: 1}}}"}
		whole   = []string{"rollout: {strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}}"}
		parts   = []string{whole[0], "rollout: {strategy: {type: OnDelete}}"}
		rolls   = []string{whole[0], "rollout: {strategy: {type: RollingUpdate}}"}
	)
	const comes = "comes to make one machine more for it"
	for name, tc := range map[string]struct {
		of            string
		stored, wants []string
		says, not     string
	}{
		"alone":                             {controlPlane, file, slices.Concat(file, surges), comes, "and so in"},
		"beside rollout.before":             {controlPlane, file, slices.Concat(file, expires), comes, "it replaces"},
		"beside a rollout that comes":       {controlPlane, file, slices.Concat(file, soon), comes, "it replaces"},
		"beside one of older machines":      {controlPlane, file, slices.Concat(file, younger), comes, ""},
		"beside what is taken back":         {controlPlane, slices.Concat(file, size), slices.Concat(file, surges), comes, ""},
		"beside disks":                      {controlPlane, file, slices.Concat(file, surges, []string{"users: [{name: ann}]", "users: [{name: ann}], diskSetup: {partitions: [{device: /dev/sdb, layout: true}]}"}), "and so in 1 more of its parts", ""},
		"where all are replaced unasked":    {controlPlane, file, slices.Concat(file, now), "made before 2026-01-01", comes},
		"with a change that surges":         {controlPlane, nil, slices.Concat(file, surges), "makes one machine more, and deletes the last old one", comes},
		"taken back, without a surge":       {controlPlane, slices.Concat(file, size), file, "", ""},
		"from OnDelete, where it was given": {topology, parts, rolls, comes, ""},
		"to OnDelete, which makes none":     {topology, nil, parts, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			made := func(m *clusterv1.Machine) {
				outdated(m)
				m.CreationTimestamp.Time = time.Date(2025, 6, 1, 0, 0, 0, 0, time.UTC)
			}
			all := append(fleet(t), worker("w-1", made), saturdays("weekly", as(refitv1.StrictGuard)))
			for _, m := range []string{"m-1", "m-2", "m-3"} {
				all = append(all, master(m, made), objectsOf(t, "apiVersion: infrastructure.cluster.x-k8s.io/v1\nkind: AcmeMachine\nmetadata: {name: "+m+", namespace: fleet, annotations: {cluster.x-k8s.io/cloned-from-name: infra-1}}\n")[0])
			}
			w := newWorld(t, outside, all...)
			got := w.ask(review(t, objectsOf(t, tc.of, tc.stored...)[0], objectsOf(t, tc.of, tc.wants...)[0]))
			require.Equal(t, tc.says == "", got.allowed, got.says)
			require.Contains(t, got.says, tc.says)
			if tc.not != "" {
				require.NotContains(t, got.says, tc.not)
			}
		})
	}
}

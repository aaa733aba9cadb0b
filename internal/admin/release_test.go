package admin

import (
	"errors"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/lease"
)

func TestRelease(t *testing.T) {
	alices := map[string]string{refitv1.HoldAnnotation: "true", lease.HoldByAnnotation: "alice", lease.HoldReasonAnnotation: "x", "other": "kept"}
	bobs := map[string]string{refitv1.HoldAnnotation: "true", lease.HoldByAnnotation: "bob", "other": "kept"}
	const released = "Machine fleet/a is released. An update that waits for it goes on within a minute."
	for name, c := range map[string]struct {
		locker     *locker
		annotated  map[string]string
		force      bool
		says, want string
		left       string
	}{
		"one's own":                      {locker: &locker{holder: "admin/alice"}, annotated: alices, want: lines(released)},
		"nobody's":                       {locker: &locker{}, want: lines("Machine fleet/a has no hold.")},
		"bob's":                          {locker: &locker{holder: "admin/bob"}, annotated: bobs, says: "held by bob; --force releases it nevertheless", left: "admin/bob"},
		"bob's, by force":                {locker: &locker{holder: "admin/bob"}, annotated: bobs, force: true, want: lines("The lease of node node-a was held by admin/bob, and is released.", released)},
		"bob's lease":                    {locker: &locker{holder: "admin/bob"}, annotated: alices, says: "its lease is held by admin/bob; --force", left: "admin/bob"},
		"a lease of medik8s, even so":    {locker: &locker{holder: "node-maintenance"}, annotated: alices, force: true, want: lines("The lease of node node-a is held by node-maintenance, and stays so.", released), left: "node-maintenance"},
		"a lease of refit":               {locker: &locker{holder: "refit/uid-a"}, annotated: alices, want: lines("The lease of node node-a is held by refit/uid-a, and stays so.", released), left: "refit/uid-a"},
		"no workload cluster":            {annotated: alices, says: "reach the workload cluster prod: connection refused"},
		"its API server does not answer": {locker: &locker{err: errors.New("timeout")}, annotated: alices, says: "release the lease of node node-a: timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			before := maps.Clone(c.annotated)
			if before != nil {
				maps.Copy(before, keptOff())
			}
			w := newWorld(t, machine("a", func(m *clusterv1.Machine) { m.Annotations = before }))
			var l Nodes
			if c.locker != nil {
				c.locker.marked = "uid-a"
				l = c.locker
			}
			err := w.holder(l).Release(t.Context(), w.machine(), c.force)
			require.Equal(t, c.want, w.said())
			if c.locker != nil {
				require.Equal(t, c.left, c.locker.holder)
			}
			if c.says != "" {
				require.ErrorContains(t, err, c.says)
				require.Equal(t, before, w.machine().Annotations)
				return
			}
			require.NoError(t, err)
			require.Empty(t, c.locker.marked)
			after := w.machine().Annotations
			if c.annotated != nil {
				require.Equal(t, map[string]string{"other": "kept"}, after)
			}
		})
	}
}

// A release that is interrupted anywhere is repeated, and one of what is gone succeeds.
func TestReleaseOfWhatIsLeft(t *testing.T) {
	alices := keptOff()
	alices[refitv1.HoldAnnotation], alices[lease.HoldByAnnotation] = "true", "alice"
	const released = "Machine fleet/a is released. An update that waits for it goes on within a minute."
	here := func(change ...func(*clusterv1.Machine)) *world {
		return newWorld(t, machine("a", append(change, func(m *clusterv1.Machine) { m.Annotations = maps.Clone(alices) })...))
	}
	deleting := func(m *clusterv1.Machine) {
		m.DeletionTimestamp, m.Finalizers = new(metav1.NewTime(start)), []string{clusterv1.MachineFinalizer}
	}

	w, l := here(), &locker{holder: "admin/alice", marked: "uid-a", markErr: errors.New("timeout")}
	require.ErrorContains(t, w.holder(l).Release(t.Context(), w.machine(), false), "timeout")
	require.Equal(t, alices, w.machine().Annotations, "what is still to be released is seen")
	l.markErr = nil
	require.NoError(t, w.holder(l).Release(t.Context(), w.machine(), false))
	require.Empty(t, w.machine().Annotations)
	require.Empty(t, l.marked)

	w = here()
	m := w.machine()
	delete(m.Annotations, refitv1.HoldAnnotation)
	require.NoError(t, w.Update(t.Context(), m))
	require.NoError(t, w.holder(&locker{}).Release(t.Context(), w.machine(), false))
	require.Equal(t, lines(released), w.said(), "whoever removed the annotation has left the rest")
	require.Empty(t, w.machine().Annotations)

	w = here()
	m = w.machine()
	require.NoError(t, w.Delete(t.Context(), m))
	require.NoError(t, w.holder(&locker{}).Release(t.Context(), m, false))
	require.Equal(t, lines("Machine fleet/a is gone, and its hold with it."), w.said())

	w = here(deleting)
	require.NoError(t, w.holder(nil).Release(t.Context(), w.machine(), false), "its cluster is gone")
	require.Equal(t, lines("The Machine is being deleted; what the hold has at node node-a stays, since it can't be released there: "+
		"reach the workload cluster prod: connection refused", released), w.said())
	require.NotContains(t, w.machine().Annotations, holdHook)
	w = here(deleting)
	require.ErrorIs(t, w.holder(&locker{holder: "admin/bob"}).Release(t.Context(), w.machine(), false), ErrNotYours)
	require.Contains(t, w.machine().Annotations, holdHook)

	w = newWorld(t, machine("a", deleting))
	require.ErrorContains(t, w.holder(&locker{}).Hold(t.Context(), w.machine(), HoldOptions{Reason: "x"}), "the node is not yours: Machine fleet/a is being deleted")
	require.Empty(t, w.machine().Annotations)
	w = here(deleting)
	require.NoError(t, w.holder(&locker{holder: "admin/alice"}).Hold(t.Context(), w.machine(), HoldOptions{Reason: "longer"}), "its deletion waits")
}

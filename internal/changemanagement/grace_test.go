package changemanagement

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

func grace(d string) edit { return func(s *spec) { s.DeletionGrace = d } }

// TestAPolicyThatIsDeletedCountsForAWhile: GitOps deletes what somebody has moved in a tree, and renames by deleting.
func TestAPolicyThatIsDeletedCountsForAWhile(t *testing.T) {
	const minute = time.Minute
	for name, tc := range map[string]struct {
		policy *refitv1.ChangeManagementPolicy
		after  func(w *world) // what happens when it has been deleted
		counts time.Duration
	}{
		"ten minutes by default":                                      {saturdays("a"), nil, 10 * minute},
		"as long as it says":                                          {saturdays("a", grace("1h30m")), nil, 90 * minute},
		"not at all":                                                  {saturdays("a", grace("0s")), nil, 0},
		"until another one is in its place":                           {saturdays("a"), func(w *world) { w.addPolicy(madeAt(anytime("b"), time.Now())) }, 0},
		"until another one is, that was made before":                  {saturdays("a"), func(w *world) { w.addPolicy(madeAt(anytime("b"), time.Now().Add(-9*minute))) }, 0},
		"another one has been there for long, which is joined by AND": {saturdays("a"), func(w *world) { w.addPolicy(madeAt(anytime("b"), time.Now().Add(-11*minute))) }, 10 * minute},
		"another one has another selector":                            {saturdays("a"), func(w *world) { w.addPolicy(anytime("b", roles(refitv1.WorkerRole))) }, 10 * minute},
		"another one is in another namespace":                         {saturdays("a"), func(w *world) { w.addPolicy(of("other", anytime("b"))) }, 10 * minute},
		"another one that was not read":                               {saturdays("a"), func(w *world) { require.NoError(w.T, w.Create(w.T.Context(), anytime("b"))) }, 10 * minute},
		"another one that is being deleted": {saturdays("a"), func(w *world) {
			b := anytime("b")
			b.Finalizers = []string{"example.com/other"}
			w.addPolicy(b)
			require.NoError(w.T, w.Delete(w.T.Context(), b))
		}, 10 * minute},
		"until its namespace goes, which it must not stop": {saturdays("a"), func(w *world) {
			ns := &corev1.Namespace{ObjectMeta: objectMeta{Name: "fleet", Finalizers: []string{"example.com/other"}}}
			require.NoError(w.T, w.Create(w.T.Context(), ns))
			require.NoError(w.T, w.Delete(w.T.Context(), ns))
		}, 0},
		"a policy that can't be read, too": {onMars("a"), nil, 10 * minute},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.policy)
			w.Clock.SetTime(time.Now().Truncate(time.Second)) // by which the API server deletes
			s := w.status()
			w.show(s)
			policy := get(w, "a", &refitv1.ChangeManagementPolicy{})
			require.NoError(t, w.Delete(t.Context(), policy))
			if tc.after != nil {
				tc.after(w)
			}
			there := func() bool {
				err := w.Get(t.Context(), client.ObjectKeyFromObject(policy), policy)
				require.True(t, err == nil || apierrors.IsNotFound(err), "%v", err)
				return err == nil
			}
			if tc.counts > 0 {
				require.True(t, there())
				st, again := w.show(s)
				require.LessOrEqual(t, again, tc.counts)
				if ready := apimeta.FindStatusCondition(st.Conditions, refitv1.ReadyCondition); ready.Status == "True" {
					require.Equal(t, "Deleting", ready.Reason)
				}
				w.Clock.SetTime(policy.DeletionTimestamp.Add(tc.counts - time.Second))
				w.Reconcile(s, "a")
				require.True(t, there())
				w.Clock.SetTime(policy.DeletionTimestamp.Add(tc.counts))
			}
			w.Reconcile(s, "a")
			require.False(t, there())
			w.Reconcile(s, "a")
		})
	}
}

// addPolicy adds one, and has it read.
func (w *world) addPolicy(p *refitv1.ChangeManagementPolicy) {
	w.T.Helper()
	require.NoError(w.T, w.Create(w.T.Context(), p))
	w.Prime(w.policies)
}

// TestTheGraceOfAPolicyCanBeTakenAway: whoever wants it gone says so first.
func TestTheGraceOfAPolicyCanBeTakenAway(t *testing.T) {
	w := newWorld(t, saturdays("a"))
	s := w.status()
	w.show(s)
	require.Equal(t, []string{refitv1.GraceFinalizer}, get(w, "a", &refitv1.ChangeManagementPolicy{}).Finalizers)
	w.Change("a", grace("0s"))
	w.Reread("a")
	w.show(s)
	require.Empty(t, get(w, "a", &refitv1.ChangeManagementPolicy{}).Finalizers)
}

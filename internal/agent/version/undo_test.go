package version

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/agent/release"
	"github.com/capi-refit/refit/internal/agent/staticpod/staticpodtest"
	"github.com/capi-refit/refit/internal/node"
)

// TestLocksThatDoNotComeBackDoNotKeepTheKubeletAway has the new kubelet be down when the node goes back.
func TestLocksThatDoNotComeBackDoNotKeepTheKubeletAway(t *testing.T) {
	for name, tc := range map[string]struct{ lockless, tells []string }{
		"of kubeadm":             {[]string{"v1.36.1 kubeadm"}, []string{"the locks of kubeadm could not be put back"}},
		"of kubelet and kubectl": {[]string{"v1.36.1 kubelet kubectl"}, []string{"the locks of kubelet could not be put back"}},
		"of all": {
			[]string{"v1.36.1 kubeadm", "v1.36.1 kubelet kubectl"},
			[]string{"the locks of kubeadm could not be put back", "the locks of kubelet could not be put back"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := w.change(newVersion)
			w.broken[newVersion] = true
			w.clock.impatient = &staticpodtest.Impatient{Left: 20}
			_, err := w.kind.Make(t.Context(), c)
			require.Error(t, err)
			require.Empty(t, w.runs())

			w.clock.impatient, w.releases.lockless = nil, tc.lockless
			err = w.kind.Undo(t.Context(), c)
			for _, tells := range tc.tells {
				require.ErrorContains(t, err, tells)
			}
			require.Equal(t, oldVersion, w.runs())
			require.Equal(t, [2]string{oldVersion, oldVersion}, w.programs())
			w.releases.lockless = nil
			require.NoError(t, w.kind.Undo(t.Context(), c))
		})
	}
	t.Run("and what else fails is told beside them", func(t *testing.T) {
		w := newWorld(t)
		c := w.change(newVersion)
		w.make(c)
		w.releases.lockless = []string{"v1.36.1 kubeadm"}
		w.remove("/releases/" + oldVersion + "/kubelet")
		err := w.kind.Undo(t.Context(), c)
		require.ErrorContains(t, err, "the locks of kubeadm could not be put back")
		require.ErrorContains(t, err, "the release is not there")
	})
	t.Run("while going forward they fail, before the kubelet is restarted", func(t *testing.T) {
		w := newWorld(t)
		c := w.change(newVersion)
		w.releases.lockless = []string{"v1.36.3 kubelet kubectl"}
		_, err := w.kind.Make(t.Context(), c)
		var locks *release.LocksError
		require.ErrorAs(t, err, &locks)
		require.Empty(t, w.calls)
	})
}

// TestARetryGoesBackToTheKubeletThatRuns has an attempt before it have installed the new programs, and come neither further nor back.
func TestARetryGoesBackToTheKubeletThatRuns(t *testing.T) {
	halfWay := func(t *testing.T) *world {
		w := newWorld(t)
		_, err := w.releases.Install(t.Context(), newVersion, release.Programs...)
		require.NoError(t, err)
		return w
	}
	retry := func(w *world) kind.Change {
		a := w.ask(oldVersion, newVersion)
		require.Equal(w, node.Write, a.Operation)
		return kind.Change{Was: spec(oldVersion), Desired: spec(newVersion), Before: a.Before}
	}
	t.Run("as far as it is kept", func(t *testing.T) {
		w := halfWay(t)
		c := retry(w)
		w.broken[newVersion] = true
		w.clock.impatient = &staticpodtest.Impatient{Left: 20}
		_, err := w.kind.Make(t.Context(), c)
		require.Error(t, err)
		w.clock.impatient = nil
		require.NoError(t, w.kind.Undo(t.Context(), c))
		require.Equal(t, oldVersion, w.runs())
	})
	t.Run("and to the one that is installed otherwise", func(t *testing.T) {
		w := halfWay(t)
		w.remove("/releases/" + oldVersion)
		b, err := readBefore(retry(w))
		require.NoError(t, err)
		require.Equal(t, newVersion, b.Kubelet)
	})
	t.Run("and to the one that is installed when it is not known which one runs", func(t *testing.T) {
		w := halfWay(t)
		w.set(func() { w.silent = true })
		b, err := w.kind.remember(t.Context(), &shown{kubelet: oldVersion})
		require.NoError(t, err)
		require.Equal(t, newVersion, b.Kubelet)
	})
}

// TestUndoEndsWhatDiedAmongPackages has the process before it have died when the programs were back: their packages need not be set up
// then, nor locked.
func TestUndoEndsWhatDiedAmongPackages(t *testing.T) {
	w := newWorld(t)
	w.releases.packages = true
	c := w.change(newVersion)
	w.make(c)
	_, err := w.releases.Install(t.Context(), oldVersion, release.Programs...)
	require.NoError(t, err)
	w.releases.calls = nil
	require.NoError(t, w.kind.Undo(t.Context(), c))
	require.Equal(t, []string{"v1.36.1 kubeadm", "v1.36.1 kubelet kubectl"}, w.releases.calls)
	require.Equal(t, oldVersion, w.runs())
}

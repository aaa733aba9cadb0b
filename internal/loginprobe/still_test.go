package loginprobe

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-refit/refit/internal/managementtest"
)

// TestAStatusIsMadeAgainWhenSomethingChanges and not before: a fleet is at rest for days.
func TestAStatusIsMadeAgainWhenSomethingChanges(t *testing.T) {
	f := newFleet(t, 3)
	f.run(2 * time.Hour)
	status := func() bool { // without the probes, which look themselves
		f.probe.known.ways = nil // which a look makes again
		f.tell()
		_, err := f.status.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(f.access())})
		require.NoError(t, err)
		return len(f.probe.known.ways) > 0
	}
	status()
	for range 4 {
		require.False(t, status())
		f.clock.Step(statusRefresh)
	}
	f.clock.Step(stillFor)
	require.True(t, status(), "not all shows")
	require.False(t, status())
	for name, change := range map[string]func(){
		"a Machine": func() {
			require.NoError(t, f.Create(t.Context(), managementtest.Machine("lab", "m99", "c1")))
		},
		"a NodeAccess": func() {
			na := f.access()
			na.Labels = map[string]string{"a": "b"}
			require.NoError(t, f.Update(t.Context(), na))
		},
		"a login that fails": func() {
			f.probe.known.note(types.NamespacedName{Namespace: "lab", Name: "m01"}, refused, f.clock.Now(), f.probe.lasts())
		},
		"a shard is acquired": func() { f.probe.known.forget(func(string) bool { return true }) },
	} {
		change()
		require.True(t, status(), name)
		for range 3 { // it was written
			status()
		}
		require.False(t, status(), name)
	}
	f.probe.known.note(types.NamespacedName{Namespace: "lab", Name: "m01"}, refused, f.clock.Now(), f.probe.lasts())
	status()
	require.False(t, status())
	f.probe.known.note(types.NamespacedName{Namespace: "lab", Name: "m01"}, refused, f.clock.Now(), f.probe.lasts())
	require.False(t, status(), "a login finds what the last one has found")
	port := func(p string) Finding {
		return Finding{refused.Reason, "dial tcp 10.0.0.1:" + p + "->10.0.0.2:22: i/o timeout"}
	}
	f.probe.known.note(types.NamespacedName{Namespace: "lab", Name: "m01"}, port("1"), f.clock.Now(), f.probe.lasts())
	status()
	status()
	f.probe.known.note(types.NamespacedName{Namespace: "lab", Name: "m01"}, port("2"), f.clock.Now(), f.probe.lasts())
	require.False(t, status(), "nor is it news in other words")
}

// TestALoginAfterALongTimeIsNews: the status says that the node was not tried, or too long ago.
func TestALoginAfterALongTimeIsNews(t *testing.T) {
	f := newFleet(t, 1)
	f.run(time.Hour + time.Minute)
	f.off["m00"] = true
	f.run(3*time.Hour + 20*time.Minute)
	f.requireCounts(1, 0, 0)
	f.clock.Step(stillFor)
	f.look()
	f.probe.known.note(types.NamespacedName{Namespace: "lab", Name: "m00"}, Finding{}, f.clock.Now(), f.probe.lasts())
	f.clock.Step(statusRefresh)
	f.look()
	f.requireCounts(1, 1, 0)
}

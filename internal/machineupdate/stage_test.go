package machineupdate

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/kubernetessource"
	"github.com/capi-refit/refit/internal/node"
)

var (
	// newVersion is the plan of a node that has another version on its disk already, unstaged one that has not.
	newVersion = node.Plan{
		Changes: []node.Change{{Ref: node.Ref{Kind: node.VersionKind}, Operation: node.Write}}, Actions: []disruption.Action{{Type: disruption.None}},
	}
	unstaged = node.Plan{Changes: newVersion.Changes, Actions: newVersion.Actions, Stage: []string{"kubelet v1.36.0"}}
	staged   = node.StageStatus{State: node.Staged, Version: "v1.36.0"}
	fetching = node.StageStatus{State: node.Staging, Version: "v1.36.0", Message: "kubelet, 12 of 60 MiB"}
)

// mirror is a source of the version that the world's machine wants.
func mirror(staging refitv1.Staging) *refitv1.KubernetesSource {
	s := &refitv1.KubernetesSource{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "mirror"}}
	s.Spec.Staging = staging
	s.Spec.Binaries = &refitv1.BinariesSource{URL: "https://mirror.example.org/{version}/{arch}/{name}"}
	checksum := strings.Repeat("0", 64)
	s.Spec.Versions = []refitv1.SourceVersion{{Version: "v1.36.0", Checksums: []refitv1.SourceChecksum{
		{Name: "kubeadm", SHA256: checksum}, {Name: "kubelet", SHA256: checksum}, {Name: "kubectl", SHA256: checksum},
	}}}
	return s
}

// sourced has the world know sources.
func (w *world) sourced(sources ...*refitv1.KubernetesSource) {
	for _, s := range sources {
		require.NoError(w.t, w.Create(w.t.Context(), s))
	}
	releases := kubernetessource.New(w.Client)
	require.NoError(w.t, releases.Prime(w.t.Context()))
	w.reconciler.Releases = releases
}

func TestAVersionIsStagedBeforeItsWindow(t *testing.T) {
	w := under(t, unstaged, nightly())
	w.sourced(mirror(refitv1.EarlyStaging))
	drained := newVersion
	drained.Actions = restartA.Actions // it disturbs the node
	first := unstaged
	first.Actions = restartA.Actions
	w.node.plans, w.node.staged = []node.Plan{first, first, drained}, []node.StageStatus{fetching, staged}

	require.Equal(t, retryStage, w.reconcile().RequeueAfter)
	mu := w.update()
	require.Equal(t, refitv1.PhaseWaiting, mu.Status.Phase)
	require.Equal(t, refitv1.ReasonStaging, mu.Status.Reason)
	require.Equal(t, "the node fetches Kubernetes v1.36.0: kubelet, 12 of 60 MiB", mu.Status.Message)
	require.Nil(t, mu.Status.Node, "the node is left to others meanwhile")
	require.Equal(t, "mirror", w.node.sources[0].Name)

	require.Less(t, w.reconcile().RequeueAfter, time.Second)
	w.reconcile()
	mu = w.update()
	require.Equal(t, refitv1.ReasonWindow, mu.Status.Reason)
	require.NotContains(t, w.node.calls, "apply")
	require.Equal(t, 2, strings.Count(strings.Join(w.node.calls, " "), "stage"))
}

// TestAHoldAfterStaging: the node is only asked then what else there is to do, by a lease that the staging has left.
func TestAHoldAfterStaging(t *testing.T) {
	w := under(t, unstaged, nightly())
	w.sourced(mirror(refitv1.EarlyStaging))
	w.node.plans, w.node.staged = []node.Plan{unstaged}, []node.StageStatus{staged}
	require.Less(t, w.reconcile().RequeueAfter, time.Second)
	require.Equal(t, "refit/uid-1", *w.leaseOf().Spec.HolderIdentity)
	w.hold(true)
	w.reconcile()
	w.requireWaiting(refitv1.ReasonWindow, "and then: node n1 held by")
	w.requireFree(false)
}

func TestAVersionIsStagedInItsWindowOnly(t *testing.T) {
	w := under(t, unstaged, nightly())
	w.sourced(mirror(refitv1.InWindowStaging))
	disturbing := unstaged
	disturbing.Actions = restartA.Actions
	w.node.plans = []node.Plan{disturbing}
	w.reconcile()
	require.Equal(t, refitv1.ReasonWindow, w.update().Status.Reason)
	require.NotContains(t, w.node.calls, "stage")

	w.clock.Step(2 * time.Hour)
	w.node.staged = []node.StageStatus{staged}
	w.reconcile()
	require.Contains(t, w.node.calls, "stage")
	require.NotContains(t, w.node.calls, "apply", "the node is asked what there is to do now")
	w.node.plans = []node.Plan{newVersion, {}}
	w.reconcile()
	require.Equal(t, refitv1.PhaseSucceeded, w.update().Status.Phase)
}

func TestAVersionThatCanNotBeHad(t *testing.T) {
	w := under(t, unstaged)
	w.sourced(mirror(refitv1.EarlyStaging))
	w.node.plans = []node.Plan{unstaged}
	w.node.staged = []node.StageStatus{{State: node.StageFailed, Version: "v1.36.0", Message: "https://mirror.example.org answers 404"}}
	require.Equal(t, retryDefault, w.reconcile().RequeueAfter)
	mu := w.update()
	require.Equal(t, refitv1.ReasonStaging, mu.Status.Reason)
	require.Equal(t, "Kubernetes v1.36.0 can't be brought to the node: https://mirror.example.org answers 404; nothing was changed, and it is "+
		"tried again; where it comes from is in KubernetesSource mirror", mu.Status.Message)
	require.Nil(t, mu.Status.Drain)
	require.NotContains(t, w.node.calls, "apply")

	w.node.staged, w.node.plans = []node.StageStatus{staged}, []node.Plan{unstaged, newVersion, {}}
	w.reconcile()
	w.reconcile()
	require.Equal(t, refitv1.PhaseSucceeded, w.update().Status.Phase)
}

// TestAnotherReleaseIsWaitedFor has the node still at work on one that was asked for before.
func TestAnotherReleaseIsWaitedFor(t *testing.T) {
	w := under(t, unstaged)
	w.sourced(mirror(refitv1.EarlyStaging))
	w.node.plans = []node.Plan{unstaged}
	w.node.staged = []node.StageStatus{{State: node.Staged, Version: "v1.35.9"}}
	require.Equal(t, retryStage, w.reconcile().RequeueAfter)
	require.Equal(t, refitv1.ReasonStaging, w.update().Status.Reason)
}

func TestAVersionWithoutASource(t *testing.T) {
	blocked := node.Plan{Blocked: []node.Problem{{Path: "Kubernetes version", Reason: "there is no release of v1.36.0"}}}
	older := mirror(refitv1.EarlyStaging)
	older.Spec.Versions[0].Version = "v1.35.9"
	second := mirror(refitv1.EarlyStaging)
	second.Name = "second"
	for name, tc := range map[string]struct {
		sources []*refitv1.KubernetesSource
		want    string
	}{
		"none":                 {nil, "there is no release of v1.36.0"},
		"it lacks the version": {[]*refitv1.KubernetesSource{older}, "KubernetesSource mirror does not have v1.36.0"},
		"two":                  {[]*refitv1.KubernetesSource{mirror(refitv1.EarlyStaging), second}, "second"},
	} {
		t.Run(name, func(t *testing.T) {
			w := under(t, blocked)
			w.sourced(tc.sources...)
			w.node.plans = []node.Plan{blocked}
			w.reconcile()
			mu := w.update()
			require.Equal(t, refitv1.ReasonBlocked, mu.Status.Reason)
			require.Contains(t, mu.Status.Message, tc.want)
			require.Nil(t, w.node.sources[0])
		})
	}
}

package machineupdate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
)

// attachVolume attaches a volume to the world's node.
func (w *world) attachVolume(name string) *storagev1.VolumeAttachment {
	a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}}
	a.Spec = storagev1.VolumeAttachmentSpec{Attacher: "disks", NodeName: nodeName}
	a.Spec.Source.PersistentVolumeName = ptr.To("volume-of-" + name)
	require.NoError(w.t, w.workload.Client.Create(w.t.Context(), a))
	a.Status.Attached = true
	require.NoError(w.t, w.workload.Client.Status().Update(w.t.Context(), a))
	return a
}

// TestVolumesAreDetachedBeforeTheNodeIsDisturbed has pods be gone whose volumes are not detached yet.
func TestVolumesAreDetachedBeforeTheNodeIsDisturbed(t *testing.T) {
	w := draining(t)
	a := w.attachVolume("a1")
	w.podGoes()
	require.Equal(t, retryDetach, w.reconcile().RequeueAfter)
	st := w.requirePhase(refitv1.PhaseDraining)
	require.Contains(t, st.Message, "1 volume attached that no pod uses which stays (PersistentVolume volume-of-a1)")
	require.Equal(t, int32(1), st.Drain.VolumesLeft)
	require.NotNil(t, st.Drain.DetachingSince)
	require.Nil(t, st.Drain.FinishedAt)
	since := *st.Drain.DetachingSince
	w.clock.Step(time.Minute)
	w.reconcile()
	require.True(t, since.Equal(w.update().Status.Drain.DetachingSince))
	require.NotContains(t, w.node.calls, "apply")

	require.NoError(t, w.workload.Client.Delete(t.Context(), a))
	w.node.plans, w.node.applied = []node.Plan{drainA, settled}, []node.Status{succeeded}
	w.reconcile()
	w.requirePhase(refitv1.PhaseSucceeded)
	w.requireFree(false)
}

// TestVolumesThatAreNotDetachedInTime has the Machine say for how long they are waited for.
func TestVolumesThatAreNotDetachedInTime(t *testing.T) {
	w := draining(t)
	w.machine(func(m *clusterv1.Machine) { m.Spec.Deletion.NodeVolumeDetachTimeoutSeconds = ptr.To[int32](60) })
	w.ask() // for these specs
	w.attachVolume("a1")
	w.podGoes()
	w.node.plans = []node.Plan{drainA}
	w.reconcile()
	w.requirePhase(refitv1.PhaseDraining)
	w.clock.Step(time.Minute)
	w.node.plans, w.node.applied = []node.Plan{drainA, settled}, []node.Status{succeeded}
	w.reconcile()
	w.requirePhase(refitv1.PhaseSucceeded)
}

// TestAPodThatComesBackLeavesItsVolumesTheirTime has the time of volumes count from when the last pod has left.
func TestAPodThatComesBackLeavesItsVolumesTheirTime(t *testing.T) {
	w := draining(t)
	w.machine(func(m *clusterv1.Machine) { m.Spec.Deletion.NodeVolumeDetachTimeoutSeconds = ptr.To[int32](60) })
	w.ask() // for these specs
	w.attachVolume("a1")
	w.podGoes()
	w.node.plans, w.node.applied = []node.Plan{drainA}, []node.Status{succeeded}
	w.reconcile()
	require.NotNil(t, w.requirePhase(refitv1.PhaseDraining).Drain.DetachingSince)

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "web-0", UID: "of-the-next"}}
	pod.Spec.NodeName, pod.Status.Phase = nodeName, corev1.PodRunning
	_, err := w.workload.Clientset.CoreV1().Pods("web").Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	w.clock.Step(30 * time.Second)
	w.reconcile()
	require.Nil(t, w.requirePhase(refitv1.PhaseDraining).Drain.DetachingSince)

	w.clock.Step(30 * time.Second)
	w.podGoes()
	w.reconcile()
	require.NotNil(t, w.requirePhase(refitv1.PhaseDraining).Drain.DetachingSince)
	require.NotContains(t, w.node.calls, "apply")
}

// TestTheRecordIsNotWrittenForEachVolume has one volume after the other be detached.
func TestTheRecordIsNotWrittenForEachVolume(t *testing.T) {
	w := draining(t)
	w.attachVolume("a1")
	w.attachVolume("a2")
	w.podGoes()
	w.reconcile()
	before := w.update()
	require.Equal(t, int32(2), before.Status.Drain.VolumesLeft)
	require.NoError(t, w.workload.Client.Delete(t.Context(), &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "a2"}}))
	w.reconcile()
	require.Equal(t, int32(1), w.update().Status.Drain.VolumesLeft)
	require.Equal(t, before.Spec.Record, w.update().Spec.Record)
}

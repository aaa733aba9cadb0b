package drain

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientsetfake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// volume is a PersistentVolume of a CSI driver. Without a claim it has none.
func volume(name, claim string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "disks", VolumeHandle: "h-" + name}
	if claim != "" {
		pv.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "web", Name: claim}
	}
	return pv
}

// attach attaches a volume to a node. Without one it is inline.
func (w *world) attach(volume, node string, attached bool) *storagev1.VolumeAttachment {
	a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "a-" + volume + "-" + node}}
	a.Spec = storagev1.VolumeAttachmentSpec{Attacher: "disks", NodeName: node}
	if volume != "" {
		a.Spec.Source.PersistentVolumeName = &volume
	}
	w.add(a)
	a.Status.Attached = attached
	require.NoError(w.t, w.client.Status().Update(w.t.Context(), a))
	return a
}

func daemonSet() *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "set"}}
}

// claiming has a pod use a claim.
func claiming() func(*corev1.Pod) {
	const claim = "db"
	return func(p *corev1.Pod) {
		v := corev1.Volume{Name: "data"}
		v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}
		p.Spec.Volumes = append(p.Spec.Volumes, v)
	}
}

// inStatus has the Node's status name volumes.
func (w *world) inStatus(names ...string) {
	n := w.node()
	n.Status.VolumesAttached = nil
	for _, name := range names {
		n.Status.VolumesAttached = append(n.Status.VolumesAttached, corev1.AttachedVolume{Name: corev1.UniqueVolumeName(name)})
	}
	require.NoError(w.t, w.client.Status().Update(w.t.Context(), n))
}

const drained = "the node is drained: it has no pods that are to leave"

func TestVolumesAreDetachedAfterTheirPods(t *testing.T) {
	w := newWorld(t)
	w.add(pod("db", claiming()), volume("v1", "db"))
	a := w.attach("v1", "w1", true)
	require.Equal(t, 1, w.pass().Left, "as long as a pod is there, it is what is waited for")
	w.gone("db")
	p := w.pass()
	require.False(t, p.Done)
	require.Zero(t, p.Left)
	require.Equal(t, 1, p.Volumes)
	require.Equal(t, "all pods have left, and there is 1 volume attached that no pod uses which stays (web/db); to go on without waiting: "+
		"kubectl annotate machine -n lab m1 machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach=", p.Message)
	require.Equal(t, p, w.pass())

	require.NoError(t, w.client.Delete(t.Context(), a))
	require.Equal(t, Progress{Done: true, Message: drained}, w.pass())
}

func TestWhichVolumesAreWaitedFor(t *testing.T) {
	for name, tc := range map[string]struct {
		given func(*world)
		want  string // the names; empty: none
	}{
		"none":                                {func(*world) {}, ""},
		"of another node":                     {func(w *world) { w.attach("v1", "w2", true) }, ""},
		"not attached any more":               {func(w *world) { w.attach("v1", "w1", false) }, ""},
		"without a PersistentVolume":          {func(w *world) { w.attach("v9", "w1", true) }, "PersistentVolume v9"},
		"without a claim":                     {func(w *world) { w.attach("v2", "w1", true) }, "PersistentVolume v2"},
		"inline":                              {func(w *world) { w.attach("", "w1", true) }, "VolumeAttachment a--w1"},
		"by the Node's status":                {func(w *world) { w.inStatus("kubernetes.io/csi/disks^h-v1") }, "web/db"},
		"by the Node's status, and not known": {func(w *world) { w.inStatus("kubernetes.io/iscsi/x") }, "kubernetes.io/iscsi/x"},
		"by both":                             {func(w *world) { w.attach("v1", "w1", true); w.inStatus("kubernetes.io/csi/disks^h-v1") }, "web/db"},
		"of a DaemonSet's pod": {func(w *world) {
			w.add(daemonSet(), pod("agent", of("DaemonSet"), claiming()))
			w.attach("v1", "w1", true)
		}, ""},
		"of a DaemonSet's pod on another node": {func(w *world) {
			w.add(daemonSet(), pod("agent", of("DaemonSet"), claiming(), func(p *corev1.Pod) { p.Spec.NodeName = "w2" }))
			w.attach("v1", "w1", true)
		}, "web/db"},
		"of a pod that is skipped": {func(w *world) {
			w.add(pod("a", labelled("skip"), claiming()))
			w.attach("v1", "w1", true)
		}, ""},
		"of a pod that has finished": {func(w *world) {
			w.add(pod("a", claiming(), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }))
			w.attach("v1", "w1", true)
		}, ""},
		"ephemeral, of a pod that is skipped": {func(w *world) {
			w.add(pod("a", labelled("skip"), func(p *corev1.Pod) {
				p.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
			}), volume("v3", "a-tmp"))
			w.attach("v3", "w1", true)
		}, ""},
		"of a pod that is skipped, and another": {func(w *world) {
			w.add(pod("a", labelled("skip"), claiming()))
			w.attach("v1", "w1", true)
			w.attach("v2", "w1", true)
		}, "PersistentVolume v2"},
		"the Machine says not to": {func(w *world) {
			w.machine.Annotations = map[string]string{clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation: ""}
			w.attach("v1", "w1", true)
		}, ""},
		"of a node that is unreachable": {func(w *world) { w.heard(corev1.ConditionUnknown); w.attach("v1", "w1", true) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.add(volume("v1", "db"), volume("v2", ""))
			tc.given(w)
			p := w.pass()
			if tc.want == "" {
				require.Equal(t, Progress{Done: true, Message: drained}, p)
				return
			}
			require.False(t, p.Done)
			require.Equal(t, 1, p.Volumes)
			require.Contains(t, p.Message, "("+tc.want+")")
		})
	}
}

func TestTimeoutsOfVolumes(t *testing.T) {
	for name, tc := range map[string]struct {
		drain, detach *int32
		// after is how long ago the drain began; the volumes are waited for since a minute later.
		after          time.Duration
		done, timedOut bool
		says           string
	}{
		"none":                       {nil, nil, 1000 * time.Hour, false, false, "all pods have left"},
		"the drain's is not over":    {ptr.To[int32](600), nil, 599 * time.Second, false, false, "all pods have left"},
		"the drain's":                {ptr.To[int32](600), nil, 600 * time.Second, false, true, "the Machine's nodeDrainTimeoutSeconds (600) are over; all pods have left"},
		"the volumes' is not over":   {nil, ptr.To[int32](600), 659 * time.Second, false, false, "all pods have left"},
		"the volumes'":               {nil, ptr.To[int32](600), 660 * time.Second, true, false, "nodeVolumeDetachTimeoutSeconds (600) are over with 1 volume attached"},
		"both: Cluster API goes on":  {ptr.To[int32](600), ptr.To[int32](60), time.Hour, true, false, "nodeVolumeDetachTimeoutSeconds (60)"},
		"zero is none, as for drain": {ptr.To[int32](0), ptr.To[int32](0), 1000 * time.Hour, false, false, "all pods have left"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.add(volume("v1", "db"))
			w.attach("v1", "w1", true)
			w.machine.Spec.Deletion.NodeDrainTimeoutSeconds, w.machine.Spec.Deletion.NodeVolumeDetachTimeoutSeconds = tc.drain, tc.detach
			w.req.DetachingSince = start.Add(time.Minute)
			w.clock.SetTime(start.Add(tc.after))
			p := w.pass()
			require.Equal(t, tc.done, p.Done)
			require.Equal(t, tc.timedOut, p.TimedOut)
			require.Contains(t, p.Message, tc.says)
			require.Equal(t, tc.done, p.Skipped != "", "what is left is said")
		})
	}
	w := newWorld(t)
	w.add(volume("v1", "db"))
	w.attach("v1", "w1", true)
	w.machine.Spec.Deletion.NodeVolumeDetachTimeoutSeconds = ptr.To[int32](60)
	w.clock.SetTime(start.Add(time.Hour))
	require.False(t, w.pass().Done, "the time counts from when only volumes are left")
}

// What can't be read is no node without volumes.
func TestVolumesThatCantBeRead(t *testing.T) {
	w := newWorld(t)
	w.intercept(failing[*storagev1.VolumeAttachmentList]())
	_, err := w.drainer.Pass(t.Context(), w.req)
	require.ErrorIs(t, err, errAway)

	w = newWorld(t)
	w.attach("v1", "w1", true)
	w.intercept(failing[*corev1.PersistentVolumeList]())
	_, err = w.drainer.Pass(t.Context(), w.req)
	require.ErrorIs(t, err, errAway)

	w = newWorld(t)
	w.attach("v1", "w1", true)
	first := true
	w.clientset.(*clientsetfake.Clientset).PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		if first {
			first = false
			return false, nil, nil
		}
		return true, nil, errAway
	})
	_, err = w.drainer.Pass(t.Context(), w.req)
	require.ErrorIs(t, err, errAway)

	w = newWorld(t)
	w.intercept(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if _, ok := list.(*storagev1.VolumeAttachmentList); ok {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "volumeattachments"}, "", nil)
		}
		return c.List(ctx, list, opts...)
	}})
	_, err = w.drainer.Pass(t.Context(), w.req)
	require.ErrorContains(t, err, "the rights of config/workload of this version")
}

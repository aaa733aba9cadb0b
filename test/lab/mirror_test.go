package lab

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// provided is a node as the in-memory provider makes it.
func provided(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/os": "linux"}},
		Spec:       corev1.NodeSpec{ProviderID: "in-memory://" + name},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{KubeletVersion: "v1.36.0"},
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}},
		},
	}
}

func emptyCluster(objects ...client.Object) client.WithWatch {
	return fake.NewClientBuilder().WithObjects(objects...).WithStatusSubresource(&corev1.Node{}, &corev1.Pod{}).Build()
}

func nodeOf(t *testing.T, c client.Client, name string) *corev1.Node {
	t.Helper()
	n := &corev1.Node{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: name}, n))
	return n
}

func TestMirrorMakesNodes(t *testing.T) {
	from, to := emptyCluster(provided("a"), provided("b")), emptyCluster()
	require.NoError(t, newMirror(from, to).sync(t.Context()))
	for _, name := range []string{"a", "b"} {
		got, want := nodeOf(t, to, name), provided(name)
		assert.Equal(t, want.Labels, got.Labels)
		assert.Equal(t, want.Spec, got.Spec)
		assert.Equal(t, want.Status.Conditions, got.Status.Conditions)
		assert.Equal(t, want.Status.Addresses, got.Status.Addresses)
		assert.Equal(t, want.Status.NodeInfo, got.Status.NodeInfo)
	}
}

func TestMirrorLeavesWhatOthersSet(t *testing.T) {
	ctx, from, to := t.Context(), emptyCluster(provided("a")), emptyCluster()
	m := newMirror(from, to)
	require.NoError(t, m.sync(ctx))
	n := nodeOf(t, to, "a")
	n.Annotations, n.Labels["theirs"] = map[string]string{"hold": "true"}, "yes"
	n.Spec.Unschedulable, n.Spec.Taints = true, []corev1.Taint{{Key: "theirs", Effect: corev1.TaintEffectNoSchedule}}
	require.NoError(t, to.Update(ctx, n))
	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "DrainInProgress", Status: corev1.ConditionTrue})
	require.NoError(t, to.Status().Update(ctx, n))

	source := nodeOf(t, from, "a")
	source.Labels = map[string]string{"kubernetes.io/os": "beos"}
	require.NoError(t, from.Update(ctx, source))
	source.Status.Conditions[0].Status = corev1.ConditionFalse
	require.NoError(t, from.Status().Update(ctx, source))
	require.NoError(t, m.sync(ctx))

	n = nodeOf(t, to, "a")
	assert.Equal(t, map[string]string{"kubernetes.io/os": "beos", "theirs": "yes"}, n.Labels)
	assert.Equal(t, map[string]string{"hold": "true"}, n.Annotations)
	assert.True(t, n.Spec.Unschedulable)
	assert.Len(t, n.Spec.Taints, 1)
	status := map[corev1.NodeConditionType]corev1.ConditionStatus{}
	for _, c := range n.Status.Conditions {
		status[c.Type] = c.Status
	}
	assert.Equal(t, map[corev1.NodeConditionType]corev1.ConditionStatus{
		corev1.NodeReady: corev1.ConditionFalse, "DrainInProgress": corev1.ConditionTrue,
	}, status)
}

func TestMirrorFollowsNodesThatComeAndGo(t *testing.T) {
	ctx, from := t.Context(), emptyCluster(provided("a"))
	to := emptyCluster(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}})
	m := newMirror(from, to)
	require.NoError(t, m.sync(ctx))

	require.NoError(t, to.Delete(ctx, provided("a")))
	require.NoError(t, m.sync(ctx))
	nodeOf(t, to, "a") // it was registered again

	require.NoError(t, from.Delete(ctx, provided("a")))
	require.NoError(t, from.Create(ctx, provided("b")))
	require.NoError(t, m.sync(ctx))
	var nodes corev1.NodeList
	require.NoError(t, to.List(ctx, &nodes))
	require.Len(t, nodes.Items, 2)
	assert.Equal(t, "b", nodes.Items[0].Name)
	assert.Equal(t, "theirs", nodes.Items[1].Name, "only what was mirrored goes")
}

// TestMirrorWritesOnlyChanges also shows that a node that could not be written is tried again.
func TestMirrorWritesOnlyChanges(t *testing.T) {
	ctx, from := t.Context(), emptyCluster(provided("a"))
	writes, fails := 0, true
	to := interceptor.NewClient(emptyCluster(), interceptor.Funcs{
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			writes++
			if fails {
				return errors.New("away")
			}
			return c.SubResource(sub).Apply(ctx, obj, opts...)
		},
	})
	m := newMirror(from, to)
	require.ErrorContains(t, m.sync(ctx), "mirroring the status of node a: away")
	fails = false
	require.NoError(t, m.sync(ctx))
	require.NoError(t, m.sync(ctx))
	assert.Equal(t, 2, writes)
}

func TestMirrorTellsEachErrorOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	looks := 0
	from := interceptor.NewClient(emptyCluster(), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			if looks++; looks == 3 {
				cancel()
			}
			return errors.New("away")
		},
	})
	var told []string
	newMirror(from, emptyCluster()).run(ctx, func(err error) { told = append(told, err.Error()) })
	assert.Equal(t, []string{"listing the nodes to mirror: away"}, told)
}

func TestFakeKubelet(t *testing.T) {
	ctx := t.Context()
	pod := func(name, node string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Finalizers: []string{"example.com/wait"}},
			Spec:       corev1.PodSpec{NodeName: node},
		}
	}
	to := emptyCluster(pod("ours", "a"), pod("theirs", "elsewhere"))
	var deleted []string
	counting := interceptor.NewClient(to, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			options := (&client.DeleteOptions{}).ApplyOptions(opts)
			assert.Equal(t, int64(0), *options.GracePeriodSeconds)
			deleted = append(deleted, obj.GetName())
			return c.Delete(ctx, obj, opts...)
		},
	})
	k := fakeKubelet{counting}
	require.NoError(t, k.sync(ctx, []string{"a"}))
	got := &corev1.Pod{}
	require.NoError(t, to.Get(ctx, client.ObjectKeyFromObject(pod("ours", "")), got))
	assert.Equal(t, corev1.PodRunning, got.Status.Phase)
	assert.Equal(t, corev1.PodReady, got.Status.Conditions[0].Type)
	require.NoError(t, to.Get(ctx, client.ObjectKeyFromObject(pod("theirs", "")), got))
	assert.Empty(t, got.Status.Phase)
	assert.Empty(t, deleted)

	require.NoError(t, to.Delete(ctx, pod("ours", "")))
	require.NoError(t, to.Delete(ctx, pod("theirs", "")))
	require.NoError(t, k.sync(ctx, []string{"a"}))
	assert.Equal(t, []string{"ours"}, deleted)

	failing := interceptor.NewClient(to, interceptor.Funcs{
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
			return apierrors.NewInternalError(errors.New("away"))
		},
	})
	require.ErrorContains(t, fakeKubelet{failing}.sync(ctx, []string{"a"}), "acting on pod default/ours")
}

package admin

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

var start = time.Date(2026, 10, 3, 20, 0, 0, 0, time.UTC)

// jumping is a clock on which nobody waits: whoever would moves it on.
type jumping struct {
	*clocktesting.FakeClock
}

func (j jumping) NewTimer(d time.Duration) clock.Timer {
	t := j.FakeClock.NewTimer(d)
	j.Step(d)
	return t
}

func (j jumping) After(d time.Duration) <-chan time.Time {
	c := j.FakeClock.After(d)
	j.Step(d)
	return c
}

// world is a management cluster.
type world struct {
	client.WithWatch
	t     *testing.T
	clock jumping
	out   bytes.Buffer
	// progress is what is said meanwhile.
	progress bytes.Buffer
	// fail answers instead of the cluster if it returns an error.
	fail func(verb string, obj client.Object) error
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme, refitv1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	w := &world{t: t, clock: jumping{clocktesting.NewFakeClock(start)}}
	failing := func(verb string, obj client.Object) error {
		if w.fail == nil {
			return nil
		}
		return w.fail(verb, obj)
	}
	w.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&refitv1.MachineUpdate{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				if err := failing("get", obj); err != nil {
					return err
				}
				return c.Get(ctx, key, obj, opts...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				if err := failing("patch", obj); err != nil {
					return err
				}
				return c.Patch(ctx, obj, patch, opts...)
			},
			Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
				if err := failing("create", obj); err != nil {
					return err
				}
				if review, ok := obj.(*authenticationv1.SelfSubjectReview); ok {
					review.Status.UserInfo.Username = "oidc:alice"
					return nil
				}
				return c.Create(ctx, obj, opts...)
			},
		}).Build()
	return w
}

func machine(name string, change ...func(*clusterv1.Machine)) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "fleet", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{clusterv1.ClusterNameLabel: "prod"},
	}}
	m.Spec.ClusterName = "prod"
	m.Status.NodeRef.Name = "node-" + name
	for _, f := range change {
		f(m)
	}
	return m
}

func update(name string, phase refitv1.Phase, reason, message string, change ...func(*refitv1.MachineUpdate)) *refitv1.MachineUpdate {
	mu := &refitv1.MachineUpdate{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "fleet", Name: name, CreationTimestamp: metav1.NewTime(start.Add(-48 * time.Hour)),
			Labels:          map[string]string{clusterv1.ClusterNameLabel: "prod"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(machine(name), clusterv1.GroupVersion.WithKind("Machine"))},
		},
		Spec: refitv1.MachineUpdateSpec{Digest: "d1"},
		Status: refitv1.MachineUpdateStatus{
			Phase: phase, Reason: reason, Message: message, ObservedDigest: "d1", StartedAt: new(metav1.NewTime(start.Add(-90 * time.Second))),
		},
	}
	for _, f := range change {
		f(mu)
	}
	return mu
}

// machine is the one that is named a, as it is now.
func (w *world) machine() *clusterv1.Machine {
	w.t.Helper()
	var m clusterv1.Machine
	require.NoError(w.t, w.Get(w.t.Context(), types.NamespacedName{Namespace: "fleet", Name: "a"}, &m))
	return &m
}

// said returns what was printed since it was asked last.
func (w *world) said() string {
	defer w.out.Reset()
	return w.out.String()
}

func lines(s ...string) string { return strings.Join(s, "\n") + "\n" }

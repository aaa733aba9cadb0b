package ui

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// kind is a kind of objects that is watched.
type kind struct {
	// plural is what people call them, and without says what the page lacks without them.
	plural, without string
	// ofNamespace reports that they are in namespaces.
	ofNamespace bool
	object      client.Object
	list        func() client.ObjectList
}

// kinds are those that the page is made of.
func kinds() []kind {
	return []kind{
		{"Clusters", "no policy can be told to select their Machines", true, &clusterv1.Cluster{}, func() client.ObjectList { return &clusterv1.ClusterList{} }},
		{"Machines", "only those that have a MachineUpdate are shown", true, &clusterv1.Machine{}, func() client.ObjectList { return &clusterv1.MachineList{} }},
		{"MachineUpdates", "how updates stand is not shown", true, &refitv1.MachineUpdate{}, func() client.ObjectList { return &refitv1.MachineUpdateList{} }},
		{"PendingChanges", "what waits without an update, and until when, is not shown", true, &refitv1.PendingChange{}, func() client.ObjectList { return &refitv1.PendingChangeList{} }},
		{"ChangeManagementPolicies", "windows are not shown", true, &refitv1.ChangeManagementPolicy{}, func() client.ObjectList { return &refitv1.ChangeManagementPolicyList{} }},
		{
			"ClusterChangeManagementPolicies", "windows and freezes of the platform are not shown", false,
			&refitv1.ClusterChangeManagementPolicy{}, func() client.ObjectList { return &refitv1.ClusterChangeManagementPolicyList{} },
		},
		{"Namespaces", "policies of the platform are taken to be for all of them", false, &corev1.Namespace{}, func() client.ObjectList { return &corev1.NamespaceList{} }},
	}
}

// watched is a kind with what was seen of it.
type watched struct {
	kind
	informer cache.SharedIndexInformer

	mu      sync.Mutex
	problem error
}

// newWatched returns an informer of a kind, in a namespace or in all if that is empty.
func newWatched(k kind, c client.WithWatch, namespace string) (*watched, error) {
	w := &watched{kind: k}
	var in []client.ListOption
	if k.ofNamespace && namespace != "" {
		in = append(in, client.InNamespace(namespace))
	}
	options := func(o metav1.ListOptions) []client.ListOption {
		return append(in[:len(in):len(in)], &client.ListOptions{Raw: &o, Limit: o.Limit, Continue: o.Continue})
	}
	w.informer = cache.NewSharedIndexInformer(listed{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := k.list()
			err := c.List(ctx, list, options(o)...)
			w.note(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			one, err := c.Watch(ctx, k.list(), options(o)...)
			w.note(err)
			return one, err
		},
	}}, k.object, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	if err := w.informer.SetTransform(slim); err != nil {
		return nil, err
	}
	// It says what was noted already, into a log that nobody reads.
	err := w.informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {})
	return w, err
}

// listed lists before it watches: what the page reads is the same, and not every API server sends what is there to who watches.
type listed struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is asked by reflectors.
func (listed) IsWatchListSemanticsUnSupported() bool { return true }

// note keeps what the API server answered last.
func (w *watched) note(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		w.problem = nil
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err): // it is listed again
	default:
		w.problem = err
	}
}

// trouble returns what is wrong with the kind, for people, or nothing.
func (w *watched) trouble() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.problem == nil:
		return ""
	case apierrors.IsForbidden(w.problem):
		return fmt.Sprintf("You may not list and watch %s here: %s. The API server says: %s", w.plural, w.without, bounded(w.problem.Error()))
	default:
		return fmt.Sprintf("%s can't be read for now, and are shown as they were: %s", w.plural, bounded(w.problem.Error()))
	}
}

// slim leaves out what the page does not show: a fleet has tens of thousands of them.
func slim(v any) (any, error) {
	o, ok := v.(client.Object)
	if !ok {
		return v, nil
	}
	o.SetManagedFields(nil)
	switch o := o.(type) {
	case *clusterv1.Machine:
		o.Annotations, o.OwnerReferences, o.Finalizers = nil, nil, nil
		o.Status = clusterv1.MachineStatus{NodeRef: o.Status.NodeRef}
	case *clusterv1.Cluster:
		o.Annotations = nil
		o.Spec = clusterv1.ClusterSpec{Topology: clusterv1.Topology{Version: o.Spec.Topology.Version}}
		o.Status = clusterv1.ClusterStatus{}
	case *corev1.Namespace:
		o.Annotations = nil
	case *refitv1.MachineUpdate:
		restored := o.Restored()
		restored.Spec.Record = nil
		return restored, nil
	default:
	}
	return o, nil
}

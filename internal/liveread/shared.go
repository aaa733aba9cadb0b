// Package liveread has many who read the same of the API server at once share requests, without that one is answered by what was so before it asked.
package liveread

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// Shared is a reader of the API server of which those share requests that read the same: the updates of a cluster that a policy lets go all read its
// Cluster, the Secrets by which its API server and its nodes are reached, definitions of kinds, and the policies of their namespace when it is looked at
// for the first time. Each is answered by a request that began after it asked, and so by what one of its own would have seen: who comes while a request is
// under way waits for the next one, with all others who do. What else is read is read by each.
type Shared struct {
	client.Reader

	mu    sync.Mutex
	reads map[what]*reads
}

// Share returns a reader that shares the requests of one that reads from the API server.
func Share(live client.Reader) *Shared {
	return &Shared{Reader: live, reads: map[what]*reads{}}
}

// what is read: an object, or a list of those of a namespace.
type what struct {
	kind string
	key  client.ObjectKey
}

// reads are a request that is under way, and the next one, nil if nobody waits for that.
type reads struct{ now, next *read }

// read is a request, and its answer when it is done.
type read struct {
	ctx    context.Context //nolint:containedctx // that of the request, which ends when nobody waits for it any more
	cancel context.CancelFunc
	ask    func(ctx context.Context, into runtime.Object) error
	into   runtime.Object
	err    error
	// began is closed when it is made, and done when it is answered.
	began, done chan struct{}
	// waiting is how many wait for it.
	waiting int
}

// patience is how long a request may be under way that others wait for. Then each asks by itself: it may be the only one that hangs.
const patience = 5 * time.Second

// Get implements client.Reader.
func (s *Shared) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	kind := fmt.Sprintf("%T", obj)
	switch o := obj.(type) {
	case *clusterv1.Cluster, *corev1.Secret:
	case *metav1.PartialObjectMetadata:
		kind += " " + o.GroupVersionKind().String()
	default:
		return s.Reader.Get(ctx, key, obj, opts...)
	}
	if len(opts) > 0 {
		return s.Reader.Get(ctx, key, obj, opts...)
	}
	return s.share(ctx, what{kind, key}, obj, func(ctx context.Context, into runtime.Object) error {
		return s.Reader.Get(ctx, key, into.(client.Object))
	})
}

// List implements client.Reader.
func (s *Shared) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	of := client.InNamespace(o.Namespace)
	switch list.(type) {
	case *refitv1.ChangeManagementPolicyList, *refitv1.ClusterChangeManagementPolicyList, *refitv1.NodeDisruptionPolicyList:
	default:
		return s.Reader.List(ctx, list, opts...)
	}
	if !reflect.DeepEqual(o, client.ListOptions{Namespace: o.Namespace}) {
		return s.Reader.List(ctx, list, opts...)
	}
	return s.share(ctx, what{fmt.Sprintf("%T", list), client.ObjectKey{Namespace: o.Namespace}}, list, func(ctx context.Context, into runtime.Object) error {
		return s.Reader.List(ctx, into.(client.ObjectList), of)
	})
}

// share has out be what a request finds that begins after this, and that others may wait for, too. Each has a copy.
func (s *Shared) share(ctx context.Context, of what, out runtime.Object, ask func(context.Context, runtime.Object) error) error {
	r, leave := s.join(ctx, of, out, ask)
	defer leave()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-r.began:
	case <-timer.C:
		return ask(ctx, out)
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if r.err == nil {
		reflect.ValueOf(out).Elem().Set(reflect.ValueOf(r.into.DeepCopyObject()).Elem())
	}
	return r.err
}

// join returns the next request to begin, and what is called when it is not waited for any more.
func (s *Shared) join(ctx context.Context, of what, out runtime.Object, ask func(context.Context, runtime.Object) error) (*read, func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.reads[of]
	idle := all == nil
	if idle {
		all = &reads{}
		s.reads[of] = all
	}
	if all.next == nil {
		all.next = &read{ask: ask, into: out.DeepCopyObject(), began: make(chan struct{}), done: make(chan struct{})}
		all.next.ctx, all.next.cancel = context.WithCancel(context.WithoutCancel(ctx)) //nolint:gosec // others wait for it, too, and leave calls cancel
	}
	r := all.next
	r.waiting++
	if idle {
		all.now, all.next = r, nil
		go s.run(of, all)
	}
	return r, func() { s.leave(all, r) }
}

// leave ends a request that nobody waits for.
func (s *Shared) leave(all *reads, r *read) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.waiting--; r.waiting > 0 {
		return
	}
	r.cancel()
	if all.next == r {
		all.next = nil
	}
}

// run makes one request after the other, as long as somebody waits for the next one.
func (s *Shared) run(of what, all *reads) {
	for r := all.now; r != nil; r = s.next(of, all) {
		close(r.began)
		r.err = r.ask(r.ctx, r.into)
		close(r.done)
	}
}

func (s *Shared) next(of what, all *reads) *read {
	s.mu.Lock()
	defer s.mu.Unlock()
	if all.now, all.next = all.next, nil; all.now == nil {
		delete(s.reads, of)
	}
	return all.now
}

package workload

import (
	"context"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// absentFor is for how long it is known that an API server does not serve a kind. Where its CustomResourceDefinition is made meanwhile, its
	// first objects are seen that much later.
	absentFor = 10 * time.Second
	// maxAbsent bounds the kinds of which that is known. Those that refit asks for without knowing whether they are served are a handful.
	maxAbsent = 50
)

// absent remembers the kinds that an API server does not serve. Those of others who may have a say in a node are asked for at each look, and most
// clusters have none of them. Each time the API server is asked what it serves instead, by a client that does not know a kind.
type absent struct {
	clock clock.PassiveClock
	kinds *lru.Cache // of answer, by kind or daemonSet

	mu     sync.Mutex
	asking map[any]chan struct{} // each is closed when it is answered
}

// answer is whether something was there: without an error it was.
type answer struct {
	err error
	at  time.Time
}

func newAbsent(now clock.PassiveClock) *absent {
	return &absent{clock: now, kinds: lru.New(maxAbsent), asking: map[any]chan struct{}{}}
}

// RememberAbsent returns a client that remembers for ten seconds which kinds are not served.
func RememberAbsent(c client.Client, now clock.PassiveClock) client.Client {
	return newAbsent(now).client(c)
}

func (a *absent) client(c client.Client) client.Client { return &absentClient{c, a} }

type absentClient struct {
	client.Client
	absent *absent
}

// Get implements client.Reader. That a DaemonSet is not there, of which only the metadata is asked for, is remembered like a kind that is not served: who
// disturbs nodes by one has to be installed first, and takes longer to begin.
func (c *absentClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	metadata, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok || metadata.Kind != "DaemonSet" {
		return c.Client.Get(ctx, key, obj, opts...)
	}
	return c.absent.ask(ctx, daemonSet(key), func() error { return c.Client.Get(ctx, key, obj, opts...) })
}

// daemonSet is the key of a DaemonSet that is not there.
type daemonSet client.ObjectKey

// List implements client.Reader.
func (c *absentClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	kind, err := c.GroupVersionKindFor(list)
	if err != nil {
		return c.Client.List(ctx, list, opts...) // which tells
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	return c.absent.ask(ctx, kind, func() error { return c.Client.List(ctx, list, opts...) }) // a list that is empty is found
}

// ask asks for a kind, or a DaemonSet, unless that is still known not to be there. While nothing is known of it, one of those who ask at once does so, and
// the others wait for what it finds: all updates that a policy lets go come together. What is there each asks for.
func (a *absent) ask(ctx context.Context, what any, ask func() error) error {
	known, err := a.known(what)
	if !known {
		var first bool
		if first, err = a.enter(ctx, what); first {
			defer a.leave(what)
		}
	}
	if err != nil {
		return err
	}
	if err = ask(); err == nil || meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		a.kinds.Add(what, answer{err, a.clock.Now()})
	}
	return err
}

// enter reports whether who asks is the first, and has to leave. Others wait for the first one's answer, and get its error if it says that nothing is there.
func (a *absent) enter(ctx context.Context, what any) (first bool, err error) {
	a.mu.Lock()
	answered, asking := a.asking[what]
	if !asking {
		a.asking[what] = make(chan struct{})
	}
	a.mu.Unlock()
	if !asking {
		return true, nil
	}
	select {
	case <-answered:
		_, err = a.known(what)
		return false, err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func (a *absent) leave(what any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.asking[what])
	delete(a.asking, what)
}

// known reports whether it is still known if a kind, or a DaemonSet, is there. If it is not, it returns the error of asking for it.
func (a *absent) known(what any) (bool, error) {
	value, ok := a.kinds.Get(what)
	if !ok {
		return false, nil
	}
	is := value.(answer)
	if age := a.clock.Since(is.at); age < 0 || age >= absentFor {
		return false, nil
	}
	return true, is.err
}

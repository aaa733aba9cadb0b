package workload

import (
	"context"
	"strings"
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
	kinds *lru.Cache // of notServed, by kind or daemonSet
}

type notServed struct {
	err error
	at  time.Time
}

func newAbsent(now clock.PassiveClock) *absent { return &absent{now, lru.New(maxAbsent)} }

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
	asked := daemonSet(key)
	if err := c.absent.known(asked); err != nil {
		return err
	}
	err := c.Client.Get(ctx, key, obj, opts...)
	if apierrors.IsNotFound(err) {
		c.absent.kinds.Add(asked, notServed{err, c.absent.clock.Now()})
	}
	return err
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
	if err := c.absent.known(kind); err != nil {
		return err
	}
	err = c.Client.List(ctx, list, opts...)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) { // a list that is empty is found
		c.absent.kinds.Add(kind, notServed{err, c.absent.clock.Now()})
	}
	return err
}

// known returns the error of asking for a kind, or a DaemonSet, if that is still known not to be there.
func (a *absent) known(what any) error {
	value, ok := a.kinds.Get(what)
	if !ok {
		return nil
	}
	is := value.(notServed)
	if age := a.clock.Since(is.at); age < 0 || age >= absentFor {
		return nil
	}
	return is.err
}

package machineupdate

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/index"
)

const (
	// listedAtOnce is how many Clusters are read by lists at once, which bounds the memory: what they have of the Machines that are asked for is kept until
	// these are recorded.
	listedAtOnce = 4
	// leastListed is of how many Machines of a Cluster updates are asked for at least, if all of it are read, and leastPart which part of them.
	leastListed, leastPart = 5, 10
	// listPage is how many objects are read at a time, and maxPages how often of a kind at most.
	listPage, maxPages = 100, 50
	// listedFor is how old what was read by lists may be when it is recorded.
	listedFor = 5 * time.Second
	// listsTake is how long all lists of a Cluster may take, so that what they say can be recorded before it is too old.
	listsTake = listedFor / 2
	// singlyFor is for how long the Machines of a Cluster are read one by one that can't be listed.
	singlyFor = 10 * time.Minute
	// maxSingly bounds the Clusters of which that is known.
	maxSingly = 1000
)

// lists read what many Machines of a Cluster have by few requests.
type lists struct {
	store *Store
	// turns are had by Clusters that are read by lists.
	turns chan struct{}
	// singly are the Clusters that can't be read so, and since when that is known, as time.Time by the key of each.
	singly *lru.Cache
}

func newLists(s *Store) *lists {
	return &lists{store: s, turns: make(chan struct{}, listedAtOnce), singly: lru.New(maxSingly)}
}

// errNotListed is returned for what is to be read by itself.
var errNotListed = errors.New("it was not listed")

// judge finds out by lists what is to be recorded, if that is worth it. What it does not find out is to be read by itself. The function that it returns is
// to be called when all is recorded.
func (l *lists) judge(ctx context.Context, cluster types.NamespacedName, round []*candidate) (done func()) {
	nothing := func() {}
	if !l.worthwhile(ctx, cluster, round) {
		return nothing
	}
	select {
	case l.turns <- struct{}{}:
	case <-ctx.Done():
		return nothing
	}
	if err := l.read(ctx, cluster, round); err != nil {
		<-l.turns // to read them one by one takes long, and others wait
		l.failed(ctx, cluster, err)
		for _, c := range round {
			for _, w := range c.asks {
				w.machine, w.refused, w.at = nil, nil, time.Time{}
			}
		}
		return nothing
	}
	return func() { <-l.turns }
}

// read finds out so until a list fails.
func (l *lists) read(ctx context.Context, cluster types.NamespacedName, round []*candidate) error {
	ctx, cancel := context.WithTimeoutCause(ctx, listsTake, errTooSlow)
	defer cancel()
	b := newBulk(l.store.Live, l.store.Clock, cluster, round)
	for _, c := range round {
		if c.err != nil || !asked(c.machine) {
			continue
		}
		for _, w := range c.asks {
			machine, refused, err := l.store.specs.machine(ctx, reading{b, b.at}, c.key, w.digest)
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case b.err != nil:
				return b.err
			case err == nil:
				w.machine, w.refused, w.at = machine, refused, b.at
			}
		}
	}
	if l.store.Clock.Since(b.at) >= listsTake {
		return errTooSlow
	}
	return nil
}

// worthwhile reports whether a good part of a Cluster's Machines is in a round.
func (l *lists) worthwhile(ctx context.Context, cluster types.NamespacedName, round []*candidate) bool {
	if len(round) < leastListed {
		return false
	}
	if since, ok := l.singly.Get(cluster); ok {
		if age := l.store.Clock.Since(since.(time.Time)); age >= 0 && age < singlyFor {
			return false
		}
	}
	var all clusterv1.MachineList
	err := l.store.Client.List(ctx, &all, index.InCluster(cluster.Namespace, cluster.Name), client.UnsafeDisableDeepCopy)
	return err == nil && len(all.Items) <= leastPart*len(round)
}

// failed notes that a Cluster could not be read by lists, if that is to last.
func (l *lists) failed(ctx context.Context, cluster types.NamespacedName, err error) {
	lasts := apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) || meta.IsNoMatchError(err) || errors.Is(err, errTooMany) ||
		errors.Is(err, errTooSlow) || errors.Is(err, context.DeadlineExceeded)
	if lasts {
		l.singly.Add(cluster, l.store.Clock.Now())
	}
	ctrl.LoggerFrom(ctx).Info("The Machines of a Cluster could not be read by lists, and are read one by one", "cluster", cluster, "reason", err.Error(), "lasts", lasts)
}

func (l *lists) tooOld(at time.Time) bool {
	age := l.store.Clock.Since(at)
	return age < 0 || age >= listedFor
}

var (
	// errTooMany is the error of a list that does not come to an end.
	errTooMany = errors.New("there are too many")
	// errTooSlow is that of lists whose end comes when what they say is about to be too old.
	errTooSlow = errors.New("it takes too long")
)

// bulk is a reader of what Machines of a Cluster have. At the first look for an object of a kind it lists all of that, as the API server has them then, so
// that what is looked for later is as new as what was found before, or newer. One goroutine uses it.
type bulk struct {
	client.Reader // of what is not of a Cluster
	at            time.Time
	cluster       types.NamespacedName
	machines      map[string]bool // the names of those that are kept
	specs         map[string]bool // the names of what these refer to
	kinds         map[schema.GroupVersionKind]map[string]*unstructured.Unstructured
	err           error // of the first list that has failed
}

func newBulk(live client.Reader, now clock.PassiveClock, cluster types.NamespacedName, round []*candidate) *bulk {
	b := &bulk{
		Reader: live, at: now.Now(), cluster: cluster, machines: map[string]bool{}, specs: map[string]bool{},
		kinds: map[schema.GroupVersionKind]map[string]*unstructured.Unstructured{},
	}
	for _, c := range round {
		b.machines[c.key.Name] = true
	}
	return b
}

// Get implements client.Reader.
func (b *bulk) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	out, ok := obj.(*unstructured.Unstructured)
	if !ok { // the definition of a kind
		return b.Reader.Get(ctx, key, obj, opts...)
	}
	kind := out.GroupVersionKind()
	if _, ok := b.kinds[kind]; !ok && b.err == nil {
		b.kinds[kind], b.err = b.list(ctx, kind)
	}
	found, ok := b.kinds[kind][key.Name]
	if !ok || key.Namespace != b.cluster.Namespace {
		return errNotListed
	}
	out.Object = found.Object
	return nil
}

// list lists the objects of a Cluster, as they were at one instant after it began.
func (b *bulk) list(ctx context.Context, kind schema.GroupVersionKind) (map[string]*unstructured.Unstructured, error) {
	out := map[string]*unstructured.Unstructured{}
	next := ""
	for range maxPages {
		var page unstructured.UnstructuredList
		page.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		err := b.List(ctx, &page, client.InNamespace(b.cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: b.cluster.Name},
			client.Limit(listPage), client.Continue(next))
		if err != nil {
			return nil, fmt.Errorf("list %s of Cluster %s: %w", kind.Kind, b.cluster, err)
		}
		for i := range page.Items {
			if one := &page.Items[i]; b.keeps(kind, one) {
				out[one.GetName()] = lean(one)
			}
		}
		if next = page.GetContinue(); next == "" {
			return out, nil
		}
	}
	return nil, fmt.Errorf("list %s of Cluster %s: %w", kind.Kind, b.cluster, errTooMany)
}

// keeps reports whether something is kept of a kind: a Machine of the round, or what one of these refers to. Machines are looked for, and so listed, first.
func (b *bulk) keeps(kind schema.GroupVersionKind, one *unstructured.Unstructured) bool {
	if kind.GroupKind() != machineKind {
		return b.specs[one.GetName()]
	}
	if !b.machines[one.GetName()] {
		return false
	}
	for _, ref := range [][]string{{"spec", "infrastructureRef", "name"}, {"spec", "bootstrap", "configRef", "name"}} {
		if name, ok, err := unstructured.NestedString(one.Object, ref...); ok && err == nil {
			b.specs[name] = true
		}
	}
	return true
}

var machineKind = clusterv1.GroupVersion.WithKind("Machine").GroupKind()

// lean leaves out what nobody looks at.
func lean(one *unstructured.Unstructured) *unstructured.Unstructured {
	unstructured.RemoveNestedField(one.Object, "status")
	unstructured.RemoveNestedField(one.Object, "metadata", "managedFields")
	return one
}

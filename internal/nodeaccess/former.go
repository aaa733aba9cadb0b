package nodeaccess

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

const (
	// formerFor is how long a NodeAccess is remembered that is gone: who makes it again, or gives it another name, needs less.
	formerFor = 10 * time.Minute
	// confirmedFor is how long the API server is not asked again that no NodeAccess selects a Machine.
	confirmedFor = 10 * time.Second
)

// Former knows what the NodeAccesses of a moment ago have selected, and what the API server has said that none selects. What was before the process began
// it does not know.
type Former struct {
	Clock clock.PassiveClock

	mu sync.Mutex
	// since is since when it is told of each change. Zero: not yet.
	since time.Time
	// defined is since when there can be NodeAccesses. Zero: nobody has asked yet.
	defined time.Time
	// gone are NodeAccesses as they were before they were deleted, or selected others, by namespace.
	gone map[string][]former
	// confirmed are the Machines of a namespace for which the API server had no NodeAccess, and when.
	confirmed map[string]map[confirmation]time.Time
	// changes counts the changes of the NodeAccesses of a namespace.
	changes map[string]int
}

type former struct {
	access refitv1.NodeAccess
	at     time.Time
}

// confirmation is what was confirmed: labels of a Machine can change.
type confirmation struct{ uid, labels string }

// Watch has the Former be told of each change of a NodeAccess.
func (f *Former) Watch(ctx context.Context, informers ctrlcache.Informers) error {
	informer, err := informers.GetInformer(ctx, &refitv1.NodeAccess{})
	if err != nil {
		return fmt.Errorf("watch NodeAccesses: %w", err)
	}
	told, err := informer.AddEventHandler(f)
	if err != nil {
		return fmt.Errorf("watch NodeAccesses: %w", err)
	}
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), told.HasSynced) {
			f.begin()
		}
	}()
	return nil
}

// begin notes that each change is seen from now on.
func (f *Former) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.since = f.Clock.Now()
}

// OnAdd implements cache.ResourceEventHandler.
func (f *Former) OnAdd(obj any, _ bool) { f.changed(obj, false) }

// OnUpdate implements cache.ResourceEventHandler.
func (f *Former) OnUpdate(was, is any) {
	a, ok := was.(*refitv1.NodeAccess)
	b, same := is.(*refitv1.NodeAccess)
	if ok && same && a.UID == b.UID && a.Spec.ClusterName == b.Spec.ClusterName && equality.Semantic.DeepEqual(a.Spec.MachineSelector, b.Spec.MachineSelector) {
		return
	}
	f.changed(was, true)
}

// OnDelete implements cache.ResourceEventHandler.
func (f *Former) OnDelete(obj any) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	f.changed(obj, true)
}

// changed is told of a NodeAccess that selects others than before, which is as it was before if it is gone.
func (f *Former) changed(obj any, gone bool) {
	na, ok := obj.(*refitv1.NodeAccess)
	if !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changes == nil {
		f.changes, f.gone = map[string]int{}, map[string][]former{}
	}
	f.changes[na.Namespace]++
	delete(f.confirmed, na.Namespace)
	if now := f.Clock.Now(); gone {
		f.gone[na.Namespace] = append(recent(f.gone[na.Namespace], now), former{access: *na.DeepCopy(), at: now})
	}
}

// recent returns those that are to be remembered still.
func recent(all []former, now time.Time) []former {
	return slices.DeleteFunc(all, func(g former) bool { return now.Sub(g.at) >= formerFor })
}

// selected returns the name of a NodeAccess that has selected a Machine a moment ago, and until when it counts; empty if there is none.
func (f *Former) selected(machine *clusterv1.Machine) (name string, until time.Time) {
	if f == nil {
		return "", time.Time{}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, g := range f.gone[machine.Namespace] {
		if end := g.at.Add(formerFor); end.After(f.Clock.Now()) && end.After(until) {
			if ok, err := Selects(&g.access, machine); ok || err != nil {
				name, until = g.access.Name, end
			}
		}
	}
	return name, until
}

// absent returns whether the API server has just said that no NodeAccess selects a Machine. If it has not, who asks it, and hears that, calls note.
func (f *Former) absent(machine *clusterv1.Machine) (known bool, note func()) {
	if f == nil {
		return false, func() {}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	key, now := confirmation{string(machine.UID), fmt.Sprint(machine.Labels)}, f.Clock.Now()
	if at, ok := f.confirmed[machine.Namespace][key]; ok && now.Sub(at) < confirmedFor {
		return true, nil
	}
	asked := f.changes[machine.Namespace]
	return false, func() { f.confirm(machine.Namespace, key, asked) }
}

// confirm notes what the API server has said, unless a NodeAccess was changed since it was asked.
func (f *Former) confirm(namespace string, key confirmation, asked int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changes[namespace] != asked {
		return
	}
	now := f.Clock.Now()
	if f.confirmed == nil {
		f.confirmed = map[string]map[confirmation]time.Time{}
	}
	of := f.confirmed[namespace]
	if of == nil {
		of = map[confirmation]time.Time{}
		f.confirmed[namespace] = of
	}
	for other, at := range of { // few: each was asked about within the last moments
		if now.Sub(at) >= confirmedFor {
			delete(of, other)
		}
	}
	of[key] = now
}

package ui

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
)

// Options say what the page is of.
type Options struct {
	// Client asks the management cluster with the rights of whoever looks at the page.
	Client client.WithWatch
	// Namespace is the one that is shown, or all if it is empty.
	Namespace string
	Clock     clock.PassiveClock
}

// Fleet is what is watched of a management cluster.
type Fleet struct {
	Options
	kinds    []*watched
	policies *changemanagement.Policies
	history  *history
	// changes counts what was seen.
	changes atomic.Uint64
	hub     hub

	mu       sync.Mutex // of what follows
	last     *snapshot
	built    time.Time
	compiled string    // which versions of policies were read
	read     time.Time // when
}

// NewFleet returns a Fleet that sees nothing before it runs.
func NewFleet(o Options) (*Fleet, error) {
	f := &Fleet{Options: o, history: newHistory()}
	for _, k := range kinds() {
		w, err := newWatched(k, o.Client, o.Namespace)
		if err != nil {
			return nil, fmt.Errorf("watch %s: %w", k.plural, err)
		}
		if _, err := w.informer.AddEventHandler(f.handler()); err != nil {
			return nil, fmt.Errorf("watch %s: %w", k.plural, err)
		}
		f.kinds = append(f.kinds, w)
	}
	f.policies = changemanagement.NewPolicies(policyReader{f}, o.Client, o.Clock)
	f.policies.Namespace = changemanagement.Installed
	return f, nil
}

// handler notes that something has changed.
func (f *Fleet) handler() cache.ResourceEventHandlerFuncs {
	changed := func() {
		f.changes.Add(1)
		f.hub.tell()
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if mu, ok := obj.(*refitv1.MachineUpdate); ok {
				f.history.see(nil, mu, f.Clock.Now())
			}
			changed()
		},
		UpdateFunc: func(before, after any) {
			if mu, ok := after.(*refitv1.MachineUpdate); ok {
				was, _ := before.(*refitv1.MachineUpdate)
				f.history.see(was, mu, f.Clock.Now())
			}
			changed()
		},
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if mu, ok := obj.(*refitv1.MachineUpdate); ok {
				f.history.forget(mu)
			}
			changed()
		},
	}
}

// Run watches until ctx ends.
func (f *Fleet) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, w := range f.kinds {
		all.Go(func() { w.informer.RunWithContext(ctx) })
	}
	all.Wait()
}

// problems are what the page lacks, and why.
func (f *Fleet) problems() []string {
	out := []string{}
	for _, w := range f.kinds {
		if trouble := w.trouble(); trouble != "" {
			out = append(out, trouble)
		}
	}
	return out
}

// loading are the kinds that have not been read yet.
func (f *Fleet) loading() []string {
	out := []string{}
	for _, w := range f.kinds {
		if !w.informer.HasSynced() && w.trouble() == "" {
			out = append(out, w.plural)
		}
	}
	return out
}

// knowsSelected reports whether all has been read, without trouble, that tells which policies select which Machines.
func (f *Fleet) knowsSelected() bool {
	byNamespace := false
	each(f, func(p *refitv1.ClusterChangeManagementPolicy) {
		s := &p.Spec.NamespaceSelector
		byNamespace = byNamespace || len(s.MatchLabels)+len(s.MatchExpressions) > 0
	})
	for _, w := range f.kinds {
		needed := true
		switch w.object.(type) {
		case *refitv1.MachineUpdate, *refitv1.PendingChange:
			needed = false
		case *corev1.Namespace:
			needed = byNamespace
		default:
		}
		if needed && (!w.informer.HasSynced() || w.trouble() != "") {
			return false
		}
	}
	return true
}

// each calls do with the objects of a kind that were seen. They are shared, and are not to be changed.
func each[T client.Object](f *Fleet, do func(T)) {
	for _, w := range f.kinds {
		if _, ok := w.object.(T); !ok {
			continue
		}
		for _, obj := range w.informer.GetStore().List() {
			if one, ok := obj.(T); ok {
				do(one)
			}
		}
	}
}

// one returns an object of a kind, if it was seen.
func one[T client.Object](f *Fleet, namespace, name string) (found T, ok bool) {
	key := namespace + "/" + name
	if namespace == "" {
		key = name
	}
	for _, w := range f.kinds {
		if _, is := w.object.(T); !is {
			continue
		}
		if obj, exists, err := w.informer.GetStore().GetByKey(key); err == nil && exists {
			found, ok = obj.(T)
		}
	}
	return found, ok
}

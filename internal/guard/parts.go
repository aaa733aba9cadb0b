package guard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/explain"
	"github.com/capi-refit/refit/internal/explain/live"
	"github.com/capi-refit/refit/internal/index"
)

// part is what becomes of machines: those of an owner, or of a part of a topology, that are alike.
type part struct {
	owner    *explain.Owner
	machines []*clusterv1.Machine
	// unsure reports that the machines are not what the stored object wants, so that it can't be told whether they would be replaced.
	unsure bool
	// instead reports that another part of a topology comes where this one goes.
	instead bool
	// surges reports that a rollout of something else is under way, and comes to make a machine more.
	surges bool
}

// causes are those for which Cluster API replaces some of them without asking anybody.
func (p part) causes() []explain.Cause {
	if p.surges {
		return []explain.Cause{explain.CauseSurge}
	}
	return p.owner.Causes()
}

// mostSets bounds the MachineSets of a MachineDeployment of which machines are there.
const mostSets = 10

// known reports whether the object of an edit is there. Only then are templates read for whoever asks: a review that an API server has not sent does not
// know its UID.
func (g *Guard) known(ctx context.Context, o *unstructured.Unstructured) (bool, error) {
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(o.GroupVersionKind())
	var there client.Object = meta
	if o.GetKind() == "Cluster" {
		there = &clusterv1.Cluster{} // which is cached as such
	}
	err := g.Cached.Get(ctx, client.ObjectKeyFromObject(o), there)
	if apierrors.IsNotFound(err) {
		return false, nil // it was made a moment ago, and has no machines
	}
	return err == nil && there.GetUID() == o.GetUID(), err
}

// parts says what becomes of which machines.
func (g *Guard) parts(ctx context.Context, e *edit) ([]part, error) {
	if e.new.GetKind() == "MachineDeployment" {
		return g.deployment(ctx, e)
	}
	owners, err := g.compare(ctx, e.old, e.new)
	if err != nil {
		return nil, err
	}
	var out []part
	for _, o := range owners {
		if o.Part == "" {
			o.Cluster = explain.ClusterOf(e.old) // the edit may say otherwise, and its machines are where they are
		}
		machines, err := g.machines(ctx, o)
		if err != nil {
			return nil, err
		}
		one := part{owner: o, machines: machines}
		if o.Verdict == explain.Replace && !o.Unasked() {
			lost, err := g.leaveOut(ctx, e, &one)
			if err != nil {
				return nil, err
			}
			if lost != nil {
				out = append(out, *lost)
			}
		}
		e.instead(&one)
		e.leaveYounger(&one)
		if p := underWay(&one, machines); p != nil {
			out = append(out, *p)
		}
		out = append(out, one)
	}
	return out, nil
}

// compare says what becomes of machines when an object becomes another.
func (g *Guard) compare(ctx context.Context, old, wanted *unstructured.Unstructured) ([]*explain.Owner, error) {
	cluster := &live.Cluster{Client: g.Live}
	var sides [2]*explain.Set
	for i, o := range []*unstructured.Unstructured{old, wanted} {
		set, err := explain.NewSet(o)
		if err != nil {
			return nil, err
		}
		if err := cluster.Complete(ctx, set); err != nil {
			return nil, err
		}
		sides[i] = set
	}
	f, err := (&explain.Explainer{Judge: g.Judge, Now: g.Clock.Now(), Populated: true}).Compare(ctx, sides[0], sides[1])
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(f.Owners, func(o *explain.Owner) bool { return o.Kind != wanted.GetKind() }), nil // templates of a class are owners, too
}

// machines returns those of an owner that are not being deleted, in order. They are shared and are not to be changed.
func (g *Guard) machines(ctx context.Context, o *explain.Owner) ([]*clusterv1.Machine, error) {
	of := live.LabelsOf(o)
	if of == nil || o.Cluster == "" {
		return nil, nil
	}
	var list clusterv1.MachineList
	if err := g.Cached.List(ctx, &list, index.InCluster(o.Namespace, o.Cluster)); err != nil {
		return nil, fmt.Errorf("list the Machines of Cluster %s/%s: %w", o.Namespace, o.Cluster, err)
	}
	selector := labels.SelectorFromSet(of)
	var out []*clusterv1.Machine
	for i := range list.Items {
		if m := &list.Items[i]; m.DeletionTimestamp.IsZero() && selector.Matches(labels.Set(m.Labels)) {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b *clusterv1.Machine) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// stale reports whether Cluster API does not say of a machine that it is as the stored object wants it.
func stale(m *clusterv1.Machine) bool {
	yes, known := explain.UpToDate(m)
	return known && !yes
}

// underWay returns the machines that the owner wants otherwise already, where it comes to make a machine more: for these it does, too, whatever else becomes of
// its machines. Those that are replaced unasked anyway are none of them. Of a control plane and of a topology machines say so by a condition, which stands still
// while the owner is paused; nil if there are none.
func underWay(told *part, machines []*clusterv1.Machine) *part {
	o := told.owner
	if !o.Surges() || o.Verdict == explain.Deleted {
		return nil
	}
	covers := o.Unasked() || slices.Contains(o.Causes(), explain.CauseSurge)
	behind := slices.DeleteFunc(slices.Clone(machines), func(m *clusterv1.Machine) bool { return !stale(m) || covers && slices.Contains(told.machines, m) })
	if len(behind) == 0 {
		return nil
	}
	return &part{machines: behind, surges: true, owner: &explain.Owner{
		Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, Part: o.Part, Cluster: o.Cluster, Verdict: explain.None,
		Adds: []string{"is making a change that was stored before, and comes to make one machine more for it, and to delete the last old one"},
	}}
}

// deployment says what becomes of the machines of a MachineDeployment: of those of each MachineSet, since an edit may take back what was stored before. A
// condition is asked only where the MachineSet is not there: it stands still while the MachineDeployment is paused.
func (g *Guard) deployment(ctx context.Context, e *edit) ([]part, error) { //nolint:cyclop // each MachineSet may be gone, unread, or as it is wanted
	owners, err := g.compare(ctx, e.old, e.new)
	if err != nil || len(owners) == 0 {
		return nil, err
	}
	all, err := g.machines(ctx, owners[0])
	if err != nil {
		return nil, err
	}
	as := part{owner: owners[0]}
	sets := map[string][]*clusterv1.Machine{}
	for _, m := range all {
		ref := metav1.GetControllerOf(m)
		if ref != nil && ref.Kind == "MachineSet" {
			sets[ref.Name] = append(sets[ref.Name], m)
			continue
		}
		as.machines = append(as.machines, m)
	}
	var out []part
	for i, name := range slices.Sorted(maps.Keys(sets)) {
		var o *explain.Owner
		err := fmt.Errorf("%s has machines of %d MachineSets, and refit's guard looks at %d", e.title(), len(sets), mostSets)
		if i < mostSets {
			o, err = g.ofSet(ctx, e, name)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err == nil {
			out = append(out, part{owner: o, machines: sets[name]})
			continue
		}
		var lost []*clusterv1.Machine
		for _, m := range sets[name] {
			if stale(m) {
				lost = append(lost, m)
			} else {
				as.machines = append(as.machines, m)
			}
		}
		if len(lost) > 0 {
			out = append(out, part{owner: untold(owners[0], err), machines: lost})
		}
	}
	if len(as.machines) > 0 || len(out) == 0 {
		out = append([]part{as}, out...)
	}
	return out, nil
}

// ofSet says what becomes of the machines of a MachineSet: as if the MachineDeployment had wanted until now what they are.
func (g *Guard) ofSet(ctx context.Context, e *edit, name string) (*explain.Owner, error) {
	var set unstructured.Unstructured
	set.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineSet"))
	key := client.ObjectKey{Namespace: e.new.GetNamespace(), Name: name}
	if err := g.Live.Get(ctx, key, &set); err != nil {
		return nil, fmt.Errorf("read MachineSet %s: %w", key, err)
	}
	was := e.old.DeepCopy()
	template, _, _ := unstructured.NestedMap(set.Object, "spec", "template", "spec")
	if err := unstructured.SetNestedMap(was.Object, template, "spec", "template", "spec"); err != nil {
		return nil, err
	}
	owners, err := g.compare(ctx, was, e.new)
	if err != nil {
		return nil, err
	}
	if len(owners) != 1 {
		return nil, errors.New("nothing can be told of MachineSet " + key.String())
	}
	return owners[0], nil
}

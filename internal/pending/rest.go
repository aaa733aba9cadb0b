package pending

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/index"
	"github.com/capi-refit/refit/internal/revision"
)

// restsFor is for how long a Cluster's PendingChanges are not found out again while nothing that they were found out from has changed. Not
// all of that shows: of another Cluster's updates it depends when this one's are expected to be done.
const restsFor = 5 * time.Minute

// rest is what the PendingChanges of a Cluster that were written last were found out from.
type rest struct {
	basis
	until time.Time
	many  int // PendingChanges
}

// basis is what PendingChanges are found out from: versions of objects, and how often policies have come to say something else. A process may read a
// policy later than its cache has it.
type basis struct {
	versions uint64
	edits    int64
}

// heedPolicies has Clusters rest no longer when policies come to say something else. It is for the time before the manager starts.
func (v *View) heedPolicies() {
	v.Gate.Policies.OnChange(func(string, func(labels.Set) bool) { v.edits.Add(1) })
}

// resting returns when to look at a Cluster again of which nothing has changed since its PendingChanges were written; 0 if they are to be found out now. A
// fleet that waits for its windows does so for days.
func (v *View) resting(ctx context.Context, cluster *clusterv1.Cluster) (time.Duration, error) {
	key := client.ObjectKeyFromObject(cluster)
	v.mu.Lock()
	last, ok := v.rests[key]
	v.mu.Unlock()
	if !ok {
		return 0, nil
	}
	written, err := v.writtenOf(ctx, key)
	if err != nil {
		return 0, err
	}
	if is, ok := v.basis(ctx, cluster); ok && is == last.basis && len(written) == last.many && v.Clock.Now().Before(last.until) {
		return refresh, nil
	}
	v.rouse(key)
	return 0, nil
}

// rouse has what a Cluster shows be found out the next time that it is looked at.
func (v *View) rouse(cluster types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.rests, cluster)
	v.contents.Delete(cluster)
}

// rest has a Cluster rest of which all was written that was seen.
func (v *View) rest(req ctrl.Request, seen *sight, many int) {
	from, ok := seen.from[req.Name]
	if !ok {
		return // all of it is new, or not to be told
	}
	last := rest{basis: from, until: seen.at.Add(restsFor), many: many}
	for _, e := range seen.waiting[req.Name] {
		if !e.rests(seen.at) {
			return
		}
		if e.earliest.After(seen.at) && e.earliest.Before(last.until) {
			last.until = e.earliest
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.rests == nil {
		v.rests = map[types.NamespacedName]rest{}
	}
	maps.DeleteFunc(v.rests, func(_ types.NamespacedName, r rest) bool { return !seen.at.Before(r.until) })
	v.rests[req.NamespacedName] = last
}

// rests reports whether an entry stays as it is until something happens that versions tell, or until it may start: it is an update that has not begun and may
// not, and all was read that it was found out from.
func (e *entry) rests(now time.Time) bool {
	return e.update != nil && !e.underWay && (e.earliest.IsZero() || e.earliest.After(now)) && e.reason != refitv1.PendingUnreadable &&
		(e.owner.kind != "MachineDeployment" || e.meta != nil && e.deployment.of(e.meta))
}

// hashed is for versions of objects.
var hashed = maphash.MakeSeed()

// bases returns the bases of the Clusters of a namespace that have PendingChanges. What can't be told of one keeps it from resting, and nothing else.
func (v *View) bases(ctx context.Context, namespace string) (map[string]basis, error) {
	var list refitv1.PendingChangeList
	if err := v.Client.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list PendingChanges: %w", err)
	}
	all := map[string]basis{}
	for i := range list.Items {
		if list.Items[i].Spec.Owner.Kind != "Cluster" {
			continue
		}
		var cluster clusterv1.Cluster
		if v.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: list.Items[i].Spec.Cluster}, &cluster) != nil {
			continue
		}
		if is, ok := v.basis(ctx, &cluster); ok {
			all[cluster.Name] = is
		}
	}
	return all, nil
}

// basis returns the basis of a Cluster as it is.
func (v *View) basis(ctx context.Context, cluster *clusterv1.Cluster) (basis, bool) {
	edits := v.edits.Load()
	versions, ok := v.versions(ctx, cluster)
	return basis{versions, edits}, ok
}

// versions returns a digest of the resourceVersions of all in the cache from which the PendingChanges of a Cluster are found out, if all of it can be read. A view takes them before it
// looks, so that what changes meanwhile is found out the next time.
func (v *View) versions(ctx context.Context, cluster *clusterv1.Cluster) (uint64, bool) {
	has, err := v.content(ctx, client.ObjectKeyFromObject(cluster))
	if err != nil {
		return 0, false
	}
	sum := has.versions + versionOf(cluster)
	if index.Each(ctx, v.cached(), index.Where{}, &refitv1.ClusterChangeManagementPolicyList{}, func(p *refitv1.ClusterChangeManagementPolicy) error {
		sum += versionOf(p)
		return nil
	}) != nil {
		return 0, false
	}
	for o := range has.owners {
		if o.name == "" {
			continue
		}
		obj, err := v.Owners.meta(ctx, cluster.Namespace, o)
		if err != nil {
			return 0, false
		}
		sum += versionOf(obj)
	}
	return sum, true
}

// content is what is in a Cluster, and which policies are in its namespace: a digest of versions, and who owns the Machines.
type content struct {
	changes  int64 // in the namespace, before
	versions uint64
	owners   map[owner]bool
}

// Watch has Clusters be looked into only where something has changed in their namespaces. It is for the time before the manager starts.
func (v *View) Watch(ctx context.Context, informers index.Informers) error {
	return v.changes.Watch(ctx, informers, &clusterv1.Machine{}, &refitv1.MachineUpdate{}, &refitv1.ChangeManagementPolicy{})
}

// content looks into a Cluster.
func (v *View) content(ctx context.Context, cluster types.NamespacedName) (content, error) {
	changes, known := v.changes.In(cluster.Namespace)
	if last, ok := v.contents.Load(cluster); ok && known && last.(content).changes == changes {
		return last.(content), nil
	}
	is := content{changes: changes, owners: map[owner]bool{}}
	cached, here := v.cached(), index.InCluster(cluster.Namespace, cluster.Name)
	err := cmp.Or(
		index.Each(ctx, cached, here, &clusterv1.MachineList{}, func(m *clusterv1.Machine) error {
			is.owners[ownerOf(m)] = true
			is.versions += versionOf(m)
			return nil
		}),
		index.Each(ctx, cached, here, &refitv1.MachineUpdateList{}, func(mu *refitv1.MachineUpdate) error {
			is.versions += versionOf(mu)
			return nil
		}),
		index.Each(ctx, cached, index.InNamespace(cluster.Namespace), &refitv1.ChangeManagementPolicyList{}, func(p *refitv1.ChangeManagementPolicy) error {
			is.versions += versionOf(p)
			return nil
		}),
	)
	if err == nil {
		v.contents.Store(cluster, is)
	}
	return is, err
}

func versionOf(obj client.Object) uint64 { return maphash.Comparable(hashed, revision.Of(obj)) }

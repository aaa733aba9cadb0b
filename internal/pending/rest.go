package pending

import (
	"context"
	"fmt"
	"hash/maphash"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/index"
)

// restsFor is for how long a Cluster's PendingChanges are not found out again while nothing that they were found out from has changed. Not
// all of that shows: of another Cluster's updates it depends when this one's are expected to be done.
const restsFor = 5 * time.Minute

// rest is what the PendingChanges of a Cluster that were written last were found out from.
type rest struct {
	from  uint64
	until time.Time
	many  int // PendingChanges
}

// at reports whether a Cluster is still as it was.
func (r rest) at(now time.Time, from uint64, many int) bool {
	return r.from == from && r.many == many && now.Before(r.until)
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
	from, err := v.versions(ctx, cluster)
	if err != nil {
		return 0, err
	}
	if last.at(v.Clock.Now(), from, len(written)) {
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
}

// rest has a Cluster rest of which all was written that was seen.
func (v *View) rest(req ctrl.Request, seen *sight, many int) {
	from, ok := seen.from[req.Name]
	if !ok {
		return // all of it is new
	}
	last := rest{from: from, until: seen.at.Add(restsFor), many: many}
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
	v.rests[req.NamespacedName] = last
}

// rests reports whether an entry stays as it is until something happens that versions tell, or until it may start: it is an update that has not begun and may
// not.
func (e *entry) rests(now time.Time) bool {
	return e.update != nil && !e.underWay && (e.earliest.IsZero() || e.earliest.After(now)) && (e.owner.kind != "MachineDeployment" || !e.deployment.at.IsZero())
}

// hashed is for versions of objects.
var hashed = maphash.MakeSeed()

// allVersions returns the versions of the Clusters of a namespace that have PendingChanges.
func (v *View) allVersions(ctx context.Context, namespace string) (map[string]uint64, error) {
	var list refitv1.PendingChangeList
	if err := v.Client.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list PendingChanges: %w", err)
	}
	all := map[string]uint64{}
	for i := range list.Items {
		if list.Items[i].Spec.Owner.Kind != "Cluster" {
			continue
		}
		var cluster clusterv1.Cluster
		err := v.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: list.Items[i].Spec.Cluster}, &cluster)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err == nil {
			all[cluster.Name], err = v.versions(ctx, &cluster)
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// versions returns a digest of the resourceVersions of all in the cache from which the PendingChanges of a Cluster are found out. A view takes them before it
// looks, so that what changes meanwhile is found out the next time.
func (v *View) versions(ctx context.Context, cluster *clusterv1.Cluster) (uint64, error) {
	sum := versionOf(cluster)
	owners := map[owner]bool{}
	add := func(obj client.Object) {
		if m, ok := obj.(*clusterv1.Machine); ok {
			owners[ownerOf(m)] = true
		}
		sum += versionOf(obj)
	}
	for _, of := range []struct {
		list  client.ObjectList
		where client.ListOption
	}{
		{&clusterv1.MachineList{}, index.InCluster(cluster.Namespace, cluster.Name)},
		{&refitv1.MachineUpdateList{}, index.InCluster(cluster.Namespace, cluster.Name)},
		{&refitv1.ChangeManagementPolicyList{}, client.InNamespace(cluster.Namespace)},
		{&refitv1.ClusterChangeManagementPolicyList{}, client.InNamespace("")},
	} {
		if err := v.Client.List(ctx, of.list, of.where, client.UnsafeDisableDeepCopy); err != nil {
			return 0, fmt.Errorf("list what the PendingChanges of Cluster %s depend on: %w", client.ObjectKeyFromObject(cluster), err)
		}
		if err := meta.EachListItem(of.list, func(obj runtime.Object) error {
			add(obj.(client.Object))
			return nil
		}); err != nil {
			return 0, err
		}
	}
	for o := range owners {
		if o.name == "" {
			continue
		}
		obj, err := v.Owners.meta(ctx, cluster.Namespace, o)
		if client.IgnoreNotFound(err) != nil {
			return 0, err
		}
		if err == nil {
			sum += versionOf(obj)
		}
	}
	return sum, nil
}

// versionOf returns a digest of what an object is. Its resourceVersion alone may be that of another one.
func versionOf(obj client.Object) uint64 {
	return maphash.Comparable(hashed, [2]string{string(obj.GetUID()), obj.GetResourceVersion()})
}

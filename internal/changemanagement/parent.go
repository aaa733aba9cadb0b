package changemanagement

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/revision"
)

// parent is a Cluster, or what has made Machines. What it says of changes goes for all of its Machines.
type parent struct {
	revision.Revision
	changed  int64 // the look at which it was another one than before
	children int   // whose records depend on it
}

// lookAtParents finds out which parents have changed. One that does not tell its version may have.
func (b *books) lookAtParents(ctx context.Context) error {
	for o, p := range b.parents {
		if p.children == 0 {
			delete(b.parents, o)
			continue
		}
		now, there, err := b.revisionOf(ctx, o)
		if err != nil {
			return err
		}
		if now != p.Revision || there && now.ResourceVersion == "" {
			p.Revision, p.changed = now, b.look
		}
	}
	return nil
}

// adopt notes on which parents the record of a Machine's update depends. Those that are not known yet are read before the record is.
func (b *books) adopt(ctx context.Context, e *entry, m *clusterv1.Machine) error {
	for _, o := range []owner{{clusterv1.GroupVersion.String(), "Cluster", m.Spec.ClusterName}, ownerOf(m)} {
		if o.name == "" {
			continue
		}
		p := b.parents[o]
		if p == nil {
			now, _, err := b.revisionOf(ctx, o)
			if err != nil {
				return err
			}
			p = &parent{Revision: now, changed: b.look}
			b.parents[o] = p
		}
		p.children++
		e.parents = append(e.parents, p)
	}
	return nil
}

// revisionOf returns which version of a parent the cache has, and whether there is one.
func (b *books) revisionOf(ctx context.Context, o owner) (revision.Revision, bool, error) {
	var obj client.Object = &clusterv1.Cluster{}
	if o.apiVersion != clusterv1.GroupVersion.String() || o.kind != "Cluster" {
		meta := &metav1.PartialObjectMetadata{}
		meta.APIVersion, meta.Kind = o.apiVersion, o.kind
		obj = meta
	}
	key := types.NamespacedName{Namespace: b.namespace, Name: o.name}
	err := b.gate.Client.Get(ctx, key, obj, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return revision.Revision{}, false, fmt.Errorf("read %s %s: %w", o.kind, key, err)
	}
	if err != nil {
		return revision.Revision{}, false, nil
	}
	return revision.Of(obj), true, nil
}

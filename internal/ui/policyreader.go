package ui

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// calendarsAgain is how old the calendars of policies may be.
const calendarsAgain = time.Minute

// policyReader gives change management the policies that were seen, and the labels of Namespaces.
type policyReader struct{ *Fleet }

var _ client.Reader = policyReader{}

// Get implements client.Reader for Namespaces. One that was not seen is an error, and policies of the platform are taken to be for it.
func (r policyReader) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	meta, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return fmt.Errorf("a %T is not watched", obj)
	}
	namespace, ok := one[*corev1.Namespace](r.Fleet, "", key.Name)
	if !ok {
		return apierrors.NewNotFound(corev1.Resource("namespaces"), key.Name)
	}
	meta.Name, meta.Labels = namespace.Name, namespace.Labels
	return nil
}

// List implements client.Reader for policies of both kinds.
func (r policyReader) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *refitv1.ChangeManagementPolicyList:
		each(r.Fleet, func(p *refitv1.ChangeManagementPolicy) { list.Items = append(list.Items, *p) })
	case *refitv1.ClusterChangeManagementPolicyList:
		each(r.Fleet, func(p *refitv1.ClusterChangeManagementPolicy) { list.Items = append(list.Items, *p) })
	default:
		return fmt.Errorf("a %T is not watched", list)
	}
	return nil
}

// readPolicies reads the policies again if they say something else than before, or their calendars may. Statuses change all the time, and don't count.
func (f *Fleet) readPolicies(ctx context.Context) error {
	versions := map[string]string{}
	note := func(o client.Object) {
		h := fnv.New64a()
		for _, key := range slices.Sorted(maps.Keys(o.GetAnnotations())) {
			_, _ = fmt.Fprintf(h, "%q=%q;", key, o.GetAnnotations()[key])
		}
		versions[o.GetNamespace()+"/"+o.GetName()] = fmt.Sprintf("%s/%d/%x", o.GetUID(), o.GetGeneration(), h.Sum64())
	}
	each(f, func(p *refitv1.ChangeManagementPolicy) { note(p) })
	each(f, func(p *refitv1.ClusterChangeManagementPolicy) { note(p) })
	compiled := fmt.Sprint(versions) // in the order of the keys
	now := f.Clock.Now()
	if f.policies.Ready() == nil && compiled == f.compiled && now.Sub(f.read) < calendarsAgain {
		return nil
	}
	if err := f.policies.Prime(ctx); err != nil {
		return fmt.Errorf("read the policies: %w", err)
	}
	f.compiled, f.read = compiled, now
	return nil
}

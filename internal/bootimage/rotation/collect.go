package rotation

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinesets,verbs=list
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=awsmachines;azuremachines;devmachines;dockermachines;gcpmachines;hcloudmachines;hetznerbaremetalmachines;ibmpowervsmachines;ibmvpcmachines;kubevirtmachines;metal3machines;nutanixmachines;openstackmachines;proxmoxmachines;vspheremachines,verbs=list

// kept is how many of the newest templates that descend from one are kept, whether something refers to them or not: to go back
// is then a change of a name.
const kept = 2

// collect deletes templates that refit made for this policy, that are old, and to which nothing refers.
func (p *pass) collect(ctx context.Context) error {
	var gvk schema.GroupVersionKind
	for _, t := range p.templates {
		if t != nil {
			gvk = t.GroupVersionKind()
		}
	}
	if gvk.Empty() {
		return nil // nothing is selected: all stays as it is
	}
	old, err := p.old(ctx, gvk)
	if err != nil || len(old) == 0 {
		return err
	}
	inUse, err := p.inUse(ctx, gvk)
	if err != nil {
		return err
	}
	for i := range old {
		t := &old[i]
		if inUse[t.GetName()] {
			continue
		}
		uid, version := t.GetUID(), t.GetResourceVersion()
		err := p.Client.Delete(ctx, t, client.Preconditions{UID: &uid, ResourceVersion: &version})
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete the old %s %s, to which nothing refers: %w", gvk.Kind, t.GetName(), err)
		}
	}
	return nil
}

// old returns the templates that are not among the newest. One that is owned by something else than Clusters is somebody's, and
// one whose Cluster is not known to run is about to be moved or to go.
func (p *pass) old(ctx context.Context, gvk schema.GroupVersionKind) ([]unstructured.Unstructured, error) {
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err := p.Live.List(ctx, &list, client.InNamespace(p.policy.Namespace), client.HasLabels{refitv1.BootImageTemplateLabel}); err != nil {
		return nil, fmt.Errorf("list the %ss of %s: %w", gvk.Kind, p.policy.Namespace, err)
	}
	byBase := map[string][]unstructured.Unstructured{}
	for _, t := range list.Items {
		base, ours := baseOf(&t)
		if ours && t.GetAnnotations()[refitv1.BootImagePolicyAnnotation] == p.policy.Name && t.GetDeletionTimestamp().IsZero() && p.ownedByClusters(&t) {
			byBase[base] = append(byBase[base], t)
		}
	}
	var out []unstructured.Unstructured
	for _, siblings := range byBase {
		slices.SortFunc(siblings, func(a, b unstructured.Unstructured) int {
			return cmp.Or(b.GetCreationTimestamp().Compare(a.GetCreationTimestamp().Time), cmp.Compare(a.GetName(), b.GetName()))
		})
		out = append(out, siblings[min(kept, len(siblings)):]...)
	}
	return out, nil
}

// ownedByClusters reports whether all owners are Clusters that this pass has read and that are not paused.
func (p *pass) ownedByClusters(t *unstructured.Unstructured) bool {
	return !slices.ContainsFunc(t.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
		cluster := p.clusters[ref.Name]
		return !isCluster(ref) || cluster == nil || cluster.Spec.Paused != nil && *cluster.Spec.Paused
	})
}

// inUse returns the names of the templates to which something refers.
func (p *pass) inUse(ctx context.Context, gvk schema.GroupVersionKind) (map[string]bool, error) {
	out := map[string]bool{}
	for _, f := range append(slices.Clone(families), machineSets) {
		all, err := f.list(ctx, p.Live, p.policy.Namespace, labels.Everything())
		if err != nil {
			return nil, err
		}
		for i := range all {
			if ref := f.reference(&all[i]); ref.APIGroup == gvk.Group && ref.Kind == gvk.Kind {
				out[ref.Name] = true
			}
		}
	}
	var machines metav1.PartialObjectMetadataList
	machines.SetGroupVersionKind(gvk.GroupVersion().WithKind(machineKind(gvk.Kind) + "List"))
	if err := p.Live.List(ctx, &machines, client.InNamespace(p.policy.Namespace)); err != nil {
		return nil, fmt.Errorf("list the %ss of %s: %w", machineKind(gvk.Kind), p.policy.Namespace, err)
	}
	for i := range machines.Items {
		out[machines.Items[i].Annotations[clusterv1.TemplateClonedFromNameAnnotation]] = true
	}
	return out, nil
}

package rotation

import (
	"context"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/labels/format"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/bootimage"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/selection"
)

// family is a kind of targets. They are read as they are, without types, so that a patch changes nothing that this version of
// refit does not know.
type family struct {
	gvk schema.GroupVersionKind
	// machine leads to the template of its machines, and version to their version of Kubernetes.
	machine, version []string
	selector         func(refitv1.BootImageTargets) *metav1.LabelSelector
	// labels are what Cluster API adds to the labels of its machines.
	labels func(name string) map[string]string
}

var deployments = family{
	gvk:     clusterv1.GroupVersion.WithKind("MachineDeployment"),
	machine: []string{"spec", "template"}, version: []string{"spec", "template", "spec", "version"},
	selector: func(t refitv1.BootImageTargets) *metav1.LabelSelector { return t.MachineDeployments },
	labels: func(name string) map[string]string {
		return map[string]string{clusterv1.MachineDeploymentNameLabel: name}
	},
}

var controlPlanes = family{
	gvk:     controlplanev1.GroupVersion.WithKind("KubeadmControlPlane"),
	machine: []string{"spec", "machineTemplate"}, version: []string{"spec", "version"},
	selector: func(t refitv1.BootImageTargets) *metav1.LabelSelector { return t.ControlPlanes },
	labels: func(name string) map[string]string {
		return map[string]string{clusterv1.MachineControlPlaneLabel: "", clusterv1.MachineControlPlaneNameLabel: format.MustFormatValue(name)}
	},
}

var families = []family{controlPlanes, deployments}

// list reads all of a namespace that match a selector. Where the API server does not know the kind there are none.
func (f family) list(ctx context.Context, live client.Reader, namespace string, matching labels.Selector) ([]unstructured.Unstructured, error) {
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(f.gvk.GroupVersion().WithKind(f.gvk.Kind + "List"))
	err := live.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: matching})
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the %ss of %s: %w", f.gvk.Kind, namespace, err)
	}
	return list.Items, nil
}

// reference is the machine template that an object refers to.
func (f family) reference(o *unstructured.Unstructured) clusterv1.ContractVersionedObjectReference {
	ref, _, _ := unstructured.NestedStringMap(o.Object, slices.Concat(f.machine, []string{"spec", "infrastructureRef"})...)
	return clusterv1.ContractVersionedObjectReference{APIGroup: ref["apiGroup"], Kind: ref["kind"], Name: ref["name"]}
}

// target is an object whose machine template may be kept at a golden image.
type target struct {
	family
	object  *unstructured.Unstructured
	cluster *clusterv1.Cluster
	ref     clusterv1.ContractVersionedObjectReference
	// kubernetes is the version of its machines.
	kubernetes string
	subject    inplace.Subject
}

func newTarget(f family, o *unstructured.Unstructured, cluster *clusterv1.Cluster) *target {
	t := &target{family: f, object: o, cluster: cluster, ref: f.reference(o)}
	t.kubernetes, _, _ = unstructured.NestedString(o.Object, f.version...)
	own, _, _ := unstructured.NestedStringMap(o.Object, slices.Concat(f.machine, []string{"metadata", "labels"})...)
	t.subject = inplace.Subject{Namespace: o.GetNamespace(), Cluster: cluster.Name, Labels: map[string]string{}}
	maps.Copy(t.subject.Labels, own)
	maps.Copy(t.subject.Labels, f.labels(o.GetName()))
	t.subject.Labels[clusterv1.ClusterNameLabel] = cluster.Name
	return t
}

// String names the target as people do.
func (t *target) String() string { return t.gvk.Kind + " " + t.object.GetName() }

// onDelete reports whether the machines of a target go only when somebody deletes them.
func (t *target) onDelete() bool {
	strategy, _, _ := unstructured.NestedString(t.object.Object, "spec", "rollout", "strategy", "type")
	return strategy == string(clusterv1.OnDeleteMachineDeploymentStrategyType)
}

func (t *target) paused() bool { return annotations.IsPaused(t.cluster, t.object) }

// clusterOf is the name of the Cluster of a target: a MachineDeployment says it, a KubeadmControlPlane is owned by it.
func clusterOf(o *unstructured.Unstructured) string {
	if name, _, _ := unstructured.NestedString(o.Object, "spec", "clusterName"); name != "" {
		return name
	}
	for _, ref := range o.GetOwnerReferences() {
		if isCluster(ref) {
			return ref.Name
		}
	}
	return o.GetLabels()[clusterv1.ClusterNameLabel]
}

func isCluster(ref metav1.OwnerReference) bool {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && gv.Group == clusterv1.GroupVersion.Group && ref.Kind == "Cluster"
}

// foreign returns who else manages an object that is a target or its template, and what to do instead. Empty: nobody.
func foreign(o *unstructured.Unstructured) string {
	name := o.GetKind() + " " + o.GetName()
	if _, topology := o.GetLabels()[clusterv1.ClusterTopologyOwnedLabel]; topology {
		return name + " is made from a ClusterClass, which would set it back; name the image in the ClusterClass, or in a variable of it"
	}
	if owner, foreign := bootimage.ForeignController(o); foreign {
		return fmt.Sprintf("%s is controlled by %s, which would set it back; name the image there", name, owner)
	}
	return ""
}

// selector is what a rotation selects.
type selector struct {
	machines selection.Selector
	families map[string]labels.Selector
	template schema.GroupKind
}

func newSelector(spec *refitv1.BootImagePolicySpec) (selector, error) {
	s := selector{families: map[string]labels.Selector{}}
	s.template = schema.GroupKind{Group: spec.Rotation.Template.Group, Kind: spec.Rotation.Template.Kind}
	var err error
	if s.machines, err = selection.Read(spec.Selector); err != nil {
		return s, err
	}
	for _, f := range families {
		if s.families[f.gvk.Kind], err = metav1.LabelSelectorAsSelector(f.selector(spec.Rotation.Targets)); err != nil {
			return s, fmt.Errorf("spec.rotation.targets can't be read: %w", err)
		}
	}
	return s, nil
}

func (s selector) selects(t *target) bool {
	return s.families[t.gvk.Kind].Matches(labels.Set(t.object.GetLabels())) &&
		t.ref.APIGroup == s.template.Group && t.ref.Kind == s.template.Kind &&
		s.machines.Cluster(t.cluster.Labels) && s.machines.Machine(selection.RoleOf(t.subject.Labels), t.subject.Labels)
}

// targets reads what a policy selects, uncached: what is read is what is changed.
func (p *pass) targets(ctx context.Context) ([]*target, error) {
	var out []*target
	for _, f := range families {
		matching := p.selector.families[f.gvk.Kind]
		if _, selectable := matching.Requirements(); !selectable {
			continue // nothing matches
		}
		items, err := f.list(ctx, p.Live, p.policy.Namespace, matching)
		if err != nil {
			return nil, err
		}
		for i := range items {
			t, err := p.target(ctx, f, &items[i])
			if err != nil {
				return nil, err
			}
			if t != nil {
				out = append(out, t)
			}
		}
	}
	return out, nil
}

// target returns nil for an object that the policy does not select, and for one that is about to go.
func (p *pass) target(ctx context.Context, f family, o *unstructured.Unstructured) (*target, error) {
	if !o.GetDeletionTimestamp().IsZero() {
		return nil, nil
	}
	name := clusterOf(o)
	cluster, known := p.clusters[name]
	if !known {
		cluster = &clusterv1.Cluster{}
		key := types.NamespacedName{Namespace: o.GetNamespace(), Name: name}
		if err := p.Live.Get(ctx, key, cluster); apierrors.IsNotFound(err) {
			cluster = nil
		} else if err != nil {
			return nil, fmt.Errorf("read Cluster %s: %w", key, err)
		}
		p.clusters[name] = cluster
	}
	if cluster == nil || !cluster.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	if t := newTarget(f, o, cluster); p.selector.selects(t) {
		return t, nil
	}
	return nil, nil
}

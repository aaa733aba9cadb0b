package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"

	"github.com/capi-refit/refit/internal/explain"
	"github.com/capi-refit/refit/internal/fieldset"
)

// Writer makes dry runs.
type Writer interface {
	Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error
}

// Differences returns what differs between a Machine and what its owner wants.
type Differences interface {
	Difference(ctx context.Context, machine client.ObjectKey) (fieldset.Change, error)
}

// Cluster is a management cluster.
type Cluster struct {
	Client client.Reader
	Writer Writer
	// Differences are those of Machines.
	Differences Differences
	// FieldManager is by which name a dry run applies.
	FieldManager string
}

// The kinds that are read.
var (
	deployments   = clusterv1.GroupVersion.WithKind("MachineDeployment")
	machineSets   = clusterv1.GroupVersion.WithKind("MachineSet")
	clusters      = clusterv1.GroupVersion.WithKind("Cluster")
	classes       = clusterv1.GroupVersion.WithKind("ClusterClass")
	controlPlanes = controlplanev1.GroupVersion.WithKind("KubeadmControlPlane")
)

// get reads an object. Nil: it is not there.
func (c *Cluster) get(ctx context.Context, gvk schema.GroupVersionKind, key client.ObjectKey) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(gvk)
	switch err := c.Client.Get(ctx, key, o); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read %s %s: %w", gvk.Kind, key, err)
	}
	return o, nil
}

// Diff returns the objects of files as they are, and as they would be if they were applied, defaults and webhooks included, each side with the templates
// and ClusterClasses that belong to it. Objects that say nothing about machines are left out.
func (c *Cluster) Diff(ctx context.Context, files *explain.Set) (from, to *explain.Set, err error) {
	from, _ = explain.NewSet()
	to, _ = explain.NewSet()
	for _, key := range files.Keys() {
		o := files.Get(key)
		now, err := c.get(ctx, o.GroupVersionKind(), client.ObjectKeyFromObject(o))
		if err != nil {
			return nil, nil, err
		}
		after, err := c.dryRun(ctx, o)
		if err != nil {
			return nil, nil, err
		}
		if now != nil {
			if err := from.Add(now); err != nil {
				return nil, nil, err
			}
		}
		if err := to.Add(after); err != nil {
			return nil, nil, err
		}
	}
	if err := c.users(ctx, files, from, to); err != nil {
		return nil, nil, err
	}
	if err := c.Complete(ctx, from); err != nil {
		return nil, nil, err
	}
	return from, to, c.Complete(ctx, to)
}

// dryRun returns what an object would be.
func (c *Cluster) dryRun(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	after := o.DeepCopy()
	for _, field := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"} {
		unstructured.RemoveNestedField(after.Object, "metadata", field)
	}
	delete(after.Object, "status")
	err := c.Writer.Apply(ctx, client.ApplyConfigurationFromUnstructured(after), client.DryRunAll, client.FieldOwner(c.FieldManager), client.ForceOwnership)
	if err != nil {
		return nil, fmt.Errorf("the API server does not take %s %s: %w", o.GetKind(), client.ObjectKeyFromObject(o), withoutValues(err))
	}
	return after, nil
}

// withoutValues leaves out of an API server's error what it says of the values of fields.
func withoutValues(err error) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) || status.Status().Details == nil {
		return err
	}
	var fields []string
	for _, cause := range status.Status().Details.Causes {
		fields = append(fields, fmt.Sprintf("%s (%s)", cause.Field, cause.Type))
	}
	return errors.New("it is invalid: " + strings.Join(fields, ", "))
}

// users adds to both sides what uses objects of the files and is not among them: owners and ClusterClasses that name a template, and Clusters of a
// ClusterClass.
func (c *Cluster) users(ctx context.Context, files, from, to *explain.Set) error {
	var namespaces []string
	for _, key := range files.Keys() {
		if strings.HasSuffix(key.Kind, clusterv1.TemplateSuffix) && !slices.Contains(namespaces, key.Namespace) {
			namespaces = append(namespaces, key.Namespace)
		}
	}
	for _, namespace := range namespaces {
		for _, kind := range []schema.GroupVersionKind{deployments, controlPlanes, classes} {
			if err := c.naming(ctx, kind, namespace, files, from, to); err != nil {
				return err
			}
		}
	}
	for _, key := range to.Keys() {
		if key.GroupKind == classes.GroupKind() {
			if err := c.ofClass(ctx, key, files, from, to); err != nil {
				return err
			}
		}
	}
	return nil
}

// naming adds to both sides the objects of a kind that name a template of the files. A kind that is not there has none.
func (c *Cluster) naming(ctx context.Context, kind schema.GroupVersionKind, namespace string, files, from, to *explain.Set) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	switch err := c.Client.List(ctx, list, client.InNamespace(namespace)); {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("find out which %ss in namespace %s name templates: %w", kind.Kind, namespace, err)
	}
	for i := range list.Items {
		o := &list.Items[i]
		o.SetGroupVersionKind(kind)
		one, err := explain.NewSet(o)
		if err != nil {
			return err
		}
		named := slices.ContainsFunc(one.Templates(), func(key explain.Key) bool { return files.Get(key) != nil })
		if !named || files.Get(one.Keys()[0]) != nil {
			continue
		}
		if err := errors.Join(from.Add(o), to.Add(o)); err != nil {
			return err
		}
	}
	return nil
}

// ofClass adds to both sides the Clusters of a ClusterClass.
func (c *Cluster) ofClass(ctx context.Context, key explain.Key, files, from, to *explain.Set) error {
	var list clusterv1.ClusterList
	if err := c.Client.List(ctx, &list); err != nil {
		return fmt.Errorf("list the Clusters of %s: %w", key, err)
	}
	for i := range list.Items {
		cluster := &list.Items[i]
		if !cluster.Spec.Topology.IsDefined() || cluster.GetClassKey() != (client.ObjectKey{Namespace: key.Namespace, Name: key.Name}) {
			continue
		}
		of := explain.Key{GroupKind: clusters.GroupKind(), Namespace: cluster.Namespace, Name: cluster.Name}
		if files.Get(of) != nil {
			continue
		}
		o, err := c.get(ctx, clusters, client.ObjectKeyFromObject(cluster))
		if err != nil {
			return err
		}
		if o == nil {
			continue
		}
		if err := errors.Join(from.Add(o), to.Add(o)); err != nil {
			return err
		}
	}
	return nil
}

// Complete adds to a side what its owners point to and is not there yet. What is gone is left out, and told by who compares.
func (c *Cluster) Complete(ctx context.Context, set *explain.Set) error {
	for _, key := range set.Keys() {
		if key.GroupKind != clusters.GroupKind() {
			continue
		}
		if err := c.addClass(ctx, set, key); err != nil {
			return err
		}
	}
	for _, key := range set.Templates() {
		if set.Get(key) != nil {
			continue
		}
		ref := clusterv1.ContractVersionedObjectReference{APIGroup: key.Group, Kind: key.Kind, Name: key.Name}
		o, err := external.GetObjectFromContractVersionedRef(ctx, c.Client, ref, key.Namespace)
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return fmt.Errorf("read %s: %w", key, err)
		}
		if err := set.Add(o); err != nil {
			return err
		}
	}
	return nil
}

// addClass adds the ClusterClass of a Cluster.
func (c *Cluster) addClass(ctx context.Context, set *explain.Set, key explain.Key) error {
	var cluster clusterv1.Cluster
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(set.Get(key).Object, &cluster); err != nil || !cluster.Spec.Topology.IsDefined() {
		return nil // who compares says so
	}
	if set.Get(explain.Key{GroupKind: classes.GroupKind(), Namespace: cluster.GetClassKey().Namespace, Name: cluster.GetClassKey().Name}) != nil {
		return nil
	}
	o, err := c.get(ctx, classes, cluster.GetClassKey())
	if o == nil || err != nil {
		return err
	}
	return set.Add(o)
}

// Machines returns those of an owner that is told, in order.
func (c *Cluster) Machines(ctx context.Context, o *explain.Owner) ([]clusterv1.Machine, error) {
	labels := LabelsOf(o)
	if labels == nil {
		return nil, nil
	}
	return c.machines(ctx, o.Namespace, labels)
}

// LabelsOf returns the labels of the Machines of an owner that is told; nil if it is none.
func LabelsOf(o *explain.Owner) map[string]string {
	labels := map[string]string{clusterv1.ClusterNameLabel: o.Cluster}
	switch {
	case o.Kind == deployments.Kind:
		labels[clusterv1.MachineDeploymentNameLabel] = o.Name
	case o.Kind == controlPlanes.Kind:
		labels[clusterv1.MachineControlPlaneLabel] = ""
	case o.Topology() != "":
		labels[clusterv1.ClusterTopologyMachineDeploymentNameLabel] = o.Topology()
	case o.Kind == clusters.Kind && o.IsControlPlane():
		labels[clusterv1.MachineControlPlaneLabel] = ""
	default:
		return nil
	}
	return labels
}

func (c *Cluster) machines(ctx context.Context, namespace string, labels client.MatchingLabels) ([]clusterv1.Machine, error) {
	var list clusterv1.MachineList
	if err := c.Client.List(ctx, &list, client.InNamespace(namespace), labels); err != nil {
		return nil, fmt.Errorf("list Machines in namespace %s: %w", namespace, err)
	}
	slices.SortFunc(list.Items, func(a, b clusterv1.Machine) int { return cmp.Compare(a.Name, b.Name) })
	return list.Items, nil
}

// Owners returns the owners that a kind and a name stand for: itself, or all of a Cluster.
func (c *Cluster) Owners(ctx context.Context, kind, namespace, name string) ([]*unstructured.Unstructured, error) {
	gvk, ok := map[string]schema.GroupVersionKind{
		"machinedeployment": deployments, "machinedeployments": deployments, "md": deployments, "kubeadmcontrolplane": controlPlanes, "kubeadmcontrolplanes": controlPlanes,
		"kcp": controlPlanes, "cluster": clusters, "clusters": clusters, "cl": clusters,
	}[strings.ToLower(kind)]
	if !ok {
		return nil, fmt.Errorf("%q is not a kind that owns Machines; say machinedeployment/NAME, kubeadmcontrolplane/NAME or cluster/NAME", kind)
	}
	o, err := c.get(ctx, gvk, client.ObjectKey{Namespace: namespace, Name: name})
	if err != nil {
		return nil, err
	}
	if o == nil {
		return nil, fmt.Errorf("there is no %s %s/%s; say where it is with --namespace", gvk.Kind, namespace, name)
	}
	if gvk != clusters {
		return []*unstructured.Unstructured{o}, nil
	}
	return c.ofCluster(ctx, o)
}

// ofCluster returns the owners of the Machines of a Cluster.
func (c *Cluster) ofCluster(ctx context.Context, cluster *unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	kind, _, _ := unstructured.NestedString(cluster.Object, "spec", "controlPlaneRef", "kind")
	name, _, _ := unstructured.NestedString(cluster.Object, "spec", "controlPlaneRef", "name")
	if kind == controlPlanes.Kind {
		o, err := c.get(ctx, controlPlanes, client.ObjectKey{Namespace: cluster.GetNamespace(), Name: name})
		if err != nil {
			return nil, err
		}
		if o != nil {
			out = append(out, o)
		}
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(deployments.GroupVersion().WithKind("MachineDeploymentList"))
	if err := c.Client.List(ctx, list, client.InNamespace(cluster.GetNamespace()), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.GetName()}); err != nil {
		return nil, fmt.Errorf("list the MachineDeployments of Cluster %s: %w", client.ObjectKeyFromObject(cluster), err)
	}
	slices.SortFunc(list.Items, func(a, b unstructured.Unstructured) int { return cmp.Compare(a.GetName(), b.GetName()) })
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out, nil
}

// Lots returns the Machines of an owner that is there, with what differs: of a MachineDeployment those of each MachineSet together.
func (c *Cluster) Lots(ctx context.Context, owner *unstructured.Unstructured, cluster string) ([]explain.Lot, error) {
	labels := client.MatchingLabels{clusterv1.ClusterNameLabel: cluster, clusterv1.MachineControlPlaneLabel: ""}
	if owner.GetKind() == deployments.Kind {
		labels = client.MatchingLabels{clusterv1.ClusterNameLabel: cluster, clusterv1.MachineDeploymentNameLabel: owner.GetName()}
	}
	machines, err := c.machines(ctx, owner.GetNamespace(), labels)
	if err != nil {
		return nil, err
	}
	updates, err := c.updates(ctx, owner.GetNamespace(), cluster)
	if err != nil {
		return nil, err
	}
	var lots []explain.Lot
	sets := map[string]int{}
	for _, m := range machines {
		set := ""
		if ref := metav1.GetControllerOf(&m); ref != nil && ref.Kind == machineSets.Kind {
			set = ref.Name
		}
		if i, ok := sets[set]; ok && set != "" {
			lots[i].Machines = append(lots[i].Machines, m)
			continue
		}
		sets[set] = len(lots)
		lot, err := c.lot(ctx, m, set)
		if err != nil {
			return nil, err
		}
		lot.Updates = updates
		lots = append(lots, lot)
	}
	return lots, nil
}

// lot returns that of a Machine, which may be of a MachineSet.
func (c *Cluster) lot(ctx context.Context, m clusterv1.Machine, set string) (explain.Lot, error) {
	lot := explain.Lot{Machines: []clusterv1.Machine{m}, Made: m.CreationTimestamp.Time}
	if set != "" {
		o, err := c.get(ctx, machineSets, client.ObjectKey{Namespace: m.Namespace, Name: set})
		if err != nil {
			return lot, err
		}
		if o != nil {
			lot.Made = o.GetCreationTimestamp().Time
		}
	}
	lot.Change, lot.Err = c.Differences.Difference(ctx, client.ObjectKeyFromObject(&m))
	return lot, ctx.Err()
}

package explain

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// The kinds that own machines, or say how they are made.
var (
	deployments   = clusterv1.GroupVersion.WithKind("MachineDeployment").GroupKind()
	clusters      = clusterv1.GroupVersion.WithKind("Cluster").GroupKind()
	classes       = clusterv1.GroupVersion.WithKind("ClusterClass").GroupKind()
	controlPlanes = controlplanev1.GroupVersion.WithKind("KubeadmControlPlane").GroupKind()
	kubeadm       = bootstrapv1.GroupVersion.WithKind("KubeadmConfig").GroupKind()
)

// apiGroup is that of Cluster API, and the ends of those of its providers.
const apiGroup = "cluster.x-k8s.io"

// versioned are the kinds of which refit knows one version.
var versioned = []schema.GroupKind{
	deployments, clusters, classes, controlPlanes, templateOf(controlPlanes), templateOf(kubeadm),
}

func templateOf(kind schema.GroupKind) schema.GroupKind {
	return schema.GroupKind{Group: kind.Group, Kind: kind.Kind + clusterv1.TemplateSuffix}
}

// Key identifies an object. Its version is not a part of that.
type Key struct {
	schema.GroupKind
	Namespace, Name string
}

// String names the object as people do.
func (k Key) String() string { return k.Kind + " " + named(k.Namespace, k.Name) }

func named(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

func keyOf(o *unstructured.Unstructured) Key {
	return Key{o.GroupVersionKind().GroupKind(), o.GetNamespace(), o.GetName()}
}

// Set are the objects of one side: as they are, or as they will be.
type Set struct {
	objects map[Key]*unstructured.Unstructured
	left    map[string]int // how many objects there are of kinds that say nothing about machines
}

// NewSet returns a Set of objects.
func NewSet(objects ...*unstructured.Unstructured) (*Set, error) {
	s := &Set{objects: map[Key]*unstructured.Unstructured{}, left: map[string]int{}}
	for _, o := range objects {
		if err := s.Add(o); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Add adds an object. One that says nothing about machines is counted only. One that is there already, or of a version that refit can't read, is an error.
func (s *Set) Add(o *unstructured.Unstructured) error {
	key := keyOf(o)
	if !Relevant(key.GroupKind) {
		s.left[cmp.Or(key.Kind, "documents that are no objects")]++
		return nil
	}
	if key.Name == "" {
		return fmt.Errorf("a %s has no name", key.Kind)
	}
	if slices.Contains(versioned, key.GroupKind) && o.GroupVersionKind().Version != clusterv1.GroupVersion.Version {
		return fmt.Errorf("%s is of %s, and refit reads %s only: write it in that version (an API server that has it converts it: kubectl get %s.%s.%s %s -o yaml)",
			key, o.GetAPIVersion(), clusterv1.GroupVersion.Version, plural(key.Kind), clusterv1.GroupVersion.Version, key.Group, key.Name)
	}
	if s.objects[key] != nil {
		return fmt.Errorf("%s is there twice", key)
	}
	if field := wrongReplicas(o); field != "" {
		return fmt.Errorf("%s of %s is no number of replicas", field, key)
	}
	s.objects[key] = o
	return nil
}

// wrongReplicas names the first field for replicas of an owner or a topology that no API server takes; empty: there is none.
func wrongReplicas(o *unstructured.Unstructured) string {
	switch keyOf(o).GroupKind {
	case deployments, controlPlanes:
		return wrongNumber(o.Object, "spec", "replicas")
	case clusters:
		if field := wrongNumber(o.Object, "spec", "topology", "controlPlane", "replicas"); field != "" {
			return field
		}
		for _, workers := range []string{"machineDeployments", "machinePools"} {
			all, _, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "topology", "workers", workers)
			list, _ := all.([]any)
			for i, one := range list {
				fields, _ := one.(map[string]any)
				if wrongNumber(fields, "replicas") != "" {
					return fmt.Sprintf("spec.topology.workers.%s[%d].replicas", workers, i)
				}
			}
		}
	}
	return ""
}

// wrongNumber returns the path of a field that is there and can't be how many there are; empty: it can.
func wrongNumber(fields map[string]any, path ...string) string {
	value, found, err := unstructured.NestedFieldNoCopy(fields, path...)
	if n, ok := value.(int64); err != nil || !found || value == nil || ok && n >= 0 && n <= math.MaxInt32 {
		return "" // what is above it is for who reads it
	}
	return strings.Join(path, ".")
}

// plural is the resource of a kind of Cluster API.
func plural(kind string) string {
	lower := strings.ToLower(kind)
	if strings.HasSuffix(lower, "s") {
		return lower + "es"
	}
	return lower + "s"
}

// Relevant reports whether objects of a kind say something about machines.
func Relevant(kind schema.GroupKind) bool {
	switch kind {
	case deployments, clusters, classes, controlPlanes:
		return true
	}
	return isTemplate(kind)
}

// isTemplate reports whether machines are made of objects of a kind.
func isTemplate(kind schema.GroupKind) bool {
	switch kind.Group {
	case kubeadm.Group:
		return strings.HasSuffix(kind.Kind, clusterv1.TemplateSuffix)
	case controlPlanes.Group:
		return kind.Kind == controlPlanes.Kind+clusterv1.TemplateSuffix
	default:
		return strings.HasSuffix(kind.Group, "."+apiGroup) && strings.HasSuffix(kind.Kind, "Machine"+clusterv1.TemplateSuffix)
	}
}

// Get returns an object, or nil if it is not there.
func (s *Set) Get(key Key) *unstructured.Unstructured { return s.objects[key] }

// Keys returns those of the objects, in order.
func (s *Set) Keys() []Key {
	return slices.SortedFunc(maps.Keys(s.objects), compareKeys)
}

func compareKeys(a, b Key) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name), strings.Compare(a.Group, b.Group))
}

// union returns the keys of two sides, in order.
func union(from, to *Set) []Key {
	all := from.Keys()
	for _, k := range to.Keys() {
		if from.Get(k) == nil {
			all = append(all, k)
		}
	}
	slices.SortFunc(all, compareKeys)
	return all
}

// LeftOut says what of a side says nothing about machines. Empty: nothing.
func (s *Set) LeftOut() string { return leftOut(s, &Set{}) }

// leftOut says what of two sides says nothing about machines. Empty: nothing.
func leftOut(from, to *Set) string {
	counts := maps.Clone(from.left)
	for kind, n := range to.left {
		counts[kind] = max(counts[kind], n)
	}
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprintf("%s (%d)", kind, counts[kind]))
	}
	if len(all) == 0 {
		return ""
	}
	return "left out, since refit knows nothing of them that concerns machines: " + strings.Join(all, ", ")
}

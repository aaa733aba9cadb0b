package changemanagement

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/selection"
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines;clusters;machinedeployments,verbs=get;list;watch
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=*,verbs=get;list;watch

// Candidate is a Machine, or what will be one, as policies see it.
type Candidate struct {
	inplace.Subject
	ClusterLabels labels.Set
	// Role is what it is in its cluster.
	Role refitv1.Role
	// UID tells Machines apart.
	UID types.UID
	// Overrides are those of the Machine and of what it belongs to.
	Overrides Overrides
}

// owner is the object that has made a Machine: a control plane or a MachineDeployment.
type owner struct {
	apiVersion, kind, name string
}

// RoleOf returns what a Machine with the labels is in its cluster.
func RoleOf(machineLabels map[string]string) refitv1.Role { return selection.RoleOf(machineLabels) }

// Candidates reads what policies have to know of Machines out of caches.
type Candidates struct{ Client client.Reader }

// Machine returns the Candidate of a Machine.
func (s Candidates) Machine(ctx context.Context, m *clusterv1.Machine) (*Candidate, error) {
	candidate := &Candidate{Subject: inplace.SubjectOf(m), Role: RoleOf(m.Labels), UID: m.UID}
	return candidate, s.complete(ctx, candidate, ownerOf(m), m)
}

// ownerOf returns what has made the Machine, or nothing for one that stands alone.
func ownerOf(m *clusterv1.Machine) owner {
	if name := m.Labels[clusterv1.MachineDeploymentNameLabel]; name != "" {
		return owner{clusterv1.GroupVersion.String(), "MachineDeployment", name}
	}
	if !util.IsControlPlaneMachine(m) {
		return owner{}
	}
	if ref := metav1.GetControllerOf(m); ref != nil {
		return owner{ref.APIVersion, ref.Kind, ref.Name}
	}
	return owner{}
}

// complete adds to a candidate what its Cluster and its owner say; with others, whose annotations count too.
func (s Candidates) complete(ctx context.Context, candidate *Candidate, o owner, others ...metav1.Object) error {
	key := types.NamespacedName{Namespace: candidate.Namespace, Name: candidate.Cluster}
	var cluster clusterv1.Cluster
	if err := s.Client.Get(ctx, key, &cluster); err != nil {
		return fmt.Errorf("read Cluster %s: %w", key, err)
	}
	candidate.ClusterLabels = cluster.Labels
	candidate.Overrides.read("Cluster", &cluster)
	if o.name != "" {
		var meta metav1.PartialObjectMetadata
		meta.APIVersion, meta.Kind = o.apiVersion, o.kind
		key := types.NamespacedName{Namespace: candidate.Namespace, Name: o.name}
		// One that is gone takes its Machines with it. Until then they are without its overrides.
		if err := client.IgnoreNotFound(s.Client.Get(ctx, key, &meta)); err != nil {
			return fmt.Errorf("read %s %s: %w", o.kind, key, err)
		}
		candidate.Overrides.read(o.kind, &meta)
	}
	for _, obj := range others {
		candidate.Overrides.read("Machine", obj)
	}
	return nil
}

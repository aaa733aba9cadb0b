package rotation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=list

// doomed are the annotations of machines that Cluster API deletes in the next rollout, whatever the hooks would answer.
var doomed = []string{clusterv1.DeleteMachineAnnotation, clusterv1.RemediateMachineAnnotation}

// unwell returns why a rollout of a control plane would delete a machine of which Cluster API asks nobody. Empty: it would not. When
// only the machine whose turn it is keeps a control plane from being stable, Cluster API deletes it instead of asking whether it may
// stay, and a machine that is not healthy has its turn first.
func (p *pass) unwell(ctx context.Context, t *target) (string, error) {
	if !p.keepsEach(t) {
		return "", nil
	}
	var cp controlplanev1.KubeadmControlPlane
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(t.object.Object, &cp); err != nil {
		return "", fmt.Errorf("how the machines of %s are can't be told: %w", t, err)
	}
	if reason := unsteady(&cp); reason != "" {
		return reason, nil
	}
	return p.marked(ctx, t)
}

// unsteady returns what a control plane tells of itself by which not all of its machines are there and healthy.
func unsteady(cp *controlplanev1.KubeadmControlPlane) string {
	st := &cp.Status
	if st.ObservedGeneration < cp.Generation {
		return "Cluster API has not acted upon its last change yet"
	}
	wanted := ptr.Deref(cp.Spec.Replicas, 1)
	there, ready, current := ptr.Deref(st.Replicas, 0), ptr.Deref(st.ReadyReplicas, 0), ptr.Deref(st.UpToDateReplicas, 0)
	if there != wanted || ready != wanted || current != wanted {
		return fmt.Sprintf("it is to have %d machines and has %d, of which %d are ready and %d up to date", wanted, there, ready, current)
	}
	health := []string{controlplanev1.KubeadmControlPlaneControlPlaneComponentsHealthyCondition}
	// What is said of an etcd elsewhere is not Cluster API's, which does not heed it.
	if !cp.Spec.KubeadmConfigSpec.ClusterConfiguration.Etcd.External.IsDefined() {
		health = append(health, controlplanev1.KubeadmControlPlaneEtcdClusterHealthyCondition)
	}
	for _, name := range health {
		switch c := meta.FindStatusCondition(st.Conditions, name); {
		case c == nil:
			return "its condition " + name + " is not there yet"
		case c.Status != metav1.ConditionTrue:
			return fmt.Sprintf("its condition %s is %s: %s", name, c.Status, strings.Join(strings.Fields(c.Message), " "))
		}
	}
	return ""
}

// keepsEach reports whether Cluster API is to keep the machines of a target by asking about each of them: of a control plane.
func (p *pass) keepsEach(t *target) bool { return t.gvk.Kind == controlPlanes.gvk.Kind && p.keeps(t) }

// members are the Machines of a control plane: all that Cluster API counts.
func (p *pass) members(ctx context.Context, t *target) ([]metav1.PartialObjectMetadata, error) {
	var machines metav1.PartialObjectMetadataList
	machines.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineList"))
	err := p.Live.List(ctx, &machines, client.InNamespace(p.policy.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: t.cluster.Name}, client.HasLabels{clusterv1.MachineControlPlaneLabel})
	if err != nil {
		return nil, fmt.Errorf("list the Machines of %s: %w", t, err)
	}
	slices.SortFunc(machines.Items, func(a, b metav1.PartialObjectMetadata) int { return strings.Compare(a.Name, b.Name) })
	return machines.Items, nil
}

// digestOfMembers is a digest of that by which policies select Machines.
func digestOfMembers(members []metav1.PartialObjectMetadata) string {
	var all []any
	for i := range members {
		all = append(all, members[i].UID, members[i].Labels)
	}
	return digestOf(all...)
}

// marked returns which machine of a control plane is to be deleted or remediated by an annotation.
func (p *pass) marked(ctx context.Context, t *target) (string, error) {
	members, err := p.members(ctx, t)
	if err != nil {
		return "", err
	}
	for i := range members {
		m := &members[i]
		for _, annotation := range doomed {
			if _, has := m.Annotations[annotation]; has {
				return fmt.Sprintf("Machine %s has the annotation %s; take it away, or have the machine go first", m.Name, annotation), nil
			}
		}
	}
	return "", nil
}

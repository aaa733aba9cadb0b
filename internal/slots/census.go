package slots

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/index"
)

// slot says what a Machine has a slot for.
type slot int

const (
	none slot = iota
	updating
	failed
)

// member is a Machine of a cluster as slots see it.
type member struct {
	name, node string
	// domain is its failure domain, "" if it is in none.
	domain string
	role   refitv1.Role
	slot   slot
	// changed reports whether its node may be half changed: it does not give back a slot that it has.
	changed bool
	// soaks reports whether its node is watched before its update has succeeded.
	soaks bool
	// ill is the first sign that the node is out, or of a control plane that it is not healthy. "" if there is none.
	ill string
	// down reports whether nothing is lost by disturbing the node: a worker that is not ready, or a control plane whose etcd member is
	// known to be down.
	down bool
}

func memberOf(m *clusterv1.Machine) member {
	one := member{name: m.Name, node: m.Status.NodeRef.Name, domain: m.Status.FailureDomain, role: changemanagement.RoleOf(m.Labels)}
	if one.domain == "" {
		one.domain = m.Spec.FailureDomain
	}
	one.ill, one.down = illness(m, one.role), isDown(m, one.role)
	return one
}

// isDown reports whether nobody loses a node that is disturbed. When in doubt the node is up: Cluster API makes the condition Unknown also
// where it could not ask, and then all workers look alike.
func isDown(m *clusterv1.Machine, role refitv1.Role) bool {
	if role == refitv1.ControlPlaneRole {
		return etcdIsDown(m)
	}
	ready := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineNodeReadyCondition)
	return m.Status.NodeRef.Name != "" && ready != nil &&
		(ready.Status == metav1.ConditionFalse || ready.Status == metav1.ConditionUnknown && ready.Reason == clusterv1.MachineNodeReadyUnknownReason)
}

// etcdIsDown reports whether the etcd member of a control plane is known to take no part in votes: KubeadmControlPlane reports it as not
// healthy, and that its container has failed. One of the two is not enough. A member that has raised an alarm, for lack of space say, is not
// healthy and votes, and a learner may soon. A container that has failed once may run again by now. Nor does it tell anything that the kubelet
// is silent, that the pod is not ready, or that KubeadmControlPlane could not ask: etcd may run on. When in doubt the member votes.
func etcdIsDown(m *clusterv1.Machine) bool {
	pod := meta.FindStatusCondition(m.Status.Conditions, controlplanev1.KubeadmControlPlaneMachineEtcdPodHealthyCondition)
	return meta.IsStatusConditionFalse(m.Status.Conditions, controlplanev1.KubeadmControlPlaneMachineEtcdMemberHealthyCondition) &&
		pod != nil && pod.Status == metav1.ConditionFalse && pod.Reason == controlplanev1.KubeadmControlPlaneMachinePodFailedReason
}

// componentConditions are those that a KubeadmControlPlane sets on its Machines. It leaves out the ones of etcd when that is
// external, and other control planes set none of them.
var componentConditions = []string{
	controlplanev1.KubeadmControlPlaneMachineAPIServerPodHealthyCondition,
	controlplanev1.KubeadmControlPlaneMachineControllerManagerPodHealthyCondition,
	controlplanev1.KubeadmControlPlaneMachineSchedulerPodHealthyCondition,
	controlplanev1.KubeadmControlPlaneMachineEtcdPodHealthyCondition,
	controlplanev1.KubeadmControlPlaneMachineEtcdMemberHealthyCondition,
}

// illness returns the first sign against a Machine, or "". The conditions of the node are set by Cluster API on each Machine, so
// that without one it is not known to be ready.
func illness(m *clusterv1.Machine, role refitv1.Role) string {
	switch {
	case !m.DeletionTimestamp.IsZero():
		return "being deleted"
	case m.Status.NodeRef.Name == "":
		return "no node yet"
	case !meta.IsStatusConditionTrue(m.Status.Conditions, clusterv1.MachineNodeReadyCondition):
		return "not ready"
	case role != refitv1.ControlPlaneRole:
		return ""
	case !meta.IsStatusConditionTrue(m.Status.Conditions, clusterv1.MachineNodeHealthyCondition):
		return clusterv1.MachineNodeHealthyCondition + " is not True"
	}
	for _, name := range componentConditions {
		if c := meta.FindStatusCondition(m.Status.Conditions, name); c != nil && c.Status != metav1.ConditionTrue {
			return name + " is not True"
		}
	}
	return ""
}

// census is the Machines of a cluster, by role.
type census map[refitv1.Role][]member

func (c census) add(one member) { c[one.role] = append(c[one.role], one) }

// count reads the Machines of a cluster, and who of them has a slot.
func (s *Slots) count(ctx context.Context, c *cluster) (census, error) {
	holders, err := s.remembered(ctx, c)
	if err != nil {
		return nil, err
	}
	// Nothing that is listed is changed, so that the cache need not copy thousands of objects.
	var machines clusterv1.MachineList
	if err := s.Client.List(ctx, &machines, index.InCluster(c.key.Namespace, c.key.Name), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the Machines of Cluster %s: %w", c.key, err)
	}
	members := census{}
	for i := range machines.Items {
		m := &machines.Items[i]
		h, err := s.holder(ctx, m, holders)
		if err != nil {
			return nil, err
		}
		one := memberOf(m)
		if h != nil {
			if !isOf(h.owner, m) {
				holders[m.Name] = *h
				continue // one of the two is of another time
			}
			one.slot, one.changed, one.soaks = h.slot, h.changed, h.soaks
			delete(holders, m.Name)
		}
		members.add(one)
	}
	return members, s.rest(ctx, c, members, holders)
}

// holder returns who has the slot of a Machine, or nil: one that is remembered, or the MachineUpdate of its name, whose labels say nothing,
// since anybody may edit them.
func (s *Slots) holder(ctx context.Context, m *clusterv1.Machine, remembered map[string]holder) (*holder, error) {
	if h, ok := remembered[m.Name]; ok {
		return &h, nil
	}
	mu, err := s.cached(ctx, client.ObjectKeyFromObject(m))
	if err != nil || mu == nil || mu.Status.Slot == nil {
		return nil, err
	}
	h := holderOf(mu)
	return &h, nil
}

// cached returns a MachineUpdate as the cache has it, or nil. It must not be changed.
func (s *Slots) cached(ctx context.Context, key types.NamespacedName) (*refitv1.MachineUpdate, error) {
	var mu refitv1.MachineUpdate
	switch err := s.Client.Get(ctx, key, &mu, client.UnsafeDisableDeepCopy); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read MachineUpdate %s: %w", key, err)
	}
	return mu.Restored(), nil
}

// rest adds the Machines that have a slot and that the cache does not know as they are now. A MachineUpdate whose Machine is gone
// has none; nor has one whose Machine was made again. They are about to go, too.
func (s *Slots) rest(ctx context.Context, c *cluster, members census, holders map[string]holder) error {
	for name, h := range holders {
		key := types.NamespacedName{Namespace: c.key.Namespace, Name: name}
		var m clusterv1.Machine
		switch err := s.Live.Get(ctx, key, &m); {
		case apierrors.IsNotFound(err), err == nil && m.Spec.ClusterName != c.key.Name:
			continue
		case err != nil:
			return fmt.Errorf("read Machine %s: %w", key, err)
		}
		one := memberOf(&m)
		if isOf(h.owner, &m) {
			one.slot, one.changed, one.soaks = h.slot, h.changed, h.soaks
		}
		members.add(one)
	}
	return nil
}

// remembered returns who has a slot of those that took one here or had one before, by the name of the Machine.
func (s *Slots) remembered(ctx context.Context, c *cluster) (map[string]holder, error) {
	holders := map[string]holder{}
	for name, t := range c.taken {
		mu, err := s.cached(ctx, types.NamespacedName{Namespace: c.key.Namespace, Name: name})
		if err != nil {
			return nil, err
		}
		h, err := s.settle(ctx, c, name, t, mu)
		if err != nil {
			return nil, err
		}
		if h != nil {
			holders[name] = *h
		}
	}
	return holders, nil
}

package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/nodeaccess"
	"github.com/capi-refit/refit/internal/rollout"
	"github.com/capi-refit/refit/schedule"
)

// policies looks for policies that can't be read, and for those that never open.
func (c *Checker) policies(ctx context.Context) []Finding {
	const check = "policies"
	p := changemanagement.NewPolicies(c.Client, c.Client, c.Clock)
	p.Namespace = changemanagement.Installed
	if err := p.Prime(ctx); err != nil {
		return []Finding{unknown(check, "", err)}
	}
	refused, err := c.refused(ctx)
	if err != nil {
		return []Finding{unknown(check, "", err)}
	}
	var all []Finding
	n, now := 0, c.Clock.Now()
	for namespace, policies := range p.All() {
		if c.Namespace != "" && namespace != "" && namespace != c.Namespace {
			continue
		}
		for _, one := range policies {
			n++
			all = append(all, policy(check, now, one, refused[one.NamespacedName])...)
		}
	}
	if len(all) == 0 {
		all = append(all, good(check, "", fmt.Sprintf("%d policies can be read", n)))
	}
	return all
}

// policy looks at one policy; nothing is found if all is well. refused is why refit says that it can't be read, if it does.
func policy(check string, now time.Time, one *changemanagement.Policy, refused string) []Finding {
	object := "ChangeManagementPolicy " + one.String()
	if one.Namespaces != nil {
		object = one.Title()
	}
	switch d := schedule.Decide(schedule.Query{Now: now}, one.Schedule.Widest()); {
	case d.Reason == schedule.InvalidPolicy:
		return []Finding{{Check: check, Level: Error, Object: object, Message: d.Message, Do: "correct the field; refit schedule lint -f FILE says more"}}
	case refused != "":
		return []Finding{{Check: check, Level: Error, Object: object, Message: "its condition Ready is False: " + refused, Do: "correct the field, or what refit's flags allow"}}
	case d.NextChangeETASeconds == schedule.SecondsNone && d.Reason != schedule.Paused && d.Reason != schedule.Manual:
		return []Finding{{Check: check, Level: Warning, Object: object, Message: "it never opens: " + d.Message, Do: "see its windows with refit schedule next"}}
	}
	return nil
}

// refused returns the policies that refit says can't be read, and why: what its flags allow is not known here.
func (c *Checker) refused(ctx context.Context) (map[types.NamespacedName]string, error) {
	var own refitv1.ChangeManagementPolicyList
	var cluster refitv1.ClusterChangeManagementPolicyList
	if err := errors.Join(c.Client.List(ctx, &own), c.Client.List(ctx, &cluster)); err != nil {
		return nil, err
	}
	out := map[types.NamespacedName]string{}
	see := func(o client.Object, conditions []metav1.Condition) {
		ready := meta.FindStatusCondition(conditions, refitv1.ReadyCondition)
		if ready != nil && ready.Status == metav1.ConditionFalse && ready.ObservedGeneration == o.GetGeneration() {
			out[client.ObjectKeyFromObject(o)] = ready.Message
		}
	}
	for i := range own.Items {
		see(&own.Items[i], own.Items[i].Status.Conditions)
	}
	for i := range cluster.Items {
		see(&cluster.Items[i], cluster.Items[i].Status.Conditions)
	}
	return out, nil
}

// access looks whether refit knows how to reach the nodes of a Cluster.
func (c *Checker) access(ctx context.Context, cluster *clusterv1.Cluster) []Finding {
	const check = "node-access"
	object := nameOf("Cluster", cluster)
	var list clusterv1.MachineList
	if err := c.Client.List(ctx, &list, client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}); err != nil {
		return []Finding{unknown(check, object, err)}
	}
	var accesses refitv1.NodeAccessList
	if err := c.Client.List(ctx, &accesses, client.InNamespace(cluster.Namespace)); err != nil {
		return []Finding{unknown(check, object, err)}
	}
	machines := slices.DeleteFunc(list.Items, neverUpdated)
	var without []string
	var why error
	for i := range machines {
		if _, err := nodeaccess.Select(accesses.Items, &machines[i]); err != nil {
			without, why = append(without, machines[i].Name), err
		}
	}
	if len(without) == 0 {
		return unreached(check, object, machines, accesses.Items)
	}
	return []Finding{{Check: check, Level: Error, Object: object, Do: "make a NodeAccess that selects them: docs/node-access.md",
		Message: fmt.Sprintf("%d of its %d machines have no NodeAccess, or more than one: %s; %v", len(without), len(machines), some(without), why)}}
}

// neverUpdated reports whether a Machine is one that Cluster API updates in place in no case: it is of a MachinePool, or about to be gone.
func neverUpdated(m clusterv1.Machine) bool {
	_, pool := m.Labels[clusterv1.MachinePoolNameLabel]
	return pool || !m.DeletionTimestamp.IsZero()
}

// unreached looks whether refit could log in to the nodes of machines that have a NodeAccess, when it tried last.
func unreached(check, object string, machines []clusterv1.Machine, accesses []refitv1.NodeAccess) []Finding {
	var names []string
	why := ""
	for _, na := range accesses {
		for _, m := range na.Status.Unreached {
			if slices.ContainsFunc(machines, func(o clusterv1.Machine) bool { return o.Name == m.Name }) {
				names, why = append(names, m.Name), fmt.Sprintf("NodeAccess %s: %s (%s): %s", na.Name, m.Name, m.Reason, m.Message)
			}
		}
	}
	if len(names) == 0 {
		return []Finding{good(check, object, fmt.Sprintf("each of its %d machines has a NodeAccess", len(machines)))}
	}
	return []Finding{{Check: check, Level: Warning, Object: object, Do: "see the status of the NodeAccess, and docs/troubleshooting.md",
		Message: fmt.Sprintf("refit can't log in to the nodes of %d of its %d machines, or more: %s; %s", len(names), len(machines), some(names), why)}}
}

// paused looks whether Cluster API leaves a Cluster alone.
func (c *Checker) paused(_ context.Context, cluster *clusterv1.Cluster) []Finding {
	if !annotations.IsPaused(cluster, cluster) {
		return nil
	}
	return []Finding{isPaused("cluster", nameOf("Cluster", cluster))}
}

func isPaused(check, object string) Finding {
	return Finding{Check: check, Level: Warning, Object: object, Message: "it is paused, so that Cluster API updates none of its machines", Do: "nothing, if that is meant; else set spec.paused to false, and remove the annotation " + clusterv1.PausedAnnotation}
}

// controlPlane looks whether Cluster API would update a KubeadmControlPlane in place.
func (c *Checker) controlPlane(ctx context.Context, cluster *clusterv1.Cluster) []Finding {
	const check = "control-plane"
	ref := cluster.Spec.ControlPlaneRef
	if ref.Kind != kubeadmKind {
		return nil
	}
	var kcp controlplanev1.KubeadmControlPlane
	if err := c.Client.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: ref.Name}, &kcp); err != nil {
		return []Finding{unknown(check, nameOf("Cluster", cluster), err)}
	}
	object := nameOf("KubeadmControlPlane", &kcp)
	surge := kcp.Spec.Rollout.Strategy.RollingUpdate.MaxSurge
	switch {
	case annotations.HasPaused(&kcp):
		return []Finding{isPaused(check, object)}
	case ptr.Deref(kcp.Spec.Replicas, 1) < 3:
		return []Finding{{Check: check, Level: Warning, Object: object, Message: fmt.Sprintf("it has %d machines, and with less than three Cluster API replaces some of them without asking", ptr.Deref(kcp.Spec.Replicas, 1)),
			Do: "have three, or expect a replacement"}}
	case surge == nil || surge.IntValue() != 0:
		return []Finding{{Check: check, Level: Warning, Object: object, Message: "its maxSurge is not 0: for each change Cluster API makes a machine and deletes one, and updates the others in place",
			Do: "set spec.rollout.strategy.rollingUpdate.maxSurge to 0"}}
	}
	return []Finding{good(check, object, "its machines are updated in place")}
}

// deployments looks whether Cluster API would update MachineDeployments in place.
func (c *Checker) deployments(ctx context.Context, cluster *clusterv1.Cluster) []Finding {
	const check = "machine-deployment"
	var list clusterv1.MachineDeploymentList
	if err := c.Client.List(ctx, &list, client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}); err != nil {
		return []Finding{unknown(check, nameOf("Cluster", cluster), err)}
	}
	var all []Finding
	for i := range list.Items {
		all = append(all, deployment(check, &list.Items[i]))
	}
	return all
}

func deployment(check string, md *clusterv1.MachineDeployment) Finding {
	object := nameOf("MachineDeployment", md)
	rolling := md.Spec.Rollout.Strategy.RollingUpdate
	switch {
	case annotations.HasPaused(md) || ptr.Deref(md.Spec.Paused, false):
		return isPaused(check, object)
	case md.Spec.Rollout.Strategy.Type == clusterv1.OnDeleteMachineDeploymentStrategyType:
		return Finding{Check: check, Level: Warning, Object: object, Message: "its strategy is OnDelete, for which Cluster API asks nobody: its machines stay as they are", Do: "set the strategy RollingUpdate"}
	case rollout.LimitsOf(rolling.MaxSurge, rolling.MaxUnavailable, int(ptr.Deref(md.Spec.Replicas, 1))).Surges():
		return Finding{Check: check, Level: Warning, Object: object, Message: "its maxUnavailable is 0: for each change Cluster API makes a machine more than it has, and deletes one",
			Do: "set spec.rollout.strategy.rollingUpdate.maxUnavailable to as many machines as may be in an update at once, and maxSurge to 0: docs/concepts.md"}
	}
	return good(check, object, "its machines are updated in place")
}

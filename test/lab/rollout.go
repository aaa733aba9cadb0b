package lab

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// rolloutTimeout bounds WaitForRollout, for callers whose context does not.
const rolloutTimeout = 20 * time.Minute

// settleTime is for how long a rollout has to be complete. Real control planes flap when a member joins or a kubelet restarts.
var settleTime = map[Backend]time.Duration{Docker: 5 * time.Second}

// WaitForRollout waits until the cluster is as its KubeadmControlPlane and MachineDeployment say: all machines are there,
// running, available, up to date and with a node; none is being deleted or updated in place; and none is left of an earlier
// MachineSet. A topology has told them all that it says before that, and no lifecycle hook holds it. On the Docker backend
// it has to stay so for a while. If ctx ends first, the error says what was missing.
func (c *Cluster) WaitForRollout(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rolloutTimeout)
	defer cancel()
	begin, missing := time.Now(), ""
	var complete time.Time // since when nothing is missing
	err := wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		now, err := c.missing(ctx)
		if ctx.Err() != nil {
			// What is missing is still what it was before that interrupted the question.
			return false, nil
		}
		if err != nil { // an API server may not be there for a moment
			now = "it can't be asked: " + err.Error()
		}
		if now != missing && now != "" {
			c.lab.progress("%s: %s", c, now)
		}
		missing = now
		if missing != "" {
			complete = time.Time{}
			return false, nil
		}
		if complete.IsZero() {
			complete = time.Now()
		}
		return time.Since(complete) >= settleTime[c.backend], nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the rollout of %s (%s): %w", c, missing, err)
	}
	c.lab.progress("%s: rolled out after %s", c, time.Since(begin).Round(time.Second))
	return nil
}

// missing returns what the rollout still lacks, or nothing.
func (c *Cluster) missing(ctx context.Context) (string, error) {
	for _, check := range []func(context.Context) (string, error){c.missingTopology, c.missingControlPlane, c.missingWorkers} {
		if missing, err := check(ctx); missing != "" || err != nil {
			return missing, err
		}
	}
	return "", nil
}

func (c *Cluster) missingControlPlane(ctx context.Context) (string, error) {
	var kcp controlplanev1.KubeadmControlPlane
	if err := c.lab.Client.Get(ctx, c.controlPlaneKey(), &kcp); err != nil {
		return "", fmt.Errorf("reading the control plane: %w", err)
	}
	machines, err := c.ControlPlaneMachines(ctx)
	if err != nil {
		return "", err
	}
	if kcp.Status.ObservedGeneration < kcp.Generation {
		return "the control plane's change is not seen yet", nil
	}
	return missingMachines("control-plane machines", machines, *kcp.Spec.Replicas), nil
}

func (c *Cluster) missingWorkers(ctx context.Context) (string, error) {
	var deployment clusterv1.MachineDeployment
	if err := c.lab.Client.Get(ctx, c.workersKey(), &deployment); err != nil {
		return "", fmt.Errorf("reading the workers: %w", err)
	}
	machines, err := c.WorkerMachines(ctx)
	if err != nil {
		return "", err
	}
	if deployment.Status.ObservedGeneration < deployment.Generation {
		return "the workers' change is not seen yet", nil
	}
	if missing := missingMachines("workers", machines, *deployment.Spec.Replicas); missing != "" {
		return missing, nil
	}
	// Until the new MachineSet is there, the machines' own conditions still speak of the old one.
	for _, machine := range machines {
		current, err := c.inCurrentMachineSet(ctx, &deployment, &machine)
		if err != nil {
			return "", err
		}
		if !current {
			return fmt.Sprintf("worker %s belongs to an earlier MachineSet", machine.Name), nil
		}
	}
	return "", nil
}

// inCurrentMachineSet reports whether machine's MachineSet makes machines as deployment says now.
func (c *Cluster) inCurrentMachineSet(
	ctx context.Context, deployment *clusterv1.MachineDeployment, machine *clusterv1.Machine,
) (bool, error) {
	var set clusterv1.MachineSet
	key := c.workersKey()
	key.Name = machine.Labels[clusterv1.MachineSetNameLabel]
	if err := c.lab.Client.Get(ctx, key, &set); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("reading the MachineSet of %s: %w", machine.Name, err)
	}
	want, have := deployment.Spec.Template.Spec, set.Spec.Template.Spec
	return want.Version == have.Version && want.InfrastructureRef == have.InfrastructureRef &&
		want.Bootstrap.ConfigRef == have.Bootstrap.ConfigRef, nil
}

// missingMachines returns what keeps machines from being the replicas that are wanted, or nothing.
func missingMachines(what string, machines []clusterv1.Machine, replicas int32) string {
	settled, updating := 0, 0
	for i := range machines {
		if isUpdating(&machines[i]) {
			updating++
		}
		if isSettled(&machines[i]) {
			settled++
		}
	}
	if settled == int(replicas) && len(machines) == int(replicas) {
		return ""
	}
	missing := fmt.Sprintf("%d of %d %s are available and up to date", settled, replicas, what)
	if updating > 0 {
		missing += fmt.Sprintf(", %d being updated in place", updating)
	}
	return missing
}

func isSettled(machine *clusterv1.Machine) bool {
	return machine.DeletionTimestamp.IsZero() && !isUpdating(machine) &&
		machine.Status.Phase == string(clusterv1.MachinePhaseRunning) && machine.Status.NodeRef.IsDefined() &&
		meta.IsStatusConditionTrue(machine.Status.Conditions, clusterv1.MachineAvailableCondition) &&
		meta.IsStatusConditionTrue(machine.Status.Conditions, clusterv1.MachineUpToDateCondition)
}

func isUpdating(machine *clusterv1.Machine) bool {
	_, updating := machine.Annotations[clusterv1.UpdateInProgressAnnotation]
	return updating
}

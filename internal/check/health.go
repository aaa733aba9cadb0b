package check

import (
	"context"
	"fmt"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// shortest is how long a node may be away without being taken for broken: a reboot with a drain's end takes minutes.
const shortest = 5 * time.Minute

// healthChecks looks for MachineHealthChecks that take a node for broken before it has rebooted.
func (c *Checker) healthChecks(ctx context.Context, cluster *clusterv1.Cluster) []Finding {
	const check = "health-check"
	var list clusterv1.MachineHealthCheckList
	if err := c.Client.List(ctx, &list, client.InNamespace(cluster.Namespace)); err != nil {
		return []Finding{unknown(check, nameOf("Cluster", cluster), err)}
	}
	var all []Finding
	for i := range list.Items {
		mhc := &list.Items[i]
		if mhc.Spec.ClusterName != cluster.Name {
			continue
		}
		object := nameOf("MachineHealthCheck", mhc)
		finding := good(check, object, "it waits for long enough")
		for _, n := range mhc.Spec.Checks.UnhealthyNodeConditions {
			finding = tooQuick(finding, string(n.Type), string(n.Status), n.TimeoutSeconds)
		}
		for _, m := range mhc.Spec.Checks.UnhealthyMachineConditions {
			finding = tooQuick(finding, "of the Machine "+m.Type, string(m.Status), m.TimeoutSeconds)
		}
		if startup := ptr.Deref(mhc.Spec.Checks.NodeStartupTimeoutSeconds, 0); startup > 0 && startup < int32(shortest.Seconds()) {
			finding = Finding{Check: check, Level: Warning, Object: object, Message: fmt.Sprintf("it takes a Machine for broken whose node is not there after %ds, which is less than a new machine takes: it never ends to replace them", startup),
				Do: fmt.Sprintf("set its nodeStartupTimeoutSeconds to %d or more, or to 0", int(shortest.Seconds()))}
		}
		all = append(all, finding)
	}
	return all
}

// tooQuick returns the finding, or that a MachineHealthCheck takes a node for broken too soon by one of its conditions.
func tooQuick(f Finding, condition, status string, seconds *int32) Finding {
	after := time.Duration(ptr.Deref(seconds, 0)) * time.Second
	if after >= shortest {
		return f
	}
	f.Level, f.Do = Warning, fmt.Sprintf("set its timeoutSeconds to %d or more", int(shortest.Seconds()))
	f.Message = fmt.Sprintf("it takes a node for broken %s after its condition %s is %s, which is shorter than a reboot: refit keeps it off while it updates, and not what comes right after", after, condition, status)
	return f
}

package probe

import (
	"context"
	"errors"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
)

// bootID is where the kernel tells one boot from another. The kubelet writes it into the Node.
const bootID = "/proc/sys/kernel/random/boot_id"

// Reported returns when the kubelet has last written the Node's condition Ready, in its own words.
//
// A kubelet that starts writes the whole status at once, and after that each 5 minutes, or within 10 seconds if something but the time has
// changed (tryUpdateNodeStatus of k8s.io/kubernetes/pkg/kubelet/kubelet_node_status.go: lastStatusReportTime is zero at first). So after a
// restart there is another time soon. Without one there may be none for minutes, and only the lease is renewed.
func Reported(ctx context.Context, h host.Host) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	is, _, err := readyOf(ctx, h.Root)
	return is.Heartbeat, err
}

// ReportedSince returns a probe that asks whether the kubelet has written the Node since an action: whether its condition Ready is of another
// time than before and, if the node has rebooted, of this boot. Times are only told from one another, since the run may set the clock. An
// empty time is none that is known.
func ReportedSince(h host.Host, before string, rebooted bool) Probe {
	return Probe{Name: NodeObject, Look: "kubectl describe node", Elsewhere: true, timeout: askTimeout, ask: func(ctx context.Context) error {
		is, boot, err := readyOf(ctx, h.Root)
		if err != nil {
			return err
		}
		if before != "" && is.Heartbeat == before {
			return errors.New("its condition Ready is from before the kubelet was restarted, which has not reported since")
		}
		now, _, err := h.ReadFile(bootID)
		if err == nil && rebooted && boot != "" && len(now) > 0 && boot != strings.TrimSpace(string(now)) {
			err = errors.New("its conditions are from before the node rebooted, and the kubelet has not reported since")
		}
		return err
	}}
}

// readyOf returns the condition Ready of the node's Node, and the boot in which the kubelet has written it.
func readyOf(ctx context.Context, r host.Root) (condition, string, error) {
	c, err := connect(r)
	if err != nil {
		return condition{}, "", err
	}
	name, err := c.NodeName()
	if err != nil {
		return condition{}, "", err
	}
	node, err := statusOf(ctx, c, name)
	if err != nil {
		return condition{}, "", err
	}
	for _, is := range node.Conditions {
		if is.Type == "Ready" {
			return is, node.NodeInfo.BootID, nil
		}
	}
	return condition{}, "", errNotReady
}

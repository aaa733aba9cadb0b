package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capi-refit/refit/internal/agent/container"
	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kubelet"
)

const sandboxNamespace = "kube-system"

// sandbox is a pod sandbox of refit's own, which no kubelet has asked for. A kubelet that sees it takes it away, too.
type sandbox struct {
	name string
	// label tells it from all others.
	label   string
	network cri.NamespaceMode
}

var (
	hostSandbox    = sandbox{"refit-probe", "capi-refit.dev/probe", cri.NamespaceMode_NODE}
	networkSandbox = sandbox{"refit-probe-network", "capi-refit.dev/probe-network", cri.NamespaceMode_POD}
)

// runtime is the container runtime of a node.
type runtime struct{ root host.Root }

// unit returns the unit that most likely runs it.
func (r runtime) unit() string {
	found, _ := kubelet.FindRuntime(r.root) // for people only
	switch {
	case strings.Contains(found.Socket, "crio"):
		return "crio.service"
	case strings.Contains(found.Socket, "cri-dockerd"):
		return "cri-docker.service"
	default:
		return "containerd.service"
	}
}

// call calls the runtime.
func (r runtime) call(do func(cri.RuntimeServiceClient, kubelet.Runtime) error) error {
	err := container.Call(r.root, do)
	if errors.Is(err, container.ErrAbsent) {
		return ErrAbsent
	}
	return said(err)
}

// said returns what the runtime has answered, with secrets left out.
func said(err error) error {
	if s, ok := status.FromError(err); ok && err != nil {
		return fmt.Errorf("it answers %s: %s", s.Code(), host.Redact(s.Message()))
	}
	return err
}

// status returns a probe of one of the conditions that the runtime tells of itself.
func (r runtime) status(condition string) func(context.Context) error {
	return func(ctx context.Context) error {
		return r.call(func(c cri.RuntimeServiceClient, _ kubelet.Runtime) error {
			if _, err := c.Version(ctx, &cri.VersionRequest{}); err != nil {
				return err
			}
			answer, err := c.Status(ctx, &cri.StatusRequest{})
			if err != nil {
				return err
			}
			for _, is := range answer.GetStatus().GetConditions() {
				if is.GetType() == condition && is.GetStatus() {
					return nil
				}
				if is.GetType() == condition {
					return fmt.Errorf("%s is false: %s", condition, host.Redact(cmp.Or(is.GetMessage(), is.GetReason())))
				}
			}
			return fmt.Errorf("it does not say whether it is %s", condition)
		})
	}
}

// sandbox has the runtime start a pod sandbox on the network of the node, and remove it. One that is left over from before is removed
// first: its name is taken.
func (r runtime) sandbox(ctx context.Context) error {
	return r.start(ctx, hostSandbox)
}

// Network returns the probe that has the runtime start a pod sandbox with a network of its own, and remove it: a network plugin can be
// gone whose configuration is there. It takes an address of the node's for some seconds. noted says that it worked before. Where it did not,
// for want of a network plugin or since that one takes no such pod, it is not asked, and nobody is told.
func Network(h host.Host, noted bool) Probe {
	r := runtime{h.Root}
	return Probe{
		Name: NetworkSandbox, Look: "journalctl -u " + r.unit() + " on the node, and the pods of the network plugin", Costly: true, timeout: sandboxTimeout,
		ask: func(ctx context.Context) error {
			err := r.status("NetworkReady")(ctx)
			if err == nil {
				err = r.start(ctx, networkSandbox)
			}
			switch {
			case err == nil || isUnknownPod(err):
				return nil
			case !noted:
				return silent{err}
			}
			return err
		},
	}
}

// isUnknownPod reports whether a network plugin has asked the API server for the pod, as some do, which there is none of. Then it was found,
// could be run, and has had an answer, which is as much as can be asked of it.
func isUnknownPod(err error) bool {
	return strings.Contains(err.Error(), `"`+networkSandbox.name+`" not found`)
}

func (r runtime) start(ctx context.Context, s sandbox) error {
	return r.call(func(c cri.RuntimeServiceClient, found kubelet.Runtime) error {
		if err := sweep(ctx, c, s); err != nil {
			return err
		}
		_, err := c.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: s.config(cgroupParent(ctx, c, found))})
		left := sweepAfter(ctx, c, s)
		if err != nil { // it can be there all the same, half made, and is removed now or before the next one
			return err
		}
		return left
	})
}

// sweepAfter removes a sandbox that was started, or half made, in a time of its own: starting it may have taken all that there was.
func sweepAfter(ctx context.Context, c cri.RuntimeServiceClient, s sandbox) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweepTimeout)
	defer cancel()
	return sweep(ctx, c, s)
}

// sweep removes what is there of a sandbox of refit's. It can be repeated, and a kubelet may do the same meanwhile.
func sweep(ctx context.Context, c cri.RuntimeServiceClient, of sandbox) error {
	list, err := c.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{
		Filter: &cri.PodSandboxFilter{LabelSelector: map[string]string{of.label: "true"}},
	})
	if err != nil {
		return err
	}
	var failed error
	for _, s := range list.GetItems() {
		_, err := c.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: s.GetId()})
		if _, removed := c.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: s.GetId()}); removed == nil {
			continue // which ends one that could not be stopped, too
		} else if err == nil {
			err = removed
		}
		failed = cmp.Or(failed, err)
	}
	return failed
}

// cgroupParent returns where the sandbox is to be among the control groups: with systemd as the driver it takes the name of a slice.
// Runtimes from before RuntimeConfig don't say which driver they have; the kubelet has the same.
func cgroupParent(ctx context.Context, c cri.RuntimeServiceClient, found kubelet.Runtime) string {
	driver := found.CgroupDriver
	if config, err := c.RuntimeConfig(ctx, &cri.RuntimeConfigRequest{}); err == nil && config.GetLinux() != nil {
		driver = strings.ToLower(config.GetLinux().GetCgroupDriver().String())
	}
	if driver == "systemd" {
		return "system.slice"
	}
	return ""
}

func (s sandbox) config(cgroupParent string) *cri.PodSandboxConfig {
	config := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: s.name, Uid: s.name, Namespace: sandboxNamespace},
		Labels:   map[string]string{s.label: "true"},
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent:    cgroupParent,
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: &cri.NamespaceOption{Network: s.network}},
		},
	}
	if s.network == cri.NamespaceMode_POD {
		config.Hostname = s.name
	}
	return config
}

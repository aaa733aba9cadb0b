// Package probetest stands in for what probes ask, for tests.
package probetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capi-refit/refit/internal/agent/container/containertest"
)

// Socket is where a CRI is on a node, unless the kubelet's configuration says otherwise.
const Socket = "/run/containerd/containerd.sock"

// CRI is a container runtime that serves CRI, and has no containers.
type CRI struct {
	cri.UnimplementedRuntimeServiceServer

	mu       sync.Mutex
	off      bool
	notReady map[string]string
	refuses  string
	network  string
	hangs    bool
	stuck    bool
	names    map[string]string
	made     []*cri.PodSandboxConfig
	driver   *cri.CgroupDriver
}

// Dir returns a directory, in memory where there is one, whose path is short enough for sockets in it.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "refit-")
	if err != nil {
		dir, err = os.MkdirTemp("", "refit-")
	}
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Serve has a CRI serve on the node below dir, at socket.
func Serve(t testing.TB, dir, socket string) *CRI {
	t.Helper()
	at := filepath.Join(dir, socket)
	require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o750))
	c := &CRI{notReady: map[string]string{}, names: map[string]string{}}
	containertest.ServeCRI(t, at, c, grpc.UnaryInterceptor(c.gate))
	return c
}

// gate answers as a containerd does whose configuration turns CRI off.
func (c *CRI) gate(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	answer, err := c.locked(ctx, req, handle)
	if _, starts := req.(*cri.RunPodSandboxRequest); starts && c.hanging() {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return answer, err
}

func (c *CRI) locked(ctx context.Context, req any, handle grpc.UnaryHandler) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.off {
		return nil, status.Error(codes.Unimplemented, "unknown service runtime.v1.RuntimeService")
	}
	return handle(ctx, req)
}

func (c *CRI) hanging() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hangs
}

// Hang has sandboxes be made, and nobody told that they are.
func (c *CRI) Hang(hangs bool) { c.set(func() { c.hangs = hangs }) }

// Stick has no sandbox be stopped before it is removed.
func (c *CRI) Stick(stuck bool) { c.set(func() { c.stuck = stuck }) }

// TurnOff turns CRI off, or on again.
func (c *CRI) TurnOff(off bool) { c.set(func() { c.off = off }) }

// NotReady has a condition be false for a reason, or, with an empty one, true again.
func (c *CRI) NotReady(condition, why string) { c.set(func() { c.notReady[condition] = why }) }

// RefuseSandboxes has no sandbox be started, for a reason; with an empty one they are again.
func (c *CRI) RefuseSandboxes(why string) { c.set(func() { c.refuses = why }) }

// BreakNetwork has no sandbox get a network of its own, for a reason, and has it be left half made; with an empty one they do again.
func (c *CRI) BreakNetwork(why string) { c.set(func() { c.network = why }) }

// SetDriver has the runtime tell its driver of control groups, which others than the newest do not.
func (c *CRI) SetDriver(d cri.CgroupDriver) { c.set(func() { c.driver = &d }) }

// LeaveBehind has a sandbox be there that somebody has made. It returns its ID.
func (c *CRI) LeaveBehind(config *cri.PodSandboxConfig) (id string) {
	c.set(func() { c.names[nameOf(config)] = labelsOf(config) })
	return nameOf(config)
}

// Forget has the runtime know of no sandbox any more, as if its directories were others.
func (c *CRI) Forget() { c.set(func() { clear(c.names) }) }

func (c *CRI) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// Made returns what sandboxes were started.
func (c *CRI) Made() []*cri.PodSandboxConfig {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made
}

// Left returns the names of the sandboxes that are there.
func (c *CRI) Left() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	for name := range c.names {
		names = append(names, name)
	}
	return names
}

// Version implements the runtime service.
func (c *CRI) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{RuntimeName: "probetest"}, nil
}

// Status implements the runtime service.
func (c *CRI) Status(context.Context, *cri.StatusRequest) (*cri.StatusResponse, error) {
	s := &cri.RuntimeStatus{}
	for _, condition := range []string{"RuntimeReady", "NetworkReady"} {
		why := c.notReady[condition]
		s.Conditions = append(s.Conditions, &cri.RuntimeCondition{Type: condition, Status: why == "", Message: why})
	}
	return &cri.StatusResponse{Status: s}, nil
}

// RuntimeConfig implements the runtime service.
func (c *CRI) RuntimeConfig(context.Context, *cri.RuntimeConfigRequest) (*cri.RuntimeConfigResponse, error) {
	if c.driver == nil {
		return nil, status.Error(codes.Unimplemented, "unknown method RuntimeConfig")
	}
	return &cri.RuntimeConfigResponse{Linux: &cri.LinuxRuntimeConfiguration{CgroupDriver: *c.driver}}, nil
}

// RunPodSandbox implements the runtime service. Like containerd it reserves the name.
func (c *CRI) RunPodSandbox(_ context.Context, req *cri.RunPodSandboxRequest) (*cri.RunPodSandboxResponse, error) {
	name := nameOf(req.GetConfig())
	if c.refuses != "" {
		return nil, status.Error(codes.Unknown, c.refuses)
	}
	if _, taken := c.names[name]; taken {
		return nil, status.Error(codes.Unknown, fmt.Sprintf("name %q is reserved", name))
	}
	c.names[name], c.made = labelsOf(req.GetConfig()), append(c.made, req.GetConfig())
	if c.network != "" && req.GetConfig().GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == cri.NamespaceMode_POD {
		return nil, status.Error(codes.Unknown, c.network)
	}
	return &cri.RunPodSandboxResponse{PodSandboxId: name}, nil
}

// ListPodSandbox implements the runtime service.
func (c *CRI) ListPodSandbox(_ context.Context, req *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	out := &cri.ListPodSandboxResponse{}
	for name, labels := range c.names {
		matches := true
		for k, v := range req.GetFilter().GetLabelSelector() {
			matches = matches && strings.Contains(labels, k+"="+v+";")
		}
		if matches {
			out.Items = append(out.Items, &cri.PodSandbox{Id: name})
		}
	}
	return out, nil
}

// StopPodSandbox implements the runtime service.
func (c *CRI) StopPodSandbox(context.Context, *cri.StopPodSandboxRequest) (*cri.StopPodSandboxResponse, error) {
	if c.stuck {
		return nil, status.Error(codes.Unknown, "it does not stop")
	}
	return &cri.StopPodSandboxResponse{}, nil
}

// RemovePodSandbox implements the runtime service.
func (c *CRI) RemovePodSandbox(_ context.Context, req *cri.RemovePodSandboxRequest) (*cri.RemovePodSandboxResponse, error) {
	delete(c.names, req.GetPodSandboxId())
	return &cri.RemovePodSandboxResponse{}, nil
}

func nameOf(config *cri.PodSandboxConfig) string {
	m := config.GetMetadata()
	return strings.Join([]string{m.GetName(), m.GetNamespace(), m.GetUid(), fmt.Sprint(m.GetAttempt())}, "_")
}

func labelsOf(config *cri.PodSandboxConfig) string {
	var all strings.Builder
	for k, v := range config.GetLabels() {
		fmt.Fprintf(&all, "%s=%s;", k, v)
	}
	return all.String()
}

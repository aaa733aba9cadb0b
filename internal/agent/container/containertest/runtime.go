// Package containertest stands in for a container runtime and the kubelet that starts what is stopped again, for tests.
package containertest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capi-refit/refit/internal/agent/staticpod"
)

// Socket is where it serves, below the directory of a node. It is short: there is a limit to the paths of sockets.
const Socket = "/c.sock"

// Runtime has one container a pod, of the pod's name.
type Runtime struct {
	cri.UnimplementedRuntimeServiceServer

	mu sync.Mutex
	// reads returns what a container reads when it starts.
	reads   func(name string) string
	running map[string]string // the number of a container's start, by name
	starts  map[string]int
	read    map[string]string
	ill     map[string]bool
	stops   []string
}

// Serve has a runtime serve below dir, which runs the named containers. Each reads something when it starts.
func Serve(t testing.TB, dir string, reads func(name string) string, names ...string) *Runtime {
	t.Helper()
	r := &Runtime{reads: reads, running: map[string]string{}, starts: map[string]int{}, read: map[string]string{}, ill: map[string]bool{}}
	for _, name := range names {
		r.start(name)
	}
	at := filepath.Join(dir, Socket)
	ServeCRI(t, at, r)
	t.Cleanup(func() { _ = os.Remove(at) })
	return r
}

// ServeCRI has a runtime service serve at a socket until the test ends.
func ServeCRI(t testing.TB, at string, service cri.RuntimeServiceServer, options ...grpc.ServerOption) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", at)
	require.NoError(t, err)
	s := grpc.NewServer(options...)
	cri.RegisterRuntimeServiceServer(s, service)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		s.Stop()
		<-done
	})
}

func (r *Runtime) start(name string) {
	r.starts[name]++
	r.running[name] = fmt.Sprintf("%s-%d", name, r.starts[name])
	r.read[name] = r.reads(name)
}

// Fail has containers that have read a text not be ready.
func (r *Runtime) Fail(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ill[text] = true
}

// Stops returns the IDs of the containers that were stopped.
func (r *Runtime) Stops() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.stops...)
}

// Read returns what the container that runs has read.
func (r *Runtime) Read(name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.read[name]
}

// Statuses are what the kubelet says of a pod's containers.
func (r *Runtime) Statuses(name string) []staticpod.ContainerStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return []staticpod.ContainerStatus{{Name: name, ContainerID: "containerd://" + r.running[name], Ready: !r.ill[r.read[name]]}}
}

// ListContainers implements the runtime service.
func (r *Runtime) ListContainers(_ context.Context, req *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &cri.ListContainersResponse{}
	for name, id := range r.running {
		if req.GetFilter().GetLabelSelector()["io.kubernetes.pod.name"] == name+"-cp-1" {
			out.Containers = append(out.Containers, &cri.Container{Id: id, Labels: map[string]string{"io.kubernetes.container.name": name}})
		}
	}
	return out, nil
}

// StopContainer implements the runtime service. The kubelet starts another one.
func (r *Runtime) StopContainer(_ context.Context, req *cri.StopContainerRequest) (*cri.StopContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, id := range r.running {
		if id == req.GetContainerId() {
			r.stops = append(r.stops, id)
			r.start(name)
			return &cri.StopContainerResponse{}, nil
		}
	}
	return nil, status.Error(codes.NotFound, "no such container")
}

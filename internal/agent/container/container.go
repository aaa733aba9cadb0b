// Package container asks the container runtime of a node, by CRI, which containers of a pod run, and stops them. The kubelet starts what it
// has not stopped itself again.
package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kubelet"
)

// ErrAbsent is returned for a node that has no container runtime with a Unix socket.
var ErrAbsent = errors.New("the node has no container runtime that serves CRI on a Unix socket")

// grace is how long a container may take to end before it is killed, in seconds. It is what pods have that don't say it.
const grace = 30

// callTimeout bounds one call, the stop of a container included.
const callTimeout = time.Minute

// The labels that the kubelet gives to containers (k8s.io/kubelet/pkg/types).
const (
	podNameLabel      = "io.kubernetes.pod.name"
	podNamespaceLabel = "io.kubernetes.pod.namespace"
	nameLabel         = "io.kubernetes.container.name"
)

// Call calls the container runtime of a node.
func Call(r host.Root, do func(cri.RuntimeServiceClient, kubelet.Runtime) error) error {
	found, err := kubelet.FindRuntime(r)
	if err != nil {
		return err
	}
	if found.Socket == "" {
		return ErrAbsent
	}
	if _, err := r.Stat(found.Socket); errors.Is(err, fs.ErrNotExist) {
		return ErrAbsent
	}
	socket, err := r.Resolve(found.Socket)
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient("passthrough:///cri",
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a socket that only root can connect to
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return do(cri.NewRuntimeServiceClient(conn), found)
}

// Container is one that runs.
type Container struct {
	// ID is the runtime's, without its scheme.
	ID string
	// Name is that in the manifest.
	Name string
}

// Running returns the containers of a pod that run, by name. The pod is named as namespace/name, as the API server knows it.
func Running(ctx context.Context, r host.Root, pod string) ([]Container, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	namespace, name, _ := strings.Cut(pod, "/")
	var out []Container
	err := Call(r, func(c cri.RuntimeServiceClient, _ kubelet.Runtime) error {
		answer, err := c.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{
			State:         &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING},
			LabelSelector: map[string]string{podNameLabel: name, podNamespaceLabel: namespace},
		}})
		for _, is := range answer.GetContainers() {
			out = append(out, Container{ID: is.GetId(), Name: is.GetLabels()[nameLabel]})
		}
		return err
	})
	slices.SortFunc(out, func(a, b Container) int { return strings.Compare(a.Name+a.ID, b.Name+b.ID) })
	return out, told(err)
}

// Stop stops a container, and kills it if that takes more than 30 seconds. One that is gone is no failure.
func Stop(ctx context.Context, r host.Root, id string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return told(Call(r, func(c cri.RuntimeServiceClient, _ kubelet.Runtime) error {
		_, err := c.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: id, Timeout: grace})
		if status.Code(err) == codes.NotFound {
			return nil
		}
		return err
	}))
}

// told returns what the runtime has answered, with secrets left out.
func told(err error) error {
	if s, ok := status.FromError(err); ok && err != nil {
		return fmt.Errorf("the container runtime answers %s: %s", s.Code(), host.Redact(s.Message()))
	}
	return err
}

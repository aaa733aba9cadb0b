// Package probe asks a node whether it works: whether its container runtime, its kubelet and its way to the cluster do what they are
// there for. That files and units are as they should be does not mean so: a containerd whose configuration turns CRI off runs, and
// no pod does.
package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kubelet"
	"github.com/capi-refit/refit/internal/agent/staticpod"
)

// ErrAbsent says that the node does not have what a probe asks.
var ErrAbsent = errors.New("the node does not have it")

// The names of the probes. They are kept on the node during a run.
const (
	ContainerRuntime = "the container runtime"
	PodNetwork       = "the network of pods"
	PodSandbox       = "starting a pod sandbox"
	KnownPods        = "what the container runtime knows of the pods that run"
	NetworkSandbox   = "starting a pod sandbox with a network of its own"
	Kubelet          = "the kubelet"
	Endpoint         = "the way to the API server"
	NodeObject       = "the Node object"
	APIServer        = "the API server on this node"
	EtcdMember       = "etcd on this node"
	TimeSource       = "a source of the time"
)

// How long one answer may take. A sandbox takes a process that sets up namespaces, on a disk that others use too.
const (
	askTimeout     = 10 * time.Second
	sandboxTimeout = 30 * time.Second
	// sweepTimeout is how long it may take to remove a sandbox, whatever was left when it was started.
	sweepTimeout = 20 * time.Second
)

// Probe asks whether one thing works.
type Probe struct {
	// Name says what is asked.
	Name string
	// Look says where on the node, or in the cluster, to look when it does not work.
	Look string
	// Elsewhere reports that others than this node can make it fail: an API server that is just being replaced.
	Elsewhere bool
	// Costly reports that the probe makes something, and is not to be asked all the time.
	Costly bool
	// Tries is how often in a row it may fail until that counts. 0: as the agent has it.
	Tries int
	// Unit is the systemd unit that the probe is about, which must not be started again while the node is watched. Empty: it is about none.
	Unit string

	// key is what it is noted under, if that is not its name.
	key string

	timeout time.Duration
	ask     func(ctx context.Context) error
}

// New returns a probe that calls ask.
func New(name string, ask func(ctx context.Context) error) Probe {
	return Probe{Name: name, Look: "the node", timeout: askTimeout, ask: ask}
}

// Key is what a probe is noted under, on the node, as something that works.
func (p Probe) Key() string { return cmp.Or(p.key, p.Name) }

// Patience is how long the probe may take to fail as often as it may, with pauses between its tries.
func (p Probe) Patience(pause time.Duration) time.Duration {
	return time.Duration(p.Tries) * (p.timeout + pause)
}

// Ask returns nil if it works, and ErrAbsent if the node does not have it. What programs have said is redacted.
func (p Probe) Ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	return p.ask(ctx)
}

// All returns the probes of a node, those that make something last. With renewed the Node object has to be one that the kubelet has
// renewed since the first look: what it says of the node is not from before then.
func All(h host.Host, renewed bool) []Probe {
	r := runtime{h.Root}
	n := &heartbeat{root: h.Root, renewed: renewed}
	journal := "journalctl -u " + r.unit() + " on the node"
	all := []Probe{
		{Name: ContainerRuntime, Look: journal, timeout: askTimeout, ask: r.status("RuntimeReady")},
		{Name: PodNetwork, Look: journal + ", /etc/cni/net.d there, and the pods of the network plugin", timeout: askTimeout, ask: r.status("NetworkReady")},
		{Name: Kubelet, Look: "journalctl -u " + kubelet.Unit + " on the node", timeout: askTimeout, ask: on(h.Root, askKubelet)},
		{Name: APIServer, Look: "/var/log/pods on the node", timeout: askTimeout, ask: on(h.Root, askAPIServer)},
		{Name: EtcdMember, Look: "/var/log/pods on the node", Elsewhere: true, timeout: askTimeout, ask: on(h.Root, askEtcd)},
		{
			Name: Endpoint, Look: "the network of the node, and what is in front of the API servers", Elsewhere: true,
			timeout: askTimeout, ask: on(h.Root, askEndpoint),
		},
		{Name: NodeObject, Look: "kubectl describe node", Elsewhere: true, timeout: askTimeout, ask: n.ask},
		{Name: KnownPods, Look: journal, timeout: askTimeout, ask: r.pods},
		{Name: PodSandbox, Look: journal, Costly: true, timeout: sandboxTimeout, ask: r.sandbox},
	}
	return append(all, nodeProbes(h.Root)...)
}

// on has a node be asked.
func on(r host.Root, ask func(context.Context, host.Root) error) func(context.Context) error {
	return func(ctx context.Context) error { return ask(ctx, r) }
}

func askKubelet(ctx context.Context, r host.Root) error {
	asked, err := kubelet.Ask(ctx, r)
	if err == nil && !asked {
		return ErrAbsent
	}
	return err
}

// apiServerManifest is the static pod of the API server, as kubeadm names it.
const apiServerManifest = staticpod.Dir + "/kube-apiserver.yaml"

// askAPIServer asks the API server on this node, whatever is in front of them all, whether it is ready.
func askAPIServer(ctx context.Context, r host.Root) error {
	m, err := staticpod.Read(r, apiServerManifest)
	if err != nil {
		return err
	}
	if m == nil {
		return ErrAbsent
	}
	c, err := connect(r)
	if err != nil {
		return err
	}
	address, port := "127.0.0.1", 6443
	for _, container := range m.Pod.Spec.Containers {
		for _, arg := range append(container.Command, container.Args...) {
			if v, ok := strings.CutPrefix(arg, "--advertise-address="); ok {
				address = v
			}
			if v, ok := strings.CutPrefix(arg, "--secure-port="); ok {
				if port, err = strconv.Atoi(v); err != nil {
					return errors.New("--secure-port in " + apiServerManifest + " is not a number")
				}
			}
		}
	}
	return c.At(net.JoinHostPort(address, strconv.Itoa(port))).Get(ctx, "/readyz", nil, nil)
}

// askEndpoint asks whether the API server answers at the address that the kubelet has of it.
func askEndpoint(ctx context.Context, r host.Root) error {
	c, err := connect(r)
	if err != nil {
		return err
	}
	return c.Get(ctx, "/version", nil, nil)
}

// connect returns the cluster as the kubelet reaches it.
func connect(r host.Root) (*staticpod.Cluster, error) {
	if _, err := r.Stat(staticpod.KubeletConfig); errors.Is(err, fs.ErrNotExist) {
		return nil, ErrAbsent
	}
	return staticpod.Connect(r, staticpod.KubeletConfig) // each time: the kubelet renews its certificate
}

// heartbeat asks whether the cluster takes the node for one that works.
type heartbeat struct {
	root    host.Root
	renewed bool
	// first is when the lease was renewed at the first look, as the kubelet has written it. Times are not compared with the node's clock,
	// which the run may have set.
	first string
	since bool
}

func (b *heartbeat) ask(ctx context.Context) error {
	c, err := connect(b.root)
	if err != nil {
		return err
	}
	name, err := c.NodeName()
	if err != nil {
		return err
	}
	var lease struct {
		Spec struct {
			RenewTime string `json:"renewTime"`
		} `json:"spec"`
	}
	if err := c.Get(ctx, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/"+name, nil, &lease); err != nil {
		return err
	}
	if b.first == "" {
		b.first = lease.Spec.RenewTime
	}
	b.since = b.since || lease.Spec.RenewTime != b.first
	if b.renewed && !b.since {
		return errors.New("the kubelet has not renewed the node's lease in kube-node-lease yet")
	}
	return ready(ctx, c, name)
}

// condition is one of a Node.
type condition struct {
	Type      string `json:"type"`
	Status    string `json:"status"`
	Message   string `json:"message"`
	Heartbeat string `json:"lastHeartbeatTime"`
}

// nodeStatus is as much of a Node's status as is asked for.
type nodeStatus struct {
	Conditions  []condition       `json:"conditions"`
	Allocatable map[string]string `json:"allocatable"`
	NodeInfo    struct {
		BootID string `json:"bootID"`
	} `json:"nodeInfo"`
}

// statusOf returns that of a Node.
func statusOf(ctx context.Context, c *staticpod.Cluster, name string) (nodeStatus, error) {
	var node struct {
		Status nodeStatus `json:"status"`
	}
	err := c.Get(ctx, "/api/v1/nodes/"+name, nil, &node)
	return node.Status, err
}

// conditionsOf returns the conditions of a Node.
func conditionsOf(ctx context.Context, c *staticpod.Cluster, name string) ([]condition, error) {
	status, err := statusOf(ctx, c, name)
	return status.Conditions, err
}

var errNotReady = errors.New("it does not say whether it is Ready")

// ready returns an error unless the Node is Ready.
func ready(ctx context.Context, c *staticpod.Cluster, name string) error {
	conditions, err := conditionsOf(ctx, c, name)
	if err != nil {
		return err
	}
	for _, is := range conditions {
		if is.Type == "Ready" && is.Status == "True" {
			return nil
		}
		if is.Type == "Ready" {
			return fmt.Errorf("it is not Ready: %s", host.Redact(is.Message))
		}
	}
	return errNotReady
}

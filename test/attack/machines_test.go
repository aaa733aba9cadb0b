package attack

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/drift"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/machineupdate"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/internal/nodedisruption"
	"github.com/capi-refit/refit/internal/slots"
	"github.com/capi-refit/refit/internal/workload/workloadtest"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/files"
)

var machineKey = types.NamespacedName{Namespace: "lab", Name: "m1"}

// fakeMachineNode is a fake of a node with its SSH server and the agent: it shows a host key, counts what is sent to it, and plans and
// makes one change for each digest.
type fakeMachineNode struct {
	hostKey ssh.PublicKey
	sent    []string
	applied string // the digest of what was applied last
}

func newHostKey(t *testing.T) ssh.PublicKey {
	t.Helper()
	public, _, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	key, err := ssh.NewPublicKey(public)
	require.NoError(t, err)
	return key
}

// Dial implements remote.Dialer.
func (n *fakeMachineNode) Dial(ctx context.Context, t remote.Target) (remote.Conn, error) {
	if err := t.HostKeys.Check(t.Addresses[0].String(), &net.TCPAddr{}, n.hostKey); err != nil {
		return nil, err
	}
	return n, t.HostKeys.Accepted(ctx, n.hostKey)
}

// Close implements remote.Conn.
func (*fakeMachineNode) Close() error { return nil }

// Run implements remote.Conn.
func (n *fakeMachineNode) Run(ctx context.Context, _ string, stdin io.Reader, stdout io.Writer) error {
	asked, _ := remote.CommandFrom(ctx)
	verb := asked.Verb
	n.sent = append(n.sent, verb)
	var r node.Request
	if err := json.NewDecoder(stdin).Decode(&r); err != nil {
		return err
	}
	change := node.Change{Ref: node.FileRef("/etc/app/a"), Operation: node.Write, Actions: []disruption.Action{{Type: disruption.None}}}
	answer := node.Answer{}
	switch verb {
	case "plan":
		answer.Plan = &node.Plan{Digest: r.Digest}
		if n.applied != r.Digest {
			answer.Plan.Changes = []node.Change{change}
		}
	case "apply":
		n.applied = r.Digest
		answer.Status = &node.Status{State: node.Succeeded, Digest: r.Digest, Changes: []node.Change{change}}
	default:
		return errors.New("the fake does not know " + verb)
	}
	return json.NewEncoder(stdout).Encode(answer)
}

// fakeDisruptions is a fake of NodeDisruptionPolicies that select all Machines.
type fakeDisruptions struct{ selected *nodedisruption.Selected }

// Machine implements machineupdate.Disruptions.
func (f fakeDisruptions) Machine(context.Context, *clusterv1.Machine) (*nodedisruption.Selected, error) {
	return f.selected, nil
}

// managed is a management cluster, a fake of one, with a Machine whose node refit updates.
type managed struct {
	client.Client
	t          *testing.T
	hook       *handlers.Update
	reconciler *machineupdate.Reconciler
	drift      *drift.Checker
	clock      *clocktesting.FakeClock
	node       *fakeMachineNode
}

func newManaged(t *testing.T) *managed {
	t.Helper()
	c := managementtest.New(managementtest.Updatable(machineKey, "n1", bootstrapv1.File{Path: "/etc/app/a", Content: "one\n"})...)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "refit-node-linux-amd64"), []byte("agent"), 0o600))
	agents, err := remote.LoadAgents(dir)
	require.NoError(t, err)
	now := clocktesting.NewFakeClock(managementtest.Start)
	m := &managed{Client: c, t: t, clock: now, node: &fakeMachineNode{hostKey: newHostKey(t)}}
	policies := changemanagement.NewPolicies(c, c, now)
	require.NoError(t, policies.Prime(t.Context()))
	m.reconciler = &machineupdate.Reconciler{
		Client: c, Live: c, Clock: now, Agents: agents, Dialer: m.node, OnConflict: node.Overwrite, Disruptions: everythingIsHarmless(t),
		Workloads: workloadtest.New(now, workloadtest.Node("n1")), Observer: lease.NewObserver(10), Recorder: events.NewFakeRecorder(100), Instance: "refit-0",
		Slots:   &slots.Slots{Client: c, Live: c, Limits: slots.Limits{Workers: intstr.FromString("20%")}, Clock: now},
		Gate:    &changemanagement.Gate{Policies: policies, Client: c, Live: c, Clock: now, Metrics: changemanagement.NewMetrics(prometheus.NewRegistry())},
		Metrics: machineupdate.NewMetrics(prometheus.NewRegistry()), RebootTimeout: time.Minute,
	}
	m.drift = &drift.Checker{Client: c, Live: c, Clock: now, Nodes: m.reconciler, Interval: time.Hour, Metrics: drift.NewMetrics(prometheus.NewRegistry())}
	m.hook = handlers.NewUpdate(&machineupdate.Store{Client: c, Live: c, Clock: now}, "")
	return m
}

func everythingIsHarmless(t *testing.T) fakeDisruptions {
	t.Helper()
	allowed, err := disruption.AllowPaths([]string{"/etc/app"})
	require.NoError(t, err)
	rules := disruption.Rules{Files: allowed}
	registry, err := updaters.NewRegistry(files.New(rules))
	require.NoError(t, err)
	return fakeDisruptions{&nodedisruption.Selected{Effective: nodedisruption.Effective{Rules: rules}, Updaters: registry}}
}

func (m *managed) machine() *clusterv1.Machine {
	var machine clusterv1.Machine
	require.NoError(m.t, m.Get(m.t.Context(), machineKey, &machine))
	return &machine
}

// mark does as Cluster API does when it begins, or ends, an update in place.
func (m *managed) mark(begins bool) {
	machine := m.machine()
	if begins {
		metav1.SetMetaDataAnnotation(&machine.ObjectMeta, clusterv1.UpdateInProgressAnnotation, "")
		metav1.SetMetaDataAnnotation(&machine.ObjectMeta, runtimev1.PendingHooksAnnotation, "UpdateMachine")
	} else {
		delete(machine.Annotations, clusterv1.UpdateInProgressAnnotation)
		delete(machine.Annotations, runtimev1.PendingHooksAnnotation)
	}
	require.NoError(m.t, m.Update(m.t.Context(), machine))
}

// want has the specs of the machine want a content.
func (m *managed) want(content string) {
	var config bootstrapv1.KubeadmConfig
	require.NoError(m.t, m.Get(m.t.Context(), machineKey, &config))
	config.Spec.Files[0].Content = content
	require.NoError(m.t, m.Update(m.t.Context(), &config))
}

// call calls UpdateMachine with the machine's objects as they are, but for the content that the caller says; "" is as it is.
func (m *managed) call(content string) *runtimehooksv1.UpdateMachineResponse {
	var config bootstrapv1.KubeadmConfig
	require.NoError(m.t, m.Get(m.t.Context(), machineKey, &config))
	infrastructure := *config.DeepCopy()
	if content != "" {
		config.Spec.Files[0].Content = content
	}
	machine := m.machine()
	type object struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   any    `json:"metadata"`
		Spec       any    `json:"spec"`
	}
	metadata := map[string]string{"namespace": machineKey.Namespace, "name": machineKey.Name}
	body, err := json.Marshal(map[string]any{
		"apiVersion": runtimehooksv1.GroupVersion.String(), "kind": "UpdateMachineRequest",
		"desired": map[string]any{
			"machine":               object{clusterv1.GroupVersion.String(), "Machine", metadata, machine.Spec},
			"infrastructureMachine": object{bootstrapv1.GroupVersion.String(), "KubeadmConfig", metadata, infrastructure.Spec},
			"bootstrapConfig":       object{bootstrapv1.GroupVersion.String(), "KubeadmConfig", metadata, config.Spec},
		},
	})
	require.NoError(m.t, err)
	response, ok := m.hook.Machine(m.t.Context(), body).(*runtimehooksv1.UpdateMachineResponse)
	require.True(m.t, ok)
	require.Equal(m.t, runtimehooksv1.ResponseStatusSuccess, response.Status, response.Message)
	return response
}

// forge does as call, as somebody who is not Cluster API: it must not be told that anything is done.
func (m *managed) forge(content string) {
	m.t.Helper()
	require.Positive(m.t, m.call(content).RetryAfterSeconds)
}

func (m *managed) reconcile() {
	for range 3 {
		_, err := m.reconciler.Reconcile(m.t.Context(), ctrl.Request{NamespacedName: machineKey})
		require.NoError(m.t, err)
	}
}

// update returns the MachineUpdate, or nil.
func (m *managed) update() *refitv1.MachineUpdate {
	var list refitv1.MachineUpdateList
	require.NoError(m.t, m.List(m.t.Context(), &list))
	if len(list.Items) == 0 {
		return nil
	}
	return &list.Items[0]
}

// updated has the machine updated as Cluster API does, to the specs that it has.
func (m *managed) updated() {
	m.t.Helper()
	m.mark(true)
	for range 3 {
		if m.call("").RetryAfterSeconds == 0 {
			m.mark(false)
			return
		}
		m.reconcile()
	}
	require.FailNow(m.t, "the update is not done", m.update().Status.Message)
}

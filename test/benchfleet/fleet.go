package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/workload"
	"github.com/capi-refit/refit/schedule"
)

// The policies that are opened, by number, each when something else is measured. Those of the dark nodes come after them.
const (
	editedAlone = iota
	editedBesideDark
	openedByClock
	editedAtKill
	openedOnes // is how many there are
)

// fleet is what was made.
type fleet struct {
	nodes *nodes
	// policed are the policies that are opened, and darkened those of dark nodes, by number. Only their Machines have nodes, and only their Clusters an
	// API server.
	policed, darkened map[int]*policed

	// requests are UpdateMachine's, one a machine, in the order in which they are made.
	mu       sync.Mutex
	requests [][]byte
	dark     int // nodes that were made, or are about to be
}

// policed is a policy, and the updates that it holds.
type policed struct {
	policy  client.ObjectKey
	updates map[client.ObjectKey]bool
}

// newFleet says which policies have nodes: those that are opened, and as many more as it takes to have all dark nodes. These are in the same
// namespaces, so that they are in the same shards.
func newFleet(o options, n *nodes) (*fleet, error) {
	f := &fleet{nodes: n, policed: map[int]*policed{}, darkened: map[int]*policed{}}
	of := func(p int) *policed {
		return &policed{client.ObjectKey{Namespace: namespaceOf(o, p), Name: policyName(p)}, map[client.ObjectKey]bool{}}
	}
	machines := make([]int, o.policies)
	for i := range o.machines {
		machines[o.policyOf(i)]++
	}
	with := 0
	for p := range openedOnes {
		f.policed[p] = of(p)
		with += machines[p]
	}
	for p, dark := max(openedOnes, o.namespaces), 0; dark < o.dark; p++ {
		if p >= o.policies {
			return nil, fmt.Errorf("there are no %d dark nodes, but %d: policies from the %dth on have no more machines", o.dark, dark, max(openedOnes, o.namespaces)+1)
		}
		f.darkened[p] = of(p)
		dark += machines[p]
		with += machines[p]
	}
	return f, mayOpen(with)
}

// of returns a policy by its number, and whether its nodes are dark, or nil if it has no nodes.
func (f *fleet) of(p int) (*policed, bool) {
	if of := f.policed[p]; of != nil {
		return of, false
	}
	return f.darkened[p], true
}

// creators is how many objects are made at once.
const creators = 32

// fill makes a fleet: each namespace has its part of the clusters, of the policies and of the machines.
func (m *management) fill(ctx context.Context, o options, f *fleet) error {
	for n := range o.namespaces {
		if err := m.namespace(ctx, o, f, n); err != nil {
			return err
		}
	}
	for p := range o.policies {
		if err := m.Create(ctx, closedPolicy(o, p)); err != nil {
			return fmt.Errorf("make a policy: %w", err)
		}
	}
	for c := range o.clusters {
		if err := m.cluster(ctx, o, f, c); err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(creators)
	for i := range o.machines {
		g.Go(func() error { return m.machine(ctx, o, f, i) })
	}
	return g.Wait()
}

// cluster makes a Cluster. If it has nodes, refit has a kubeconfig for it, which leads to the same API server as all others: Nodes have names of their
// own in the whole fleet.
func (m *management) cluster(ctx context.Context, o options, f *fleet, c int) error {
	meta := metav1.ObjectMeta{Namespace: namespaceOf(o, c), Name: clusterName(c), Labels: map[string]string{"policy": policyName(c % o.policies)}}
	spec := clusterv1.ClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "c.invalid", Port: 6443}}
	cluster := &clusterv1.Cluster{ObjectMeta: meta, Spec: spec}
	if err := m.Create(ctx, cluster); err != nil {
		return fmt.Errorf("make a Cluster: %w", err)
	}
	if o.provisioned {
		if err := m.provision(ctx, cluster); err != nil {
			return err
		}
	}
	if of, _ := f.of(c % o.policies); of == nil {
		return nil
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: meta.Namespace, Name: meta.Name + workload.SecretSuffix}}
	secret.Data = map[string][]byte{workload.SecretKey: m.server.Kubeconfig}
	if err := m.Create(ctx, secret); err != nil {
		return fmt.Errorf("give refit access to a workload cluster: %w", err)
	}
	return nil
}

// provision has a Cluster be one to which refit connects. This very API server is its own, so that what is asked of it is counted, too.
func (m *management) provision(ctx context.Context, cluster *clusterv1.Cluster) error {
	cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	if err := m.Status().Update(ctx, cluster); err != nil {
		return fmt.Errorf("write the status of a Cluster: %w", err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: cluster.Name + "-kubeconfig"}}
	secret.Data = map[string][]byte{"value": m.server.Kubeconfig}
	if err := m.Create(ctx, secret); err != nil {
		return fmt.Errorf("make the kubeconfig of a Cluster: %w", err)
	}
	return nil
}

// namespaceOf returns the namespace of a cluster, which is that of its policy, too.
func namespaceOf(o options, cluster int) string {
	return fmt.Sprintf("fleet-%d", cluster%o.policies%o.namespaces)
}
func (o options) policyOf(machine int) int { return machine % o.clusters % o.policies }

func clusterName(c int) string { return fmt.Sprintf("c%d", c) }
func policyName(p int) string  { return fmt.Sprintf("p%d", p) }

func (m *management) namespace(ctx context.Context, o options, f *fleet, n int) error {
	name := namespaceOf(o, n)
	access := &refitv1.NodeAccess{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "all"}}
	access.Spec.SSH = refitv1.SSHAccess{
		User: "refit", Port: int32(f.nodes.port), PrivateKeySecretRef: refitv1.SecretKeyReference{Name: "ssh"},
		HostKeys: refitv1.HostKeys{Policy: refitv1.HostKeyTrustOnFirstUse},
	}
	for _, obj := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, access,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "ssh"}, Data: map[string][]byte{"ssh-privatekey": f.nodes.key}},
	} {
		if err := m.Create(ctx, obj); err != nil {
			return fmt.Errorf("make the namespaces: %w", err)
		}
	}
	return nil
}

// closedPolicy returns a policy that is half a year from being open, and holds back everything.
func closedPolicy(o options, p int) *refitv1.ChangeManagementPolicy {
	policy := &refitv1.ChangeManagementPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOf(o, p), Name: policyName(p)}}
	policy.Spec.Selector.Clusters.MatchLabels = map[string]string{"policy": policyName(p)}
	policy.Spec.Hold = o.held()
	policy.Spec.Strategy = schedule.MaintenanceScheduleStrategy
	month := time.Now().UTC().AddDate(0, 6, 0).Month()
	policy.Spec.MaintenanceSchedule = &schedule.MaintenanceSchedule{TimeZone: "UTC", Permit: []schedule.Permit{{
		Recurrence: fmt.Sprintf("FREQ=YEARLY;BYMONTH=%d;BYMONTHDAY=1", month), StartTime: "00:00", Duration: "8h",
	}}}
	return policy
}

// machine makes a Machine that is being updated in place, and the request by which Cluster API asks for that.
func (m *management) machine(ctx context.Context, o options, f *fleet, i int) error {
	c := i % o.clusters
	meta := metav1.ObjectMeta{
		Namespace: namespaceOf(o, c), Name: fmt.Sprintf("m%d", i), Labels: map[string]string{clusterv1.ClusterNameLabel: clusterName(c)},
	}
	config := &bootstrapv1.KubeadmConfig{ObjectMeta: *meta.DeepCopy()}
	config.Spec.Files = []bootstrapv1.File{{Path: "/etc/app/a", Content: "one\n"}}
	if err := m.Create(ctx, config); err != nil {
		return fmt.Errorf("make a KubeadmConfig: %w", err)
	}
	machine := &clusterv1.Machine{ObjectMeta: meta}
	machine.Annotations = map[string]string{clusterv1.UpdateInProgressAnnotation: "", runtimev1.PendingHooksAnnotation: "UpdateMachine"}
	machine.Spec.ClusterName, machine.Spec.Version = clusterName(c), "v1.36.0"
	ref := clusterv1.ContractVersionedObjectReference{APIGroup: bootstrapv1.GroupVersion.Group, Kind: "KubeadmConfig", Name: meta.Name}
	machine.Spec.Bootstrap.ConfigRef, machine.Spec.InfrastructureRef = ref, ref // any kind that is there does for an infrastructure machine
	if err := m.Create(ctx, machine); err != nil {
		return fmt.Errorf("make a Machine: %w", err)
	}
	at, err := m.node(ctx, o, f, i)
	if err != nil {
		return err
	}
	machine.Status.NodeRef.Name = nodeName(i)
	machine.Status.Conditions = []metav1.Condition{{ // else the cluster can't spare a node
		Type: clusterv1.MachineNodeReadyCondition, Status: metav1.ConditionTrue, Reason: clusterv1.MachineNodeReadyReason, LastTransitionTime: metav1.Now(),
	}}
	machine.Status.Addresses = clusterv1.MachineAddresses{{Type: clusterv1.MachineInternalIP, Address: at}}
	if err := m.Status().Update(ctx, machine); err != nil {
		return fmt.Errorf("write the status of a Machine: %w", err)
	}
	request, err := updateRequest(machine, config)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, request)
	return nil
}

func nodeName(i int) string { return fmt.Sprintf("node-m%d", i) }

// node starts the node of a Machine if it is to have one, and returns the Machine's address.
func (m *management) node(ctx context.Context, o options, f *fleet, i int) (string, error) {
	of, dark := f.of(o.policyOf(i))
	if of == nil {
		return "127.0.0.1", nil // nobody listens there
	}
	f.mu.Lock()
	if dark = dark && f.dark < o.dark; dark {
		f.dark++
	} else {
		of.updates[client.ObjectKey{Namespace: of.policy.Namespace, Name: fmt.Sprintf("m%d", i)}] = true
	}
	f.mu.Unlock()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i)}}
	n.Status.NodeInfo.KubeletVersion = "v1.36.0"
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := m.Create(ctx, n); err != nil {
		return "", fmt.Errorf("make a Node: %w", err)
	}
	return address(i), f.nodes.start(i, dark)
}

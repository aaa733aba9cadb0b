package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/schedule"
	"github.com/capi-refit/refit/test/apiserver"
	"github.com/capi-refit/refit/test/lab"
)

// management is a management cluster without Cluster API's managers.
type management struct {
	client.Client
	server *apiserver.Server
	dir    string
	bundle []byte // with which refit's hooks are verified
}

func newManagement(ctx context.Context, out io.Writer) (*management, error) {
	programs, err := lab.Build(ctx, out, lab.Etcd, lab.KubeAPIServer)
	if err != nil {
		return nil, err
	}
	m := &management{}
	if m.dir, err = os.MkdirTemp("", "refit-benchfleet-"); err != nil {
		return nil, err
	}
	m.server, err = apiserver.Start(ctx, apiserver.Options{Etcd: programs[lab.Etcd], KubeAPIServer: programs[lab.KubeAPIServer], Dir: m.dir})
	if err == nil {
		err = m.install(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, m.stop())
	}
	return m, nil
}

func (m *management) stop() error {
	var err error
	if m.server != nil {
		err = m.server.Stop()
	}
	return errors.Join(err, os.RemoveAll(m.dir))
}

// install installs Cluster API's kinds, as their stored versions are, and refit's.
func (m *management) install(ctx context.Context) error {
	source, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api").Output()
	if err != nil {
		return fmt.Errorf("find Cluster API's source: %w", err)
	}
	dir := strings.TrimSpace(string(source))
	theirs := envtest.CRDInstallOptions{Paths: []string{
		filepath.Join(dir, "core", "config", "crd", "bases"), filepath.Join(dir, "bootstrap", "kubeadm", "config", "crd", "bases"),
	}}
	if err := envtest.ReadCRDFiles(&theirs); err != nil {
		return err
	}
	for _, crd := range theirs.CRDs {
		crd.Spec.Conversion = nil // nobody converts here
		metav1.SetMetaDataLabel(&crd.ObjectMeta, "cluster.x-k8s.io/v1beta2", "v1beta2")
		for i := range crd.Spec.Versions {
			crd.Spec.Versions[i].Served = crd.Spec.Versions[i].Storage
		}
	}
	for _, crds := range []envtest.CRDInstallOptions{
		{CRDs: theirs.CRDs}, {Paths: []string{filepath.Join("config", "crd", "bases")}, ErrorIfPathMissing: true},
	} {
		crds.MaxTime = 2 * time.Minute
		if _, err := envtest.InstallCRDs(m.server.Config, crds); err != nil {
			return fmt.Errorf("install CRDs: %w", err)
		}
	}
	config := rest.CopyConfig(m.server.Config)
	config.QPS, config.Burst = 5000, 5000
	m.Client, err = client.New(config, client.Options{Scheme: managementtest.NewScheme()})
	return err
}

// fleet is what was made.
type fleet struct {
	// requests are UpdateMachine's, one a machine, in the order in which they are made.
	mu       sync.Mutex
	requests [][]byte
	// policies are those of the first namespace.
	first *policed
}

// policed is a policy, and the updates that it holds.
type policed struct {
	policy  client.ObjectKey
	updates []client.ObjectKey
}

// creators is how many objects are made at once.
const creators = 32

// fill makes a fleet: each namespace has its part of the clusters, of the policies and of the machines.
func (m *management) fill(ctx context.Context, o options) (*fleet, error) {
	f := &fleet{first: &policed{}}
	for n := range o.namespaces {
		if err := m.namespace(ctx, o, n); err != nil {
			return nil, err
		}
	}
	for p := range o.policies {
		if err := m.Create(ctx, closedPolicy(o, p)); err != nil {
			return nil, fmt.Errorf("make a policy: %w", err)
		}
	}
	for c := range o.clusters {
		if err := m.Create(ctx, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespaceOf(o, c), Name: clusterName(c), Labels: map[string]string{"policy": policyName(c % o.policies)},
		}, Spec: clusterv1.ClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "c.invalid", Port: 6443}}}); err != nil {
			return nil, fmt.Errorf("make a Cluster: %w", err)
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(creators)
	for i := range o.machines {
		g.Go(func() error { return m.machine(ctx, o, f, i) })
	}
	f.first.policy = client.ObjectKey{Namespace: namespaceOf(o, 0), Name: policyName(0)}
	return f, g.Wait()
}

// namespaceOf returns the namespace of a cluster, which is that of its policy, too.
func namespaceOf(o options, cluster int) string {
	return fmt.Sprintf("fleet-%d", cluster%o.policies%o.namespaces)
}
func clusterName(c int) string { return fmt.Sprintf("c%d", c) }
func policyName(p int) string  { return fmt.Sprintf("p%d", p) }

func (m *management) namespace(ctx context.Context, o options, n int) error {
	name := namespaceOf(o, n)
	access := &refitv1.NodeAccess{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "all"}}
	access.Spec.SSH = refitv1.SSHAccess{
		User: "refit", Port: 22, PrivateKeySecretRef: refitv1.SecretKeyReference{Name: "ssh"},
		HostKeys: refitv1.HostKeys{Policy: refitv1.HostKeyTrustOnFirstUse},
	}
	for _, obj := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, access,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "ssh"}, Data: map[string][]byte{"ssh-privatekey": []byte("a key")}},
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

// open has the policy of the fleet's first clusters be open always.
func (m *management) open(ctx context.Context, f *fleet) (*policed, error) {
	var policy refitv1.ChangeManagementPolicy
	if err := m.Get(ctx, f.first.policy, &policy); err != nil {
		return nil, err
	}
	policy.Spec.MaintenanceSchedule.Permit = []schedule.Permit{{Recurrence: "FREQ=DAILY", StartTime: "00:00", Duration: "24h"}}
	return f.first, m.Update(ctx, &policy)
}

// closed returns how many of a policy's updates wait for a window. They are listed, since to read one after the other takes longer than they do.
func (m *management) closed(ctx context.Context, of *policed) (int, error) {
	var list refitv1.MachineUpdateList
	if err := m.List(ctx, &list, client.InNamespace(of.policy.Namespace)); err != nil {
		return 0, err
	}
	n := 0
	for i := range list.Items {
		mu := &list.Items[i]
		if mu.Status.Reason == refitv1.ReasonWindow && slices.Contains(of.updates, client.ObjectKeyFromObject(mu)) {
			n++
		}
	}
	return n, nil
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
	machine.Status.NodeRef.Name = "node-" + meta.Name
	machine.Status.Addresses = clusterv1.MachineAddresses{{Type: clusterv1.MachineInternalIP, Address: "127.0.0.1"}}
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
	if c%o.policies == 0 {
		f.first.updates = append(f.first.updates, client.ObjectKeyFromObject(machine))
	}
	return nil
}

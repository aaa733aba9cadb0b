//go:build e2e

package machineupdate

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/workload/workloadtest"
	"github.com/capi-refit/refit/schedule"
	"github.com/capi-refit/refit/test/apiserver"
	"github.com/capi-refit/refit/test/lab"
)

// managementCluster is a management cluster: an API server with Cluster API's kinds and refit's, as clusterctl finds them.
type managementCluster struct {
	client.WithWatch
	kubeconfig string
}

// programs are the API servers' and where Cluster API's source is.
type programs struct {
	lab.Binaries
	clusterAPI string
}

func buildPrograms(t *testing.T) programs {
	binaries, err := lab.Build(t.Context(), t.Output(), lab.Etcd, lab.KubeAPIServer, lab.Clusterctl)
	require.NoError(t, err)
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api").Output()
	require.NoError(t, err)
	return programs{binaries, strings.TrimSpace(string(dir))}
}

func (p programs) start(t *testing.T, name string, beside *apiserver.Server) *apiserver.Server {
	s, err := apiserver.Start(t.Context(), apiserver.Options{
		Etcd: p.Binaries[lab.Etcd], KubeAPIServer: p.Binaries[lab.KubeAPIServer], Name: name, Beside: beside, Dir: t.TempDir(),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	return s
}

// management installs the kinds. Those of providers that clusterctl installs get its label from it; refit's have theirs.
func (p programs) management(t *testing.T, s *apiserver.Server) *managementCluster {
	theirs := envtest.CRDInstallOptions{Paths: []string{
		filepath.Join(p.clusterAPI, "core", "config", "crd", "bases"), filepath.Join(p.clusterAPI, "bootstrap", "kubeadm", "config", "crd", "bases"),
	}}
	require.NoError(t, envtest.ReadCRDFiles(&theirs))
	for _, crd := range theirs.CRDs {
		crd.Spec.Conversion = nil // nobody converts here
		metav1.SetMetaDataLabel(&crd.ObjectMeta, clusterctlv1.ClusterctlLabel, "")
		metav1.SetMetaDataLabel(&crd.ObjectMeta, "cluster.x-k8s.io/v1beta2", "v1beta2")
		for i := range crd.Spec.Versions {
			crd.Spec.Versions[i].Served = crd.Spec.Versions[i].Storage
		}
	}
	for _, install := range []envtest.CRDInstallOptions{
		{CRDs: theirs.CRDs}, {Paths: []string{filepath.Join("..", "..", "config", "crd", "bases")}, ErrorIfPathMissing: true},
	} {
		install.MaxTime = 2 * time.Minute
		_, err := envtest.InstallCRDs(s.Config, install)
		require.NoError(t, err)
	}
	c, err := client.NewWithWatch(s.Config, client.Options{Scheme: testScheme()})
	require.NoError(t, err)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, s.Kubeconfig, 0o600))
	return &managementCluster{c, kubeconfig}
}

// move has clusterctl move all from one management cluster to another.
func (p programs) move(ctx context.Context, t *testing.T, source, target *managementCluster) <-chan error {
	config := filepath.Join(t.TempDir(), "clusterctl.yaml")
	require.NoError(t, os.WriteFile(config, nil, 0o600))
	cmd := exec.CommandContext(ctx, p.Binaries[lab.Clusterctl], "move", "-v=1", "--config="+config, "--namespace="+key.Namespace,
		"--kubeconfig="+source.kubeconfig, "--to-kubeconfig="+target.kubeconfig)
	cmd.Env = append(os.Environ(), "CLUSTERCTL_DISABLE_VERSIONCHECK=true", "XDG_CONFIG_HOME="+t.TempDir())
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	moved := make(chan error, 1)
	go func() { moved <- cmd.Run() }()
	return moved
}

// fill makes the objects of a cluster with one machine that is to be updated, and what people have written beside it.
func (m *managementCluster) fill(t *testing.T, path string) {
	ctx := t.Context()
	require.NoError(t, m.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key.Namespace}}))
	var of clusterv1.Cluster
	var machine clusterv1.Machine
	owned := func(obj client.Object, owner client.Object, kind string) {
		obj.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, clusterv1.GroupVersion.WithKind(kind))})
	}
	for _, obj := range objects() {
		obj.SetUID("")
		switch o := obj.(type) {
		case *apiextensionsv1.CustomResourceDefinition:
			continue
		case *clusterv1.Cluster:
			o.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "c1.example.org", Port: 6443}
			require.NoError(t, m.Create(ctx, o))
			of = *o
			o.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
			o.Status.Conditions = []metav1.Condition{{
				Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue, Reason: "Initialized", LastTransitionTime: metav1.Now(),
			}}
			require.NoError(t, m.Status().Update(ctx, o))
		case *clusterv1.Machine:
			o.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1"}
			owned(o, &of, "Cluster")
			require.NoError(t, m.Create(ctx, o))
			machine = *o
			m.joined(t)
		case *corev1.Secret:
			o.Labels = map[string]string{clusterctlv1.ClusterctlMoveLabel: ""} // as docs/move.md has people do
			require.NoError(t, m.Create(ctx, o))
		case *refitv1.NodeAccess:
			require.NoError(t, m.Create(ctx, o))
		case *bootstrapv1.KubeadmConfig:
			o.Spec.Files[0].Path = path
			owned(o, &machine, "Machine")
			require.NoError(t, m.Create(ctx, o))
		}
	}
	known := &refitv1.KnownHost{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Spec: refitv1.KnownHostSpec{HostKey: line(newHostKey(t))}}
	owned(known, &machine, "Machine")
	require.NoError(t, m.Create(ctx, known))
	policy := &refitv1.ChangeManagementPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "always"}}
	policy.Spec.Strategy = schedule.PermissiveStrategy
	require.NoError(t, m.Create(ctx, policy))
}

// joined has the Machine's status say what Cluster API finds out about its node.
func (m *managementCluster) joined(t *testing.T) {
	var machine clusterv1.Machine
	require.NoError(t, m.Get(t.Context(), key, &machine))
	machine.Status.NodeRef.Name = nodeName
	machine.Status.Addresses = clusterv1.MachineAddresses{{Type: clusterv1.MachineInternalIP, Address: "192.0.2.1"}}
	machine.Status.Conditions = []metav1.Condition{{
		Type: clusterv1.MachineNodeReadyCondition, Status: metav1.ConditionTrue, Reason: "Ready", LastTransitionTime: metav1.Now(),
	}}
	require.NoError(t, m.Status().Update(t.Context(), &machine))
}

// lead has a refit server lead in a management cluster.
func (w *walkWorld) lead(m *managementCluster) {
	w.base = managementtest.LikeACache(m.WithWatch)
	w.store = &Store{Client: m, Live: m, Clock: w.clock}
	w.leader = w.start()
}

// live reconciles once, at the time that it really is: leases are compared with the clock of a real API server.
func (w *walkWorld) live() error {
	w.clock.SetTime(time.Now())
	_, err := w.leader.Reconcile(w.ctx, ctrl.Request{NamespacedName: key})
	w.kubelet()
	return err
}

// TestClusterctlMovesAnUpdateUnderWay has clusterctl's own code move a cluster between two real API servers while the node of its machine is
// at work.
func TestClusterctlMovesAnUpdateUnderWay(t *testing.T) {
	ctrl.SetLogger(logr.Discard()) // envtest complains otherwise
	for name, path := range map[string]string{"while a unit is restarted": restartPath, "while the node reboots": rebootPath} {
		t.Run(name, func(t *testing.T) { moveUnderWay(t, path) })
	}
}

func moveUnderWay(t *testing.T, path string) {
	p := buildPrograms(t)
	first := p.start(t, "source", nil)
	source, target := p.management(t, first), p.management(t, p.start(t, "target", first))
	w := newWalkWorld(walkContext(), t, t.TempDir(), path, newFault(nothing, -1))
	defer w.node.end()
	w.workloadAt(t, p.start(t, "workload", first))
	source.fill(t, path)
	w.lead(source)

	// Cluster API asks, and the server is killed when the node is at work.
	early := w.node.reached
	w.node.reached = func(what string) {
		early(what)
		w.leader.dead.Store(true)
	}
	w.ask()
	for tries := 0; !w.leader.dead.Load(); tries++ {
		require.Less(t, tries, maxRounds, w.update().Status.Message)
		_ = w.live() // what comes of it is in the status
	}
	w.node.reached = early
	before := w.update()
	require.True(t, moveBlocked(before), "clusterctl waits until the node is left")
	require.NotNil(t, before.Status.ApplyingSince)
	require.NotNil(t, before.Status.Slot)
	w.lead(source)
	w.moveBy(t, p, source, target)

	w.lead(target)
	target.joined(t)
	arrived := w.update()
	require.Empty(t, arrived.Status.Phase, "clusterctl copies no status")
	restored := arrived.Restored().Status
	require.GreaterOrEqual(t, restored.Token, before.Status.Token)
	require.Equal(t, before.Status.Starts, restored.Starts)
	require.Equal(t, before.Status.Slot, restored.Slot)
	require.Equal(t, before.Status.ApplyingSince, restored.ApplyingSince)
	for tries := 0; !w.ask(); tries++ {
		require.Less(t, tries, maxRounds, w.update().Status.Message)
		_ = w.live()
	}
	w.requireDone()
	require.Equal(t, before.Status.Starts, w.update().Status.Starts, "it is one start for budgets")
}

// paused reports whether clusterctl has paused the Cluster, or moved it away.
func (m *managementCluster) paused(t *testing.T) bool {
	var of clusterv1.Cluster
	err := m.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "c1"}, &of)
	require.NoError(t, client.IgnoreNotFound(err))
	return err != nil || ptr.Deref(of.Spec.Paused, false)
}

// moveBy has clusterctl move all from one management cluster to the other, while refit leads where it comes from.
func (w *walkWorld) moveBy(t *testing.T, p programs, source, target *managementCluster) {
	moved := p.move(t.Context(), t, source, target)
	for done := false; !done; {
		select {
		case err := <-moved:
			require.NoError(t, err)
			done = true
		case <-time.After(200 * time.Millisecond):
			if source.paused(t) { // before that refit would just go on
				_ = w.live()
			}
		}
	}
	meta := metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
	what := []client.Object{
		&clusterv1.Machine{ObjectMeta: meta}, &refitv1.MachineUpdate{ObjectMeta: meta}, &refitv1.KnownHost{ObjectMeta: meta},
		&refitv1.NodeAccess{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "all"}},
		&refitv1.ChangeManagementPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "always"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "ssh"}},
	}
	for _, obj := range what {
		there := client.ObjectKeyFromObject(obj)
		require.True(t, apierrors.IsNotFound(source.Get(t.Context(), there, obj)), "%T is still there", obj)
		require.NoError(t, target.Get(t.Context(), there, obj), "%T has not come", obj)
	}
	require.Equal(t, what[0].GetUID(), what[1].GetOwnerReferences()[0].UID)
	require.Equal(t, what[0].GetUID(), what[2].GetOwnerReferences()[0].UID)
}

// workloadAt has the cluster be one with a real API server, but for its pods.
func (w *walkWorld) workloadAt(t *testing.T, s *apiserver.Server) {
	c, err := client.NewWithWatch(s.Config, client.Options{Scheme: workloadtest.Scheme()})
	require.NoError(t, err)
	w.workload.Client = c
	require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web"}}))
	for _, name := range []string{nodeName, "n2"} { // to the latter pods can go
		n := workloadtest.Node(name)
		status := n.Status
		n.UID = ""
		require.NoError(t, c.Create(t.Context(), n))
		n.Status = status
		require.NoError(t, c.Status().Update(t.Context(), n))
	}
}

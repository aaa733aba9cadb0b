//go:build e2e

package pending

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/bootimage"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/index"
	"github.com/capi-refit/refit/internal/judges"
	"github.com/capi-refit/refit/internal/kubernetessource"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/nodedisruption"
	"github.com/capi-refit/refit/internal/policykind/policykindtest"
	"github.com/capi-refit/refit/internal/rollback"
	"github.com/capi-refit/refit/test/apiserver"
	"github.com/capi-refit/refit/test/apiserver/apitest"
)

// management is a real API server with Cluster API's kinds, and a manager that keeps the view with the rights that refit has.
type management struct {
	client.WithWatch
	t *testing.T
}

func startManagement(t *testing.T) *management {
	server := apitest.Start(t, envtest.CRDInstallOptions{CRDs: clusterAPITypes(t)})
	scheme := managementtest.NewScheme(controlplanev1.AddToScheme)
	admin, err := client.NewWithWatch(server.Config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	require.NoError(t, admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: policykindtest.Namespace}}))
	_, err = apiserver.Apply(t.Context(), admin, filepath.Join("..", "..", "config", "rbac"))
	require.NoError(t, err)
	kubeconfig, err := apiserver.AccountKubeconfig(t.Context(), server.Config, client.ObjectKey{Namespace: "refit-system", Name: "refit"})
	require.NoError(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	require.NoError(t, err)
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
	require.NoError(t, err)
	require.NoError(t, index.Setup(t.Context(), mgr.GetFieldIndexer()))
	c, live, now := mgr.GetClient(), mgr.GetAPIReader(), clock.RealClock{}
	policies := changemanagement.NewPolicies(c, live, now)
	by := judges.ByPolicy{Disruptions: nodedisruption.NewPolicies(c, disruption.BuiltinRules(), judges.List()), Sources: kubernetessource.New(c), Images: bootimage.NewPolicies(c)}
	view := &View{
		Client: c, Versions: by, Clock: now,
		Gate:   &changemanagement.Gate{Policies: policies, Client: c, Live: live, Clock: now, Metrics: changemanagement.NewMetrics(prometheus.NewRegistry())},
		Owners: &Owners{Client: c, Live: live, Differences: &rollback.Rollback{Writer: c, Live: live}, Updaters: by, Clock: now},
	}
	for _, s := range []interface{ SetupWithManager(ctrl.Manager) error }{policies, by.Disruptions, by.Sources, by.Images, view} {
		require.NoError(t, s.SetupWithManager(mgr))
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	return &management{admin, t}
}

// clusterAPITypes are Cluster API's CRDs as its releases label them, and refit's.
func clusterAPITypes(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api").Output()
	require.NoError(t, err)
	options := envtest.CRDInstallOptions{ErrorIfPathMissing: true}
	for _, part := range []string{"core", "bootstrap/kubeadm", "controlplane/kubeadm"} {
		options.Paths = append(options.Paths, filepath.Join(strings.TrimSpace(string(out)), filepath.FromSlash(part), "config", "crd", "bases"))
	}
	require.NoError(t, envtest.ReadCRDFiles(&options))
	for _, crd := range options.CRDs {
		metav1.SetMetaDataLabel(&crd.ObjectMeta, "cluster.x-k8s.io/v1beta2", "v1beta2")
	}
	own := envtest.CRDInstallOptions{ErrorIfPathMissing: true, Paths: []string{filepath.Join("..", "..", "config", "crd", "bases")}}
	require.NoError(t, envtest.ReadCRDFiles(&own))
	return append(options.CRDs, own.CRDs...)
}

// make creates an object as it is in the fake world, with the status that it has there.
func (m *management) make(obj client.Object, owner client.Object) {
	m.t.Helper()
	obj.SetUID("")
	obj.SetGeneration(0)
	if owner != nil {
		refs := obj.GetOwnerReferences()
		refs[0].UID = owner.GetUID()
		obj.SetOwnerReferences(refs)
	}
	wanted := obj.DeepCopyObject().(client.Object)
	require.NoError(m.t, m.Create(m.t.Context(), obj))
	wanted.SetResourceVersion(obj.GetResourceVersion())
	wanted.SetUID(obj.GetUID())
	require.NoError(m.t, client.IgnoreNotFound(m.Status().Update(m.t.Context(), wanted)))
}

// await waits until what is shown of an owner is as expected.
func (m *management) await(kind, name string, ok func(*refitv1.PendingChange) bool) *refitv1.PendingChange {
	m.t.Helper()
	key := policykindtest.Key(nameOf(refitv1.PendingOwner{Kind: kind, Name: name}))
	for end := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		p := &refitv1.PendingChange{}
		err := m.Get(m.t.Context(), key, p)
		require.NoError(m.t, client.IgnoreNotFound(err))
		if err != nil {
			p = &refitv1.PendingChange{}
		}
		if ok(p) {
			return p
		}
		require.True(m.t, time.Now().Before(end), "of %s %s is shown %+v", kind, name, p.Status)
	}
}

func gone(p *refitv1.PendingChange) bool { return p.Name == "" }

// TestOnARealAPIServer has a change come to wait, and then none.
func TestOnARealAPIServer(t *testing.T) {
	m := startManagement(t)
	objects := fleet(command, func(md *clusterv1.MachineDeployment) {
		md.Spec.Selector.MatchLabels = map[string]string{"of": "md"}
		md.Spec.Template.Labels = md.Spec.Selector.MatchLabels
	})
	c, md, ms := objects[0].(*clusterv1.Cluster), objects[1].(*clusterv1.MachineDeployment), objects[2].(*clusterv1.MachineSet)
	ms.Spec.Selector, ms.Spec.Template.Labels = md.Spec.Selector, md.Spec.Template.Labels
	c.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "AcmeCluster", Name: "c1"}
	m.make(c, nil)
	m.make(md, nil)
	m.make(ms, md)
	for _, template := range objects[3:6] {
		m.make(template, nil)
	}
	infra := clusterv1.ContractVersionedObjectReference{APIGroup: bootstrapv1.GroupVersion.Group, Kind: "KubeadmConfig", Name: "infra"}
	closed := kind.Policy("closed", func(s *spec) { s.Strategy, s.DeletionGrace = "Restrictive", "0s" })
	m.make(closed, nil)
	machine := func(name string, edits ...func(*clusterv1.Machine)) *clusterv1.Machine {
		one := worker(name, append(edits, func(o *clusterv1.Machine) {
			o.Spec.InfrastructureRef, o.Status.NodeRef = infra, clusterv1.MachineNodeReference{}
		})...)
		one.CreationTimestamp = metav1.Time{}
		m.make(one, ms)
		return one
	}
	w1 := machine("w1")
	machine("w2", outdated)

	p := m.await("MachineDeployment", "md", func(p *refitv1.PendingChange) bool {
		return p.Status.Machines == 1 && p.Status.Causes[0].Cause == refitv1.PendingReplacement
	})
	require.Equal(t, "w2", p.Status.List[0].Name)
	require.Equal(t, "Paused", p.Status.List[0].Reason)
	require.Equal(t, []refitv1.PendingPolicy{{Name: "closed", Machines: 1, Held: 1}}, p.Status.Policies)
	m.await("Cluster", "c1", func(p *refitv1.PendingChange) bool { return p.Status.Machines == 1 })

	// Somebody deletes it, and another Machine comes to wait.
	require.NoError(t, m.Delete(t.Context(), p))
	outdated(w1)
	require.NoError(t, m.Get(t.Context(), client.ObjectKeyFromObject(w1), w1))
	outdated(w1)
	require.NoError(t, m.Status().Update(t.Context(), w1))
	again := m.await("MachineDeployment", "md", func(p *refitv1.PendingChange) bool { return p.Status.Machines == 2 })
	require.NotEqual(t, p.UID, again.UID)

	// The policy opens.
	require.NoError(t, m.Get(t.Context(), client.ObjectKeyFromObject(closed), closed))
	closed.Spec.Strategy = "Permissive"
	require.NoError(t, m.Update(t.Context(), closed))
	m.await("MachineDeployment", "md", func(p *refitv1.PendingChange) bool {
		return p.Status.EarliestStart != nil && p.Status.List[0].Reason == "Open" && p.Status.Policies[0].Held == 0
	})

	// The Machines are what is wanted, and then the topology wants another version, of a Cluster that is paused.
	for _, name := range []string{"w1", "w2"} {
		var one clusterv1.Machine
		require.NoError(t, m.Get(t.Context(), policykindtest.Key(name), &one))
		one.Status.Conditions[0].Status, one.Status.Conditions[0].Reason = metav1.ConditionTrue, clusterv1.MachineUpToDateReason
		require.NoError(t, m.Status().Update(t.Context(), &one))
	}
	m.await("MachineDeployment", "md", gone)
	m.await("Cluster", "c1", gone)
	require.NoError(t, m.Get(t.Context(), client.ObjectKeyFromObject(c), c))
	c.Spec.Paused = ptr.To(true)
	c.Spec.Topology = clusterv1.Topology{Version: "v1.36.1", ClassRef: clusterv1.ClusterClassRef{Name: "class"}}
	require.NoError(t, m.Update(t.Context(), c))
	p = m.await("MachineDeployment", "md", func(p *refitv1.PendingChange) bool { return p.Status.Machines == 2 })
	require.Equal(t, []refitv1.PendingCount{{Cause: refitv1.PendingUpgrade, Machines: 2}}, p.Status.Causes)
	require.Equal(t, refitv1.PendingClusterPaused, p.Status.List[0].Reason)
}

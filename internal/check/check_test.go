package check

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/config/crd"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/schedule"
)

// fleet is a management cluster in which all is well, to be spoilt by tests.
type fleet struct {
	crds       []*apiextensionsv1.CustomResourceDefinition
	core, kcpm *appsv1.Deployment
	refit      *appsv1.Deployment
	extension  *runtimev1.ExtensionConfig
	asks       *admissionregistrationv1.ValidatingWebhookConfiguration
	guard      *admissionregistrationv1.ValidatingWebhookConfiguration
	service    *corev1.Service
	endpoints  *discoveryv1.EndpointSlice
	lease      *coordinationv1.Lease
	namespace  *corev1.Namespace
	cluster    *clusterv1.Cluster
	kcp        *controlplanev1.KubeadmControlPlane
	md         *clusterv1.MachineDeployment
	mhc        *clusterv1.MachineHealthCheck
	access     *refitv1.NodeAccess
	policy     *refitv1.ChangeManagementPolicy
	machine    *clusterv1.Machine
	more       []client.Object
}

// authority is one that lived, or is to live, for a year.
func authority(t *testing.T, end time.Time) []byte {
	t.Helper()
	return authorityOf(t, end, 365*24*time.Hour)
}

func authorityOf(t *testing.T, end time.Time, life time.Duration) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: end.Add(-life), NotAfter: end, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return out.Bytes()
}

func manager(name string, args ...string) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: name + "-system", Name: name, Labels: map[string]string{provider: name}},
		Spec: appsv1.DeploymentSpec{Replicas: new(int32(2)), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "manager", Args: args}},
		}}},
		Status: appsv1.DeploymentStatus{AvailableReplicas: 2},
	}
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	now := managementtest.Start
	in := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "fleet", Name: name} }
	f := &fleet{
		core:      manager("cluster-api", "--leader-elect", "--feature-gates=MachinePool=true,RuntimeSDK=true,InPlaceUpdates=true"),
		kcpm:      manager("control-plane-kubeadm", "--feature-gates=InPlaceUpdates=true"),
		refit:     manager("refit", "serve", "--admission-port=9444", "--client-ca=/client-ca/ca.crt", "--guard"),
		namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}},
		lease: &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "refit-system", Name: "controller-leader-election-refit"}, Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("refit-a"), LeaseDurationSeconds: new(int32(15)), RenewTime: new(metav1.NewMicroTime(now.Add(-3 * time.Second))),
		}},
		cluster: &clusterv1.Cluster{ObjectMeta: in("prod"), Spec: clusterv1.ClusterSpec{
			ControlPlaneRef: clusterv1.ContractVersionedObjectReference{APIGroup: "controlplane.cluster.x-k8s.io", Kind: "KubeadmControlPlane", Name: "prod"},
		}},
		kcp: &controlplanev1.KubeadmControlPlane{ObjectMeta: in("prod"), Spec: controlplanev1.KubeadmControlPlaneSpec{Replicas: new(int32(3))}},
		md:  &clusterv1.MachineDeployment{ObjectMeta: in("workers"), Spec: clusterv1.MachineDeploymentSpec{ClusterName: "prod"}},
		mhc: &clusterv1.MachineHealthCheck{ObjectMeta: in("workers"), Spec: clusterv1.MachineHealthCheckSpec{ClusterName: "prod", Checks: clusterv1.MachineHealthCheckChecks{
			UnhealthyNodeConditions: []clusterv1.UnhealthyNodeCondition{{Type: "Ready", Status: "False", TimeoutSeconds: new(int32(600))}},
		}}},
		access:  &refitv1.NodeAccess{ObjectMeta: in("all")},
		policy:  &refitv1.ChangeManagementPolicy{ObjectMeta: in("any"), Spec: refitv1.ChangeManagementPolicySpec{Policy: schedule.Policy{Strategy: schedule.PermissiveStrategy}}},
		machine: managementtest.Machine("fleet", "prod-a", "prod"),
	}
	f.refit.Labels = map[string]string{own: "refit"}
	f.kcp.Spec.Rollout.Strategy.RollingUpdate.MaxSurge = new(intstr.FromInt32(0))
	f.md.Spec.Rollout.Strategy.RollingUpdate.MaxSurge = new(intstr.FromInt32(0))
	f.md.Spec.Rollout.Strategy.RollingUpdate.MaxUnavailable = new(intstr.FromInt32(1))
	f.md.Labels = map[string]string{clusterv1.ClusterNameLabel: "prod"}
	f.extension = &runtimev1.ExtensionConfig{ObjectMeta: metav1.ObjectMeta{Name: "refit"}}
	f.extension.Spec.ClientConfig = runtimev1.ClientConfig{
		Service: runtimev1.ServiceReference{Namespace: "refit-system", Name: "refit"}, CABundle: authority(t, now.Add(90*24*time.Hour)),
	}
	asking := func(path ...string) *admissionregistrationv1.ValidatingWebhookConfiguration {
		content, err := os.ReadFile(filepath.Join(append([]string{"..", "..", "config"}, path...)...))
		require.NoError(t, err)
		out := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		require.NoError(t, yaml.UnmarshalStrict(content, out))
		out.Webhooks[0].ClientConfig.CABundle = f.extension.Spec.ClientConfig.CABundle
		return out
	}
	f.asks, f.guard = asking("webhook", "validatingwebhook.yaml"), asking("components", "guard", "validatingwebhook.yaml")
	f.service = &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "refit-system", Name: "refit"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "hooks", Port: 443}, {Name: "admission", Port: 444}}},
	}
	f.endpoints = &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "refit-system", Name: "refit-1", Labels: map[string]string{discoveryv1.LabelServiceName: "refit"}},
		Ports:      []discoveryv1.EndpointPort{{Name: new("hooks"), Port: new(int32(9443))}},
		Endpoints:  []discoveryv1.Endpoint{{Conditions: discoveryv1.EndpointConditions{Ready: new(false)}}, {Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}},
	}
	f.extension.Status.Conditions = []metav1.Condition{{Type: runtimev1.ExtensionConfigDiscoveredCondition, Status: "True"}}
	for _, hook := range asked {
		f.extension.Status.Handlers = append(f.extension.Status.Handlers, runtimev1.ExtensionHandler{
			Name: hook + ".refit", RequestHook: runtimev1.GroupVersionHook{Hook: hook}, FailurePolicy: runtimev1.FailurePolicyFail,
		})
	}
	require.NoError(t, fs.WalkDir(crd.Bases, "bases", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := crd.Bases.ReadFile(path)
		one := &apiextensionsv1.CustomResourceDefinition{}
		f.crds = append(f.crds, one)
		require.NoError(t, err)
		return yaml.Unmarshal(data, one)
	}))
	return f
}

func (f *fleet) run(mine ...func(*Checker)) []Finding {
	var all []client.Object
	for _, o := range f.crds {
		all = append(all, o)
	}
	for _, o := range []client.Object{f.core, f.kcpm, f.refit, f.extension, f.asks, f.guard, f.service, f.endpoints, f.lease, f.namespace, f.cluster, f.kcp, f.md, f.mhc, f.access, f.policy, f.machine} {
		if o.GetName() != "" {
			all = append(all, o)
		}
	}
	c := &Checker{Client: managementtest.NewOf([]func(*runtime.Scheme) error{controlplanev1.AddToScheme, runtimev1.AddToScheme}, append(all, f.more...)...), Clock: clocktesting.NewFakePassiveClock(managementtest.Start)}
	for _, change := range mine {
		change(c)
	}
	return c.Run(context.Background())
}

func TestAllIsWell(t *testing.T) {
	all := newFleet(t).run()
	for _, one := range all {
		require.Equal(t, Good, one.Level, "%+v", one)
		require.Empty(t, one.Do)
	}
	require.Equal(t, Good, Worst(all))
	require.GreaterOrEqual(t, len(all), 13, "%v", all)
}

var pausedBy = map[string]string{clusterv1.PausedAnnotation: ""}

func TestEachMistakeIsFound(t *testing.T) {
	gone := func(o client.Object) { o.SetName("") }
	for name, tc := range map[string]struct {
		spoil func(*testing.T, *fleet)
		check string
		level Level
		says  string
	}{
		"a kind is not defined":     {func(_ *testing.T, f *fleet) { f.crds = f.crds[1:] }, "definitions", Error, "it is not there"},
		"a kind of another version": {func(_ *testing.T, f *fleet) { f.crds[0].Spec.Versions[0].Schema = nil }, "definitions", Warning, "not the one of this version"},
		"the core gate is off":      {func(_ *testing.T, f *fleet) { f.core.Spec.Template.Spec.Containers[0].Args = nil }, "feature-gates", Error, "RuntimeSDK, InPlaceUpdates is off"},
		"the control plane's is off": {func(_ *testing.T, f *fleet) {
			f.kcpm.Spec.Template.Spec.Containers[0].Args = []string{"--feature-gates=InPlaceUpdates=false"}
		}, "feature-gates", Error, "InPlaceUpdates is off"},
		"the managers are elsewhere": {func(_ *testing.T, f *fleet) { gone(f.core) }, "feature-gates", Warning, "no Deployment of provider cluster-api"},
		"nobody is asked":            {func(_ *testing.T, f *fleet) { gone(f.extension) }, "extension", Error, "there is no ExtensionConfig"},
		"it is not discovered": {func(_ *testing.T, f *fleet) {
			f.extension.Status.Conditions[0].Status, f.extension.Status.Conditions[0].Message = "False", "x509: unknown authority"
		}, "extension", Error, "x509: unknown authority"},
		"it was never discovered": {func(_ *testing.T, f *fleet) {
			f.extension.Labels = map[string]string{"cluster.x-k8s.io/provider": "runtime-extension-refit"} // as config/default has it
			f.extension.Status.Handlers = nil
			f.extension.Status.Conditions[0].Status, f.extension.Status.Conditions[0].Message = "False", "x509: unknown authority"
		}, "extension", Error, "x509: unknown authority"},
		"nobody has looked at it": {func(_ *testing.T, f *fleet) { f.extension.Status.Conditions = nil }, "extension", Error, "has not looked at it"},
		"failures are ignored": {func(_ *testing.T, f *fleet) {
			f.extension.Status.Handlers[0].FailurePolicy = runtimev1.FailurePolicyIgnore
		}, "extension", Error, "failurePolicy Ignore"},
		"two extensions for one hook": {func(_ *testing.T, f *fleet) {
			other := f.extension.DeepCopy()
			other.Name = "other"
			f.more = append(f.more, other)
		}, "extension", Error, "Cluster API takes one"},
		"no authority": {func(_ *testing.T, f *fleet) { f.extension.Spec.ClientConfig.CABundle = nil }, "certificate", Error, "no certificate"},
		"an authority that has ended": {func(t *testing.T, f *fleet) {
			f.extension.Spec.ClientConfig.CABundle = authority(t, managementtest.Start.Add(-time.Hour))
		}, "certificate", Error, "ended at"},
		"an authority that ends soon": {func(t *testing.T, f *fleet) {
			f.extension.Spec.ClientConfig.CABundle = authority(t, managementtest.Start.Add(24*time.Hour))
		}, "certificate", Warning, "ends at"},
		"an authority of a week that ends soon": {func(t *testing.T, f *fleet) {
			f.extension.Spec.ClientConfig.CABundle = authorityOf(t, managementtest.Start.Add(24*time.Hour), 7*24*time.Hour)
		}, "certificate", Warning, "ends at"},
		"gates that can't be read": {func(_ *testing.T, f *fleet) {
			f.kcpm.Spec.Template.Spec.Containers[0].Args = []string{"--feature-gates=InPlaceUpdates=on"}
		}, "feature-gates", Error, "can't be read"},
		"an extension of another that lacks a hook": {func(_ *testing.T, f *fleet) {
			other := f.extension.DeepCopy()
			other.Name, other.Status.Handlers = "vendor", other.Status.Handlers[1:]
			other.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"in-place": "vendor"}}
			f.extension.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"in-place": "refit"}}
			f.namespace.Labels = map[string]string{"in-place": "refit"}
			f.more = append(f.more, other, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Labels: map[string]string{"in-place": "vendor"}}},
				&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "theirs", Name: "other"}})
		}, "extension", Error, "nobody answers CanUpdateMachine in namespaces theirs"},
		"a hook that nobody answers": {func(_ *testing.T, f *fleet) { f.extension.Status.Handlers = f.extension.Status.Handlers[1:] }, "extension", Error, "nobody answers CanUpdateMachine"},
		"somebody else is asked about policies": {func(_ *testing.T, f *fleet) {
			f.asks.Name, f.asks.Webhooks[0].ClientConfig.Service.Path = "kyverno", new("/validate/fail")
		}, "admission", Warning, "not asked about policies"},
		"one kind of policy is taken unseen": {func(_ *testing.T, f *fleet) {
			f.asks.Webhooks[0].Rules[0].Resources = []string{"changemanagementpolicies"}
		}, "admission", Warning, "not asked about clusterchangemanagementpolicies (CREATE), clusterchangemanagementpolicies (UPDATE) before"},
		"policies are asked about when they go": {func(_ *testing.T, f *fleet) {
			f.asks.Webhooks[0].Rules[0].Operations = []admissionregistrationv1.OperationType{"DELETE"}
		}, "admission", Warning, "not asked about changemanagementpolicies (CREATE) in namespace fleet, changemanagementpolicies (UPDATE) in namespace fleet, cluster"},
		"policies of another version": {func(_ *testing.T, f *fleet) {
			f.asks.Webhooks[0].Rules[0].APIVersions = []string{"v1"}
		}, "admission", Warning, "not asked about changemanagementpolicies"},
		"policies of the platform alone": {func(_ *testing.T, f *fleet) {
			f.asks.Webhooks[0].Rules[0].Scope = new(admissionregistrationv1.ClusterScope)
		}, "admission", Warning, "not asked about changemanagementpolicies (CREATE) in namespace fleet, changemanagementpolicies (UPDATE) in namespace fleet before"},
		"policies in no namespace": {func(_ *testing.T, f *fleet) {
			f.asks.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"no": "such"}}
		}, "admission", Warning, "not asked about changemanagementpolicies (CREATE) in namespace fleet, changemanagementpolicies (UPDATE) in namespace fleet before"},
		"policies with a label": {func(_ *testing.T, f *fleet) {
			f.asks.Webhooks[0].ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"no": "such"}}
		}, "admission", Warning, "not asked about changemanagementpolicies"},
		"who is asked about policies is not there": {func(_ *testing.T, f *fleet) { f.asks.Webhooks[0].ClientConfig.Service.Name = "refti" }, "admission", Error, "Service refit-system/refti, which is not there"},
		"nor its port": {func(_ *testing.T, f *fleet) {
			f.asks.Webhooks[0].ClientConfig.Service.Port = new(int32(445))
		}, "admission", Error, "port 445 of Service refit-system/refit"},
		"refit watches another namespace": {func(_ *testing.T, f *fleet) {
			c := &f.refit.Spec.Template.Spec.Containers[0]
			c.Args = append(c.Args, "--namespace", "elsewhere")
		}, "refit", Error, "refit watches namespace elsewhere alone"},
		"a Cluster that is paused":        {func(_ *testing.T, f *fleet) { f.cluster.Spec.Paused = new(true) }, "cluster", Warning, "it is paused"},
		"one that is by an annotation":    {func(_ *testing.T, f *fleet) { f.cluster.Annotations = pausedBy }, "cluster", Warning, "it is paused"},
		"a control plane that is paused":  {func(_ *testing.T, f *fleet) { f.kcp.Annotations = pausedBy }, "control-plane", Warning, "it is paused"},
		"machines that are paused":        {func(_ *testing.T, f *fleet) { f.md.Spec.Paused = new(true) }, "machine-deployment", Warning, "it is paused"},
		"machines that are by annotation": {func(_ *testing.T, f *fleet) { f.md.Annotations = pausedBy }, "machine-deployment", Warning, "it is paused"},
		"a manager that is scaled to 0":   {func(_ *testing.T, f *fleet) { f.core.Spec.Replicas, f.core.Status.AvailableReplicas = new(int32(0)), 0 }, "managers", Error, "scaled to 0"},
		"a manager of which one is there": {func(_ *testing.T, f *fleet) { f.core.Status.AvailableReplicas = 1 }, "managers", Warning, "1 of its 2 pods"},
		"one pod of two":                  {func(_ *testing.T, f *fleet) { f.refit.Status.AvailableReplicas = 1 }, "refit", Warning, "1 of its 2 pods"},
		"a health check of new nodes":     {func(_ *testing.T, f *fleet) { f.mhc.Spec.Checks.NodeStartupTimeoutSeconds = new(int32(1)) }, "health-check", Warning, "whose node is not there after 1s"},
		"nobody listens to those who ask": {func(_ *testing.T, f *fleet) {
			f.refit.Spec.Template.Spec.Containers[0].Args = []string{"serve", "--client-ca=/client-ca/ca.crt", "--admission-port=0", "--guard"}
		}, "admission", Warning, "has no --admission-port"},
		"a policy that refit says is wrong": {func(_ *testing.T, f *fleet) {
			f.policy.Generation = 3
			f.policy.Status.Conditions = []metav1.Condition{{
				Type: refitv1.ReadyCondition, Status: "False", Reason: "InvalidPolicy", ObservedGeneration: 3, Message: "gates[0].prometheus.url: refit may not ask there",
			}}
		}, "policies", Error, "refit may not ask there"},
		"policies are taken unseen":   {func(_ *testing.T, f *fleet) { gone(f.asks) }, "admission", Warning, "not asked about policies"},
		"who asks can't verify refit": {func(_ *testing.T, f *fleet) { f.asks.Webhooks[0].ClientConfig.CABundle = nil }, "certificate", Error, "no certificate"},
		"a policy of the platform can't": {func(_ *testing.T, f *fleet) {
			p := &refitv1.ClusterChangeManagementPolicy{ObjectMeta: metav1.ObjectMeta{Name: "platform"}}
			p.Spec.Strategy = schedule.ManualStrategy
			f.more = append(f.more, p)
		}, "policies", Error, "ClusterChangeManagementPolicy platform is invalid"},
		"refit is down": {func(_ *testing.T, f *fleet) { f.refit.Status.AvailableReplicas = 0 }, "refit", Error, "none of its pods"},
		"one replica":   {func(_ *testing.T, f *fleet) { f.refit.Spec.Replicas = new(int32(1)) }, "refit", Warning, "one replica"},
		"anybody may call": {func(_ *testing.T, f *fleet) {
			f.refit.Spec.Template.Spec.Containers[0].Args = []string{"serve", "--admission-port=9444", "--guard"}
		}, "callers", Warning, "anybody"},
		"nobody leads": {func(_ *testing.T, f *fleet) {
			f.lease.Spec.RenewTime = new(metav1.NewMicroTime(managementtest.Start.Add(-time.Minute)))
		}, "leader", Error, "nobody leads"},
		"there is no leader": {func(_ *testing.T, f *fleet) { f.lease.Spec.HolderIdentity = nil }, "leader", Error, "nobody leads"},
		"a shard that nobody leads": {func(_ *testing.T, f *fleet) {
			f.lease.Spec.HolderIdentity = new("replicas with --shards=2")
			first := f.lease.DeepCopy()
			first.Name, first.Spec.HolderIdentity = "refit-shard-0-of-2", new("refit-a")
			f.more = append(f.more, first)
		}, "leader", Error, "nobody leads"},
		"no election":         {func(_ *testing.T, f *fleet) { gone(f.lease) }, "leader", Warning, "no Lease"},
		"there is no Cluster": {func(_ *testing.T, f *fleet) { gone(f.cluster) }, "clusters", Warning, "no such Clusters"},
		"it is not asked about the namespace": {func(_ *testing.T, f *fleet) {
			f.extension.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"refit": "yes"}}
			f.namespace.Labels = map[string]string{"refit": "Yes"}
		}, "extension-namespace", Error, "no ExtensionConfig is for the namespace"},
		"its namespace is not labelled": {func(_ *testing.T, f *fleet) {
			f.extension.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"refit": "yes"}}
			gone(f.access) // which does not matter there
		}, "extension-namespace", Warning, "no ExtensionConfig is for the namespace, so that Cluster API replaces machines of its Clusters: prod"},
		"a node that can't be logged in to": {func(_ *testing.T, f *fleet) {
			f.access.Status.Unreached = []refitv1.UnreachedMachine{
				{Name: "other", Reason: "Unreachable"}, {Name: "prod-a", Reason: "HostKey", Message: "it showed another key"},
			}
		}, "node-access", Warning, "the nodes of 1 of its 1 machines, or more: prod-a; NodeAccess all: prod-a (HostKey): it showed another key"},
		"no NodeAccess": {func(_ *testing.T, f *fleet) { gone(f.access) }, "node-access", Error, "1 of its 1 machines have no NodeAccess, or more than one: prod-a"},
		"a NodeAccess for others": {func(_ *testing.T, f *fleet) {
			f.access.Spec.MachineSelector = metav1.LabelSelector{MatchLabels: map[string]string{"pool": "gpu"}}
		}, "node-access", Error, "have no NodeAccess"},
		"a single control plane":      {func(_ *testing.T, f *fleet) { f.kcp.Spec.Replicas = new(int32(1)) }, "control-plane", Warning, "less than three"},
		"a control plane that surges": {func(_ *testing.T, f *fleet) { f.kcp.Spec.Rollout.Strategy.RollingUpdate.MaxSurge = nil }, "control-plane", Warning, "maxSurge is not 0"},
		"machines that surge": {func(_ *testing.T, f *fleet) {
			f.md.Spec.Rollout.Strategy.RollingUpdate = clusterv1.MachineDeploymentRolloutStrategyRollingUpdate{} // Cluster API's defaults
		}, "machine-deployment", Warning, "its maxUnavailable is 0"},
		"a manager that does not come up": {func(_ *testing.T, f *fleet) { f.kcpm.Status.AvailableReplicas = 0 }, "managers", Error, "none of its pods is available"},
		"a health check of Machines that is too quick": {func(_ *testing.T, f *fleet) {
			f.mhc.Spec.Checks.UnhealthyMachineConditions = []clusterv1.UnhealthyMachineCondition{{Type: "NodeHealthy", Status: "False", TimeoutSeconds: new(int32(60))}}
		}, "health-check", Warning, "1m0s after its condition of the Machine NodeHealthy is False"},
		"two NodeAccesses": {func(_ *testing.T, f *fleet) {
			f.more = append(f.more, &refitv1.NodeAccess{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "too"}})
		}, "node-access", Error, "have no NodeAccess, or more than one"},
		"OnDelete": {func(_ *testing.T, f *fleet) {
			f.md.Spec.Rollout.Strategy.Type = clusterv1.OnDeleteMachineDeploymentStrategyType
		}, "machine-deployment", Warning, "OnDelete"},
		"a health check that is too quick": {func(_ *testing.T, f *fleet) {
			f.mhc.Spec.Checks.UnhealthyNodeConditions[0].TimeoutSeconds = new(int32(60))
		}, "health-check", Warning, "1m0s after its condition Ready is False"},
		"a policy that can't be read": {func(_ *testing.T, f *fleet) { f.policy.Spec.Strategy = "Never" }, "policies", Error, "invalid"},
		"a policy that never opens": {func(_ *testing.T, f *fleet) {
			f.policy.Spec.Policy = schedule.Policy{Strategy: schedule.MaintenanceScheduleStrategy, MaintenanceSchedule: &schedule.MaintenanceSchedule{
				Permit: []schedule.Permit{{Recurrence: "FREQ=DAILY;UNTIL=20200101T000000Z"}},
			}}
		}, "policies", Warning, "never opens"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			tc.spoil(t, f)
			all := f.run()
			bad := bad(all)
			require.Len(t, bad, 1, "one finding for one mistake")
			require.Equal(t, tc.check, bad[0].Check)
			require.Equal(t, tc.level, bad[0].Level)
			require.Contains(t, bad[0].Message, tc.says)
			require.NotEmpty(t, bad[0].Do)
			require.Equal(t, tc.level, Worst(all))
		})
	}
}

// TestANamespaceIsLookedAtBeforeItIsLabelled: who asks about it is told what else is missing, since the label comes last.
func TestANamespaceIsLookedAtBeforeItIsLabelled(t *testing.T) {
	f := newFleet(t)
	f.extension.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"refit": "yes"}}
	ask := func(namespace, cluster string) (found []string) {
		for _, one := range bad(f.run(func(c *Checker) { c.Namespace, c.Cluster = namespace, cluster })) {
			found = append(found, string(one.Level)+" "+one.Check+" "+one.Object)
		}
		return found
	}
	label := "Warning extension-namespace Namespace fleet"
	require.Equal(t, []string{label}, ask("fleet", ""))
	f.access.SetName("")
	require.Equal(t, []string{label}, ask("", ""))
	for _, found := range [][]string{ask("fleet", ""), ask("", "prod")} {
		require.ElementsMatch(t, []string{label, "Error node-access Cluster fleet/prod"}, found)
	}
}

// TestNoNamespaceIsLabelledYet: who has just installed refit for some namespaces only is told which label is missing, before there is a Cluster.
func TestNoNamespaceIsLabelledYet(t *testing.T) {
	f := newFleet(t)
	f.cluster.SetName("")
	f.extension.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"capi-refit.dev/in-place-updates": "enabled"}}
	found := func() (messages []string) {
		for _, one := range f.run() {
			if one.Check == "extension-namespace" {
				require.Equal(t, Warning, one.Level)
				messages = append(messages, one.Object+": "+one.Message)
			}
		}
		return messages
	}
	require.Equal(t, []string{"ExtensionConfig refit: no namespace has the labels that it asks for (capi-refit.dev/in-place-updates=enabled), " +
		"so that Cluster API asks about no machines, and replaces them"}, found())
	f.namespace.Labels = map[string]string{"capi-refit.dev/in-place-updates": "enabled"}
	require.Empty(t, found())
}

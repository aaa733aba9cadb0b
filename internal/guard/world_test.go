package guard

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/bootimage"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/explain"
	"github.com/capi-refit/refit/internal/judges"
	"github.com/capi-refit/refit/internal/kubernetessource"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/nodedisruption"
	"github.com/capi-refit/refit/internal/policykind/policykindtest"
	"github.com/capi-refit/refit/schedule"
)

// Saturdays have their window from 20:00 to 04:00. The third of October 2026 is one.
var (
	outside = time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
	inside  = time.Date(2026, 10, 3, 21, 0, 0, 0, time.UTC)
	// opened is when no Machine has its turn yet.
	opened = time.Date(2026, 10, 3, 20, 0, 0, 0, time.UTC)
)

type spec = refitv1.ChangeManagementPolicySpec

var kind policykindtest.Kind[*refitv1.ChangeManagementPolicy, spec]

// saturdays is a policy with a window each Saturday night.
func saturdays(name string, edits ...func(*spec)) client.Object {
	return kind.Policy(name, append([]func(*spec){func(s *spec) {
		s.Strategy = schedule.MaintenanceScheduleStrategy
		s.MaintenanceSchedule = &schedule.MaintenanceSchedule{Permit: []schedule.Permit{{Recurrence: "FREQ=WEEKLY;BYDAY=SA", StartTime: "20:00", Duration: "8h"}}}
	}}, edits...)...)
}

// keep is a policy that is always open, and forbids replacement.
func keep(edits ...func(*spec)) client.Object {
	return kind.Policy("keep", append([]func(*spec){func(s *spec) {
		s.Strategy, s.Replacement = schedule.PermissiveStrategy, refitv1.ForbidReplacement
	}}, edits...)...)
}

func as(guard refitv1.Guard) func(*spec) { return func(s *spec) { s.Guard = guard } }

func jittered(s *spec) { s.Jitter = "4h" }

func refusing(s *spec) { s.WhenClosed = refitv1.RefuseWhenClosed }

// What machines are made of: infra-2 has other machines made; config-2 has a file more, and config-3 disks.
const templates = `
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
kind: KubeadmConfigTemplate
metadata: {name: config-1, namespace: fleet}
spec: {template: {spec: {files: [{path: /etc/motd, content: secret-one}]}}}
---
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
kind: KubeadmConfigTemplate
metadata: {name: config-2, namespace: fleet}
spec: {template: {spec: {files: [{path: /etc/motd, content: secret-two}]}}}
---
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
kind: KubeadmConfigTemplate
metadata: {name: config-3, namespace: fleet}
spec: {template: {spec: {files: [{path: /etc/motd, content: secret-one}], diskSetup: {partitions: [{device: /dev/sdb, layout: true}]}}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1
kind: AcmeMachineTemplate
metadata: {name: infra-1, namespace: fleet}
spec: {template: {spec: {size: small}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1
kind: AcmeMachineTemplate
metadata: {name: infra-2, namespace: fleet}
spec: {template: {spec: {size: large}}}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlaneTemplate
metadata: {name: class-cp, namespace: fleet}
spec: {template: {spec: {rollout: {strategy: {rollingUpdate: {maxSurge: 0}}}, kubeadmConfigSpec: {files: [{path: /etc/motd, content: one}]}}}}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: ClusterClass
metadata: {name: one, namespace: fleet}
spec:
  controlPlane:
    templateRef: {apiVersion: controlplane.cluster.x-k8s.io/v1beta2, kind: KubeadmControlPlaneTemplate, name: class-cp}
    machineInfrastructure: {templateRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1, kind: AcmeMachineTemplate, name: infra-1}}
  workers:
    machineDeployments:
      - class: default
        bootstrap: {templateRef: {apiVersion: bootstrap.cluster.x-k8s.io/v1beta2, kind: KubeadmConfigTemplate, name: config-1}}
        infrastructure: {templateRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1, kind: AcmeMachineTemplate, name: infra-1}}
  patches: []
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: ClusterClass
metadata: {name: two, namespace: fleet}
spec:
  controlPlane:
    templateRef: {apiVersion: controlplane.cluster.x-k8s.io/v1beta2, kind: KubeadmControlPlaneTemplate, name: class-cp}
    machineInfrastructure: {templateRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1, kind: AcmeMachineTemplate, name: infra-1}}
  workers:
    machineDeployments:
      - class: default
        bootstrap: {templateRef: {apiVersion: bootstrap.cluster.x-k8s.io/v1beta2, kind: KubeadmConfigTemplate, name: config-3}}
        infrastructure: {templateRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1, kind: AcmeMachineTemplate, name: infra-1}}
  patches: []
`

// The owners, in one file each.
const (
	workers = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: md, namespace: fleet, uid: uid-md, labels: {cluster.x-k8s.io/cluster-name: c1}, annotations: {a: b}}
spec:
  clusterName: c1
  replicas: 2
  rollout: {strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}}
  template:
    spec:
      clusterName: c1
      version: v1.36.1
      bootstrap: {configRef: {apiGroup: bootstrap.cluster.x-k8s.io, kind: KubeadmConfigTemplate, name: config-1}}
      infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: AcmeMachineTemplate, name: infra-1}
`
	controlPlane = `
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: kcp, namespace: fleet, uid: uid-kcp, labels: {cluster.x-k8s.io/cluster-name: c1}, annotations: {a: b}}
spec:
  replicas: 3
  version: v1.36.1
  rollout: {strategy: {rollingUpdate: {maxSurge: 0}}}
  machineTemplate: {spec: {infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: AcmeMachineTemplate, name: infra-1}}}
  kubeadmConfigSpec: {files: [{path: /etc/motd, content: one}], users: [{name: ann}]}
`
	topology = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: c1, namespace: fleet, uid: uid-c1, annotations: {a: b}}
spec:
  topology:
    classRef: {name: one}
    version: v1.36.1
    controlPlane: {replicas: 3}
    workers: {machineDeployments: [{class: default, name: md-0, replicas: 2, rollout: {strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}}}]}
`
)

func objectsOf(t testing.TB, text string, words ...string) []*unstructured.Unstructured {
	t.Helper()
	for i := 0; i < len(words); i += 2 {
		require.Contains(t, text, words[i])
	}
	all, err := explain.Read([]byte(strings.NewReplacer(words...).Replace(text)))
	require.NoError(t, err)
	return all
}

func ownedBy(group, kind, name string) []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{APIVersion: group, Kind: kind, Name: name, UID: types.UID("uid-" + name), Controller: &yes}}
}

// worker is a Machine of md, made by the MachineSet ms.
func worker(name string, edits ...func(*clusterv1.Machine)) *clusterv1.Machine {
	m := managementtest.Machine("fleet", name, "c1")
	m.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineDeploymentNameLabel: "md", clusterv1.ClusterTopologyMachineDeploymentNameLabel: "md-0"}
	m.OwnerReferences, m.Spec.Version = ownedBy(clusterv1.GroupVersion.String(), "MachineSet", "ms"), "v1.36.1"
	for _, e := range edits {
		e(m)
	}
	return m
}

// master is a Machine of kcp.
func master(name string, edits ...func(*clusterv1.Machine)) *clusterv1.Machine {
	return worker(name, append([]func(*clusterv1.Machine){func(m *clusterv1.Machine) {
		m.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineControlPlaneLabel: ""}
		m.OwnerReferences = ownedBy(controlplanev1.GroupVersion.String(), "KubeadmControlPlane", "kcp")
		m.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: bootstrapv1.GroupVersion.Group, Kind: "KubeadmConfig", Name: name}
		m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "AcmeMachine", Name: name}
	}}, edits...)...)
}

// outdated has the owner want something else of a Machine.
func outdated(m *clusterv1.Machine) {
	m.Status.Conditions = []metav1.Condition{{Type: clusterv1.MachineUpToDateCondition, Status: metav1.ConditionFalse, Reason: clusterv1.MachineNotUpToDateReason, LastTransitionTime: metav1.NewTime(outside)}}
}

// world is a management cluster with a guard.
type world struct {
	*policykindtest.Policies[*refitv1.ChangeManagementPolicy, spec]
	guard    *Guard
	registry *prometheus.Registry
}

func newWorld(t testing.TB, now time.Time, objects ...client.Object) *world {
	acme := schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1", Kind: "AcmeMachineTemplate"}
	all := append([]client.Object{
		managementtest.CRD("kubeadmconfigtemplates", bootstrapv1.GroupVersion.WithKind("KubeadmConfigTemplate")),
		managementtest.CRD("kubeadmcontrolplanetemplates", controlplanev1.GroupVersion.WithKind("KubeadmControlPlaneTemplate")),
		managementtest.CRD("acmemachinetemplates", acme), managementtest.CRD("acmemachines", acme.GroupVersion().WithKind("AcmeMachine")),
	}, objects...)
	for _, o := range objectsOf(t, templates) {
		all = append(all, o)
	}
	w := &world{Policies: kind.World(t, policykindtest.With(all...), policykindtest.Kinds(controlplanev1.AddToScheme)), registry: prometheus.NewPedanticRegistry()}
	w.Clock.SetTime(now)
	policies := changemanagement.NewPolicies(w, w, w.Clock)
	w.Prime(policies)
	by := judges.ByPolicy{
		Disruptions: nodedisruption.NewPolicies(w, disruption.BuiltinRules(), judges.List()), Sources: kubernetessource.New(w), Images: bootimage.NewPolicies(w),
	}
	require.NoError(t, by.Disruptions.Prime(t.Context()))
	require.NoError(t, by.Sources.Prime(t.Context()))
	require.NoError(t, by.Images.Prime(t.Context()))
	hooks := &changemanagement.Hooks{Policies: policies, Client: w.Client, Versions: by, Clock: w.Clock, Recorder: w.Events}
	w.guard = &Guard{Cached: w, Live: w, Hooks: hooks, Judge: handlers.NewEngine(by), Clock: w.Clock, Metrics: NewMetrics(w.registry), Controller: controller}
	return w
}

const controller = "system:serviceaccount:capi-system:capi-manager"

// fleet is the Cluster c1 with both owners.
func fleet(t testing.TB) []client.Object {
	c := policykindtest.Cluster("c1", nil)
	c.UID = "uid-c1"
	all := []client.Object{c}
	for _, text := range []string{workers, controlPlane} {
		all = append(all, objectsOf(t, text)[0])
	}
	return all
}

func machines() []client.Object {
	return []client.Object{worker("w-1"), worker("w-2"), master("m-1"), master("m-2"), master("m-3")}
}

// review is what an API server asks about an edit.
func review(t testing.TB, old, wanted *unstructured.Unstructured, edits ...func(*admission.Request)) admission.Request {
	t.Helper()
	raw := func(o *unstructured.Unstructured) runtime.RawExtension {
		data, err := json.Marshal(o.Object)
		require.NoError(t, err)
		return runtime.RawExtension{Raw: data}
	}
	r := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "uid", Operation: admissionv1.Update, Namespace: old.GetNamespace(), Name: old.GetName(), OldObject: raw(old), Object: raw(wanted),
	}}
	r.UserInfo.Username = "ann"
	for _, e := range edits {
		e(&r)
	}
	return r
}

// edit asks about an owner of which words are others.
func (w *world) edit(text string, words []string, edits ...func(*admission.Request)) answer {
	w.T.Helper()
	return w.ask(review(w.T, objectsOf(w.T, text)[0], objectsOf(w.T, text, words...)[0], edits...))
}

// answer is a response, as people see it.
type answer struct {
	allowed bool
	says    string
	admission.Response
}

func (w *world) ask(r admission.Request) answer {
	w.T.Helper()
	got := w.guard.Handle(w.T.Context(), r)
	a := answer{allowed: got.Allowed, Response: got, says: strings.Join(got.Warnings, "\n")}
	if !got.Allowed {
		a.says = fmt.Sprintf("%s\n%s", got.Result.Message, a.says)
	}
	require.NotContains(w.T, a.says, "secret", "values of fields are told")
	return a
}

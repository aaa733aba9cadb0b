package pending

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/bootimage"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/judges"
	"github.com/capi-refit/refit/internal/kubernetessource"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/nodedisruption"
	"github.com/capi-refit/refit/internal/policykind/policykindtest"
	"github.com/capi-refit/refit/internal/rollback"
	"github.com/capi-refit/refit/schedule"
)

// Saturdays have their window from 20:00 to 04:00. The third of October 2026 is one.
var (
	outside = time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
	opened  = time.Date(2026, 10, 3, 20, 0, 0, 0, time.UTC)
	inside  = opened.Add(time.Hour)
	week    = 7 * 24 * time.Hour
)

type spec = refitv1.ChangeManagementPolicySpec

var kind policykindtest.Kind[*refitv1.ChangeManagementPolicy, spec]

// saturdays is a policy with a window each Saturday night, for updates of ten minutes.
func saturdays(name string, edits ...func(*spec)) *refitv1.ChangeManagementPolicy {
	return weekly(name, "SA", edits...)
}

func weekly(name, day string, edits ...func(*spec)) *refitv1.ChangeManagementPolicy {
	return kind.Policy(name, append([]func(*spec){func(s *spec) {
		s.Strategy, s.ExpectedDuration = schedule.MaintenanceScheduleStrategy, "10m"
		s.MaintenanceSchedule = &schedule.MaintenanceSchedule{
			Permit: []schedule.Permit{{Recurrence: "FREQ=WEEKLY;BYDAY=" + day, StartTime: "20:00", Duration: "8h"}},
		}
	}}, edits...)...)
}

// Fields of the bootstrap config by which templates differ.
const (
	sysctl   = "a file that is brought in place"
	harmless = "a file that disturbs nothing"
	command  = "a command that new machines run"
)

// template is a KubeadmConfigTemplate. It also stands for one of infrastructure: any kind that is there will do.
func template(name, differs string) *bootstrapv1.KubeadmConfigTemplate {
	t := &bootstrapv1.KubeadmConfigTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: policykindtest.Namespace, Name: name}}
	switch differs {
	case sysctl:
		t.Spec.Template.Spec.Files = []bootstrapv1.File{{Path: "/etc/sysctl.d/90.conf", Content: "vm.swappiness = 0\n"}}
	case harmless:
		t.Spec.Template.Spec.Files = []bootstrapv1.File{{Path: "/etc/motd", Content: "a\n"}}
	case command:
		t.Spec.Template.Spec.PostKubeadmCommands = []string{"true"}
	}
	return t
}

// machineSpec is that of Machines that are made of a template.
func machineSpec(config string) clusterv1.MachineTemplateSpec {
	ref := func(name string) clusterv1.ContractVersionedObjectReference {
		return clusterv1.ContractVersionedObjectReference{APIGroup: bootstrapv1.GroupVersion.Group, Kind: "KubeadmConfigTemplate", Name: name}
	}
	var t clusterv1.MachineTemplateSpec
	t.Spec.ClusterName, t.Spec.Version, t.Spec.InfrastructureRef, t.Spec.Bootstrap.ConfigRef = "c1", "v1.36.0", ref("infra"), ref(config)
	return t
}

func deployment1(edits ...func(*clusterv1.MachineDeployment)) *clusterv1.MachineDeployment {
	md := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: policykindtest.Namespace, Name: "md", UID: "uid-md", Generation: 1}}
	md.Spec.ClusterName, md.Spec.Template = "c1", machineSpec("new")
	for _, e := range edits {
		e(md)
	}
	return md
}

// fleet is the Cluster c1 with the MachineDeployment md, whose new template differs from that of its Machines.
func fleet(differs string, edits ...func(*clusterv1.MachineDeployment)) []client.Object {
	md := deployment1(edits...)
	ms := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: md.Namespace, Name: "ms", UID: "uid-ms", OwnerReferences: []metav1.OwnerReference{
		*metav1.NewControllerRef(md, clusterv1.GroupVersion.WithKind("MachineDeployment")),
	}}}
	ms.Spec.ClusterName, ms.Spec.Template = "c1", machineSpec("old")
	c := policykindtest.Cluster("c1", nil)
	c.UID = "uid-c1"
	return []client.Object{
		c, md, ms, template("old", ""), template("new", differs), template("infra", ""),
		managementtest.CRD("kubeadmconfigtemplates", bootstrapv1.GroupVersion.WithKind("KubeadmConfigTemplate")),
	}
}

// worker is a Machine of md that is as md wants it.
func worker(name string, edits ...func(*clusterv1.Machine)) *clusterv1.Machine {
	return policykindtest.Machine(name, "c1", append([]func(*clusterv1.Machine){
		policykindtest.Label(clusterv1.MachineDeploymentNameLabel, "md"), policykindtest.Label(clusterv1.ClusterTopologyOwnedLabel, ""),
		func(m *clusterv1.Machine) {
			m.Spec.Version, m.CreationTimestamp = "v1.36.0", metav1.NewTime(outside.Add(-week))
			m.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: bootstrapv1.GroupVersion.Group, Kind: "KubeadmConfig", Name: name}
			yes := true
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "ms", UID: "uid-ms", Controller: &yes}}
		},
	}, edits...)...)
}

// controlPlane is a Machine of the KubeadmControlPlane kcp.
func controlPlane(name string, edits ...func(*clusterv1.Machine)) *clusterv1.Machine {
	return worker(name, append([]func(*clusterv1.Machine){func(m *clusterv1.Machine) {
		m.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineControlPlaneLabel: ""}
		m.OwnerReferences[0].APIVersion, m.OwnerReferences[0].Kind, m.OwnerReferences[0].Name = controlplanev1.GroupVersion.String(), "KubeadmControlPlane", "kcp"
		m.OwnerReferences[0].UID = "uid-kcp"
	}}, edits...)...)
}

func kcp() *controlplanev1.KubeadmControlPlane {
	return &controlplanev1.KubeadmControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: policykindtest.Namespace, Name: "kcp", UID: "uid-kcp", Generation: 1}}
}

// outdated has the owner want something else of a Machine.
func outdated(m *clusterv1.Machine) {
	m.Status.Conditions = []metav1.Condition{{
		Type: clusterv1.MachineUpToDateCondition, Status: metav1.ConditionFalse, Reason: clusterv1.MachineNotUpToDateReason,
		LastTransitionTime: metav1.NewTime(outside),
	}}
}

// update is that of a Machine, at whose change Cluster API is.
func update(name string, edits ...func(*refitv1.MachineUpdate)) *refitv1.MachineUpdate {
	mu := managementtest.MachineUpdate(worker(name), edits...)
	mu.UID = types.UID("uid-update-" + name)
	return mu
}

func held(mu *refitv1.MachineUpdate) {
	mu.Status.Phase, mu.Status.Reason = refitv1.PhaseWaiting, refitv1.ReasonWindow
}

func started(at time.Time) func(*refitv1.MachineUpdate) {
	return func(mu *refitv1.MachineUpdate) {
		mu.Status.Phase, mu.Status.Starts = refitv1.PhaseApplying, []metav1.Time{metav1.NewTime(at)}
		mu.Status.Admission = &refitv1.Admission{AdmittedAt: metav1.NewTime(at), Reason: string(schedule.Open)}
	}
}

// world is a management cluster whose pending changes are shown.
type world struct {
	*policykindtest.Policies[*refitv1.ChangeManagementPolicy, spec]
	view     *View
	policies *changemanagement.Policies
	reads    int
}

func newWorld(t testing.TB, now time.Time, objects ...client.Object) *world {
	w := &world{Policies: kind.World(t, policykindtest.With(objects...), policykindtest.Kinds(controlplanev1.AddToScheme))}
	w.Clock.SetTime(now)
	w.policies = changemanagement.NewPolicies(w, w, w.Clock)
	w.Prime(w.policies)
	by := judges.ByPolicy{
		Disruptions: nodedisruption.NewPolicies(w, disruption.BuiltinRules(), judges.List()), Sources: kubernetessource.New(w), Images: bootimage.NewPolicies(w),
	}
	require.NoError(t, by.Disruptions.Prime(t.Context()))
	require.NoError(t, by.Sources.Prime(t.Context()))
	require.NoError(t, by.Images.Prime(t.Context()))
	gate := &changemanagement.Gate{Policies: w.policies, Client: w.Client, Live: w.Client, Clock: w.Clock, Metrics: changemanagement.NewMetrics(prometheus.NewRegistry())}
	w.view = &View{
		Client: w, Gate: gate, Versions: by, Clock: w.Clock,
		Owners: &Owners{Client: w, Live: w, Differences: &rollback.Rollback{Writer: w, Live: w}, Updaters: by, Clock: w.Clock},
	}
	w.view.heedPolicies()
	return w
}

// show has the Cluster looked at, and returns what is shown of an owner, nil if nothing is.
func (w *world) show(kind, name string) *refitv1.PendingChange {
	w.T.Helper()
	w.Reconcile(w.view, "c1")
	return w.shown(kind, name)
}

func (w *world) shown(kind, name string) *refitv1.PendingChange {
	w.T.Helper()
	p := &refitv1.PendingChange{}
	err := w.Client.Get(w.T.Context(), policykindtest.Key(nameOf(refitv1.PendingOwner{Kind: kind, Name: name})), p)
	require.NoError(w.T, client.IgnoreNotFound(err))
	if err != nil {
		return nil
	}
	return p
}

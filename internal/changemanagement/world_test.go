package changemanagement

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/policykind/policykindtest"
	"github.com/capi-refit/refit/schedule"
)

// Saturdays have their window from 20:00 to 04:00. The third of October 2026 is one.
var (
	opened  = instant("2026-10-03T20:00:00Z")
	inside  = instant("2026-10-03T21:00:00Z")
	closes  = instant("2026-10-04T04:00:00Z")
	outside = instant("2026-10-01T12:00:00Z")
	created = instant("2026-01-01T00:00:00Z")
)

func instant(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		panic(err)
	}
	return t
}

func text(t time.Time) string { return t.UTC().Format(time.RFC3339) }

type (
	spec       = refitv1.ChangeManagementPolicySpec
	edit       = func(*spec)
	objectMeta = metav1.ObjectMeta
)

var kind policykindtest.Kind[*refitv1.ChangeManagementPolicy, spec]

func policy(name string, strategy schedule.Strategy, edits ...edit) *refitv1.ChangeManagementPolicy {
	p := kind.Policy(name, append([]edit{func(s *spec) { s.Strategy = strategy }}, edits...)...)
	p.UID = types.UID("policy-" + name) // no Machine's of the same name
	return p
}

func anytime(name string, edits ...edit) *refitv1.ChangeManagementPolicy {
	return policy(name, schedule.PermissiveStrategy, edits...)
}

func never(name string, edits ...edit) *refitv1.ChangeManagementPolicy {
	return policy(name, schedule.RestrictiveStrategy, edits...)
}

// weekly has windows of one day of the week.
func weekly(name, day string, edits ...edit) *refitv1.ChangeManagementPolicy {
	weekly := func(s *spec) {
		s.MaintenanceSchedule = &schedule.MaintenanceSchedule{
			Permit: []schedule.Permit{{Recurrence: "FREQ=WEEKLY;BYDAY=" + day, StartTime: "20:00", Duration: "8h"}},
		}
	}
	return policy(name, schedule.MaintenanceScheduleStrategy, append([]edit{weekly}, edits...)...)
}

func saturdays(name string, edits ...edit) *refitv1.ChangeManagementPolicy {
	return weekly(name, "SA", edits...)
}

// onMars can't be read.
func onMars(name string, edits ...edit) *refitv1.ChangeManagementPolicy {
	return saturdays(name, append([]edit{func(s *spec) { s.MaintenanceSchedule.TimeZone = "Mars/Olympus" }}, edits...)...)
}

func of(namespace string, p *refitv1.ChangeManagementPolicy) *refitv1.ChangeManagementPolicy {
	p.Namespace = namespace
	return p
}

func budget(b refitv1.Budget) edit      { return func(s *spec) { s.Budget = b } }
func jitter(d string) edit              { return func(s *spec) { s.Jitter = d } }
func expects(d string) edit             { return func(s *spec) { s.ExpectedDuration = d } }
func machines(l map[string]string) edit { return func(s *spec) { s.Selector.Machines.MatchLabels = l } }

var (
	roles      = kind.Roles
	clustersOf = kind.Clusters
)

// read reads policies without calendars. Those that can't be read are closed.
func read(all ...*refitv1.ChangeManagementPolicy) []*Policy {
	var out []*Policy
	for _, p := range all {
		one, _ := Compile(p, schedule.NoCalendars)
		out = append(out, one)
	}
	return out
}

func cluster(name string, labels, annotations map[string]string) *clusterv1.Cluster {
	c := policykindtest.Cluster(name, labels)
	c.Annotations = noted(annotations)
	return c
}

// noted are annotations with a note of since when permissive-until is there.
func noted(annotations map[string]string) map[string]string {
	if value, set := annotations[permissiveKey]; set && annotations[refitv1.PermissiveSinceAnnotation] == "" {
		annotations = maps.Clone(annotations)
		annotations[refitv1.PermissiveSinceAnnotation] = text(inside) + " " + value
	}
	return annotations
}

// worker is a Machine of cluster c1 and the MachineDeployment md.
func worker(name string, edits ...func(*clusterv1.Machine)) *clusterv1.Machine {
	of := []func(*clusterv1.Machine){
		policykindtest.Label(clusterv1.MachineDeploymentNameLabel, "md"),
		func(m *clusterv1.Machine) { m.CreationTimestamp = metav1.NewTime(created) },
	}
	return policykindtest.Machine(name, "c1", append(of, edits...)...)
}

// controlPlane is a Machine of cluster c1 and the KubeadmControlPlane kcp.
func controlPlane(name string, edits ...func(*clusterv1.Machine)) *clusterv1.Machine {
	yes := true
	return worker(name, append([]func(*clusterv1.Machine){func(m *clusterv1.Machine) {
		m.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineControlPlaneLabel: ""}
		m.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: controlplanev1.GroupVersion.String(), Kind: "KubeadmControlPlane", Name: "kcp", Controller: &yes,
		}}
	}}, edits...)...)
}

func inCluster(name string) func(*clusterv1.Machine) {
	return func(m *clusterv1.Machine) {
		m.Spec.ClusterName, m.Labels[clusterv1.ClusterNameLabel] = name, name
	}
}

func ofPool(value string) func(*clusterv1.Machine) {
	return policykindtest.Label("pool", value)
}

func annotated(key, value string) func(*clusterv1.Machine) {
	return func(m *clusterv1.Machine) {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, key, value)
		m.Annotations = noted(m.Annotations)
	}
}

// update is that of the Machine of the same name, and has not begun.
func update(name string, edits ...func(*refitv1.MachineUpdate)) *refitv1.MachineUpdate {
	mu := &refitv1.MachineUpdate{ObjectMeta: objectMeta{Namespace: "fleet", Name: name}}
	mu.Spec.Digest = "digest-" + name
	mu.Status.ObservedDigest, mu.Status.Phase = mu.Spec.Digest, refitv1.PhasePending
	for _, e := range edits {
		e(mu)
	}
	return mu
}

func waiting(mu *refitv1.MachineUpdate) {
	mu.Status.Phase, mu.Status.Reason = refitv1.PhaseWaiting, refitv1.ReasonBudget
}

func failed(mu *refitv1.MachineUpdate) { mu.Status.Phase = refitv1.PhaseFailed }

// abandoned has somebody acknowledge that the update has failed.
func abandoned(mu *refitv1.MachineUpdate) { mu.Status.ObservedAbandon = "now by ann" }

// started has the update under way since an instant.
func started(at time.Time) func(*refitv1.MachineUpdate) {
	return func(mu *refitv1.MachineUpdate) {
		mu.Status.Phase, mu.Status.Reason = refitv1.PhaseApplying, ""
		mu.Status.Starts = append([]metav1.Time{metav1.NewTime(at)}, mu.Status.Starts...)
		mu.Status.Admission = &refitv1.Admission{AdmittedAt: metav1.NewTime(at), Reason: string(schedule.Open)}
	}
}

// ended has the update, which was started before, succeed.
func ended(mu *refitv1.MachineUpdate) { mu.Status.Phase = refitv1.PhaseSucceeded }

// world is a management cluster with what decides on changes.
type world struct {
	*policykindtest.Policies[*refitv1.ChangeManagementPolicy, spec]
	registry *prometheus.Registry
	policies *Policies
	gate     *Gate
	hooks    *Hooks
}

func newWorld(t testing.TB, objects ...client.Object) *world {
	w := &world{
		Policies: kind.World(t, policykindtest.With(objects...), policykindtest.Kinds(controlplanev1.AddToScheme)),
		registry: prometheus.NewPedanticRegistry(),
	}
	w.Clock.SetTime(inside)
	w.policies = NewPolicies(w, w, w.Clock)
	w.Prime(w.policies)
	counters := NewMetrics(w.registry)
	w.gate = &Gate{Policies: w.policies, Client: w.Client, Live: w.Client, Clock: w.Clock, Metrics: counters}
	w.hooks = &Hooks{Policies: w.policies, Client: w.Client, Versions: reachable{}, Clock: w.Clock, Recorder: w.Events}
	return w
}

// get reads an object by its name.
func get[T client.Object](w *world, name string, obj T) T {
	w.T.Helper()
	return policykindtest.Get(w.World, name, obj)
}

// ask asks for the update of a Machine.
func (w *world) ask(name string) Decision {
	w.T.Helper()
	d, err := w.gate.Ask(w.T.Context(), get(w, name, &clusterv1.Machine{}), get(w, name, &refitv1.MachineUpdate{}))
	require.NoError(w.T, err)
	requireTold(w.T, d)
	return d
}

// admit asks for the update of a Machine, and records its start as the reconciler does.
func (w *world) admit(name string) Decision {
	w.T.Helper()
	d, err := w.tryAdmit(name)
	require.NoError(w.T, err)
	requireTold(w.T, d)
	return d
}

func (w *world) tryAdmit(name string) (Decision, error) {
	mu := get(w, name, &refitv1.MachineUpdate{})
	return w.gate.Admit(w.T.Context(), get(w, name, &clusterv1.Machine{}), mu, func(a refitv1.Admission) error {
		started(a.AdmittedAt.Time)(mu)
		mu.Status.Admission = &a
		return w.Status().Update(w.T.Context(), mu)
	})
}

// edit changes the status of an update.
func (w *world) edit(name string, edits ...func(*refitv1.MachineUpdate)) {
	w.T.Helper()
	mu := get(w, name, &refitv1.MachineUpdate{})
	for _, e := range edits {
		e(mu)
	}
	require.NoError(w.T, w.Status().Update(w.T.Context(), mu))
}

// reachable stands in for what judges versions: machines with the label pool=gpu can't be brought to another version in place.
type reachable struct{}

func (reachable) InPlace(_ context.Context, m *clusterv1.Machine, version string) (schedule.Disruption, error) {
	if m.Labels["pool"] == "gpu" {
		return "", errors.New("no KubernetesSource has " + version)
	}
	return "Drain", nil
}

// Package uitest has made-up fleets for the page: one that shows each state, and large ones.
package uitest

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/schedule"
)

// Now is the instant at which the fleets are: a Saturday, 20:00 UTC.
var Now = managementtest.Start

// New returns a client of a management cluster that has objects, and finds Events by what they are about, as API servers do.
func New(objects ...client.Object) client.WithWatch {
	return managementtest.NewBuilder(managementtest.NewScheme()).WithIndex(&corev1.Event{}, "involvedObject.name", func(o client.Object) []string {
		if e, ok := o.(*corev1.Event); ok {
			return []string{e.InvolvedObject.Name}
		}
		return nil
	}).WithObjects(objects...).Build()
}

func at(d time.Duration) metav1.Time { return metav1.Time{Time: Now.Add(d)} }

func pointer(d time.Duration) *metav1.Time { return new(at(d)) }

// world makes the objects of a fleet.
type world struct{ objects []client.Object }

func (w *world) add(o ...client.Object) { w.objects = append(w.objects, o...) }

// machine adds a Machine, and an update of it if there are edits.
func (w *world) machine(namespace, cluster, name string, role refitv1.Role, edits ...func(*refitv1.MachineUpdate)) {
	m := managementtest.Machine(namespace, name, cluster, func(m *clusterv1.Machine) {
		m.Spec.Version = "v1.36.1"
		m.Status.NodeRef.Name = name
		if role == refitv1.ControlPlaneRole {
			m.Labels[clusterv1.MachineControlPlaneLabel] = ""
		}
	})
	w.add(m)
	if len(edits) == 0 {
		return
	}
	mu := managementtest.MachineUpdate(m, edits...)
	mu.CreationTimestamp = at(-90 * 24 * time.Hour)
	mu.Spec.Digest = "sha256:6f2a41c0d5b8"
	mu.Status.ObservedDigest = mu.Spec.Digest
	w.add(mu)
}

// cluster adds a Cluster with control planes and workers, all of which are up to date but for those that edits are for, by their place.
func (w *world) cluster(namespace, name string, labels map[string]string, controlPlanes, workers int, edits map[int]func(*refitv1.MachineUpdate)) {
	w.add(managementtest.Cluster(namespace, name, labels))
	for i := range controlPlanes + workers {
		role, machine := refitv1.ControlPlaneRole, fmt.Sprintf("%s-control-%d", name, i)
		if i >= controlPlanes {
			role, machine = refitv1.WorkerRole, fmt.Sprintf("%s-worker-%02d", name, i-controlPlanes)
		}
		edit, ok := edits[i]
		if !ok {
			edit = succeeded
		}
		if edit == nil {
			w.machine(namespace, name, machine, role)
			continue
		}
		w.machine(namespace, name, machine, role, edit)
	}
}

func succeeded(mu *refitv1.MachineUpdate) {
	mu.Status.Phase, mu.Status.FinishedAt, mu.Status.LastSucceededAt = refitv1.PhaseSucceeded, pointer(-9*24*time.Hour), pointer(-9*24*time.Hour)
	mu.Status.Message = "the node shows what is desired"
}

func drifted(mu *refitv1.MachineUpdate) {
	succeeded(mu)
	mu.Status.Conditions = []metav1.Condition{{
		Type: refitv1.DriftedCondition, Status: metav1.ConditionTrue, Reason: "Drifted", Message: "File /etc/chrony/chrony.conf differs", LastTransitionTime: at(-2 * time.Hour),
	}}
}

func waiting(reason, message string) func(*refitv1.MachineUpdate) {
	return func(mu *refitv1.MachineUpdate) {
		mu.Status.Phase, mu.Status.Reason, mu.Status.Message, mu.Status.WantedSince = refitv1.PhaseWaiting, reason, message, pointer(-26*time.Hour)
		mu.Status.Conditions = []metav1.Condition{{
			Type: refitv1.PermittedCondition, Status: metav1.ConditionFalse, Reason: "OutsideWindow", Message: message, LastTransitionTime: at(-26 * time.Hour),
		}}
	}
}

func working(phase refitv1.Phase, step string, done int32) func(*refitv1.MachineUpdate) {
	return func(mu *refitv1.MachineUpdate) {
		st := &mu.Status
		st.Phase, st.Step, st.StepsDone, st.StepsTotal, st.Attempts = phase, step, done, 8, 1
		st.WantedSince, st.StartedAt, st.Instance, st.Address = pointer(-26*time.Hour), pointer(-7*time.Minute), "refit-6c9d7f5b9-x2kqp", "192.0.2.21:22"
		st.Admission = &refitv1.Admission{
			AdmittedAt: at(-8 * time.Minute), Reason: "Open", Message: "policy weekends is open until 2026-10-04T02:00:00Z", Role: refitv1.WorkerRole,
			Policies: []string{"weekends"}, Window: &refitv1.Window{Start: pointer(-2 * time.Hour), End: pointer(6 * time.Hour)},
		}
	}
}

// applying is an update in the middle of its work, with all that there is to tell.
func applying(mu *refitv1.MachineUpdate) {
	working(refitv1.PhaseApplying, "Restart containerd.service", 5)(mu)
	st := &mu.Status
	st.Message = "the node is being changed: restarting containerd.service"
	st.Drain = &refitv1.DrainStatus{StartedAt: at(-6 * time.Minute), FinishedAt: pointer(-3 * time.Minute), Cordoned: true}
	st.ApplyingSince = pointer(-2 * time.Minute)
	st.Plan = &refitv1.PlannedWork{Material: true, Disruption: "Drain", Kinds: []string{"Configuration"}, Actions: []string{"Drain", "Reload systemd", "Restart containerd.service"}}
	st.Changes = []refitv1.Change{
		{Kind: "File", Name: "/etc/containerd/config.toml", Operation: "Write", Conflict: true},
		{Kind: "File", Name: "/etc/systemd/system/containerd.service.d/10-limits.conf", Operation: "Write"},
		{Kind: "File", Name: "/etc/containerd/certs.d/mirror.internal/hosts.toml", Operation: "Write"},
	}
	st.Actions = []string{"Reload systemd"}
	st.Notes = []string{"File /etc/chrony/chrony.conf was edited on the node, and is left alone: the specs did not change it"}
	st.Conditions = []metav1.Condition{
		{Type: refitv1.PermittedCondition, Status: metav1.ConditionTrue, Reason: "Open", Message: "policy weekends is open until 2026-10-04T02:00:00Z", LastTransitionTime: at(-8 * time.Minute)},
		{Type: refitv1.SucceededCondition, Status: metav1.ConditionUnknown, Reason: "Applying", LastTransitionTime: at(-2 * time.Minute)},
	}
}

func failed(mu *refitv1.MachineUpdate) {
	working(refitv1.PhaseFailed, "Restart kubelet.service", 6)(mu)
	mu.Status.Reason, mu.Status.FinishedAt = "Unhealthy", pointer(-22*time.Minute)
	mu.Status.Message = "kubelet.service did not become active within 2m0s, and the node was put back: it shows what it had before. See journalctl -u kubelet on the node; then refit retry or refit rollback"
}

// changed returns a PendingChange of an owner.
func changed(namespace, cluster string, owner refitv1.PendingOwner, role refitv1.Role, cause refitv1.PendingCause, reason, why string, start, end *metav1.Time, machines ...string) *refitv1.PendingChange {
	p := &refitv1.PendingChange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: owner.Name}}
	p.Spec = refitv1.PendingChangeSpec{Cluster: cluster, Owner: owner, Role: role}
	p.Status = refitv1.PendingChangeStatus{
		Machines: int32(len(machines)), Causes: []refitv1.PendingCount{{Cause: cause, Machines: int32(len(machines))}}, EarliestStart: start, LastDone: end,
		Conditions: []metav1.Condition{{Type: refitv1.ChangePendingCondition, Status: metav1.ConditionTrue, Reason: string(cause), Message: why, LastTransitionTime: at(-26 * time.Hour)}},
	}
	for _, m := range machines {
		p.Status.List = append(p.Status.List, refitv1.PendingMachine{Name: m, Cause: cause, Reason: reason, EarliestStart: start})
	}
	return p
}

func policy(namespace, name string, edit func(*refitv1.ChangeManagementPolicySpec)) *refitv1.ChangeManagementPolicy {
	p := &refitv1.ChangeManagementPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "-" + name), Generation: 1}}
	p.Spec.Strategy = schedule.MaintenanceScheduleStrategy
	edit(&p.Spec)
	return p
}

// Fleet returns a fleet of two namespaces, in which there is a Machine in each state.
func Fleet() []client.Object {
	w := &world{}
	for name, tier := range map[string]string{"fleet": "production", "edge": "edge"} {
		w.add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"tier": tier, corev1.LabelMetadataName: name}}})
	}
	closed := "policy second-saturday: OutsideWindow; opens at 2026-10-10T18:00:00Z"
	w.cluster("fleet", "prod-eu", map[string]string{"env": "prod", "region": "eu"}, 3, 14, map[int]func(*refitv1.MachineUpdate){
		3: failed, 4: applying, 5: working(refitv1.PhaseDraining, "", 0), 6: working(refitv1.PhaseStaging, "fetch v1.36.2", 1),
		7: waiting(refitv1.ReasonSlot, "2 of 14 workers are out, and as many may be at once: prod-eu-worker-01, prod-eu-worker-02"),
		8: waiting(refitv1.ReasonSlot, "2 of 14 workers are out, and as many may be at once: prod-eu-worker-01, prod-eu-worker-02"),
	})
	w.cluster("fleet", "prod-us", map[string]string{"env": "prod", "region": "us"}, 3, 9, map[int]func(*refitv1.MachineUpdate){
		3: waiting(refitv1.ReasonWindow, closed), 4: waiting(refitv1.ReasonWindow, closed), 5: drifted,
	})
	w.cluster("fleet", "staging", map[string]string{"env": "staging"}, 1, 4, map[int]func(*refitv1.MachineUpdate){
		1: working(refitv1.PhaseVerifying, "ask the Node", 8), 2: waiting(refitv1.ReasonHold, "held by ana@example.com since 2026-10-02T09:12:00Z: looking into packet loss"),
		4: func(mu *refitv1.MachineUpdate) { mu.Status.Phase = refitv1.PhasePending },
	})
	for i := 1; i <= 6; i++ {
		edits := map[int]func(*refitv1.MachineUpdate){}
		if i == 2 {
			edits[2] = waiting(refitv1.ReasonUnreachable, "the node can't be reached: dial tcp 198.51.100.7:22: i/o timeout")
		}
		if i == 6 {
			edits = map[int]func(*refitv1.MachineUpdate){0: nil, 1: nil, 2: nil}
		}
		w.cluster("edge", fmt.Sprintf("store-%03d", i), map[string]string{"env": "edge"}, 1, 2, edits)
	}
	w.policies()
	w.changes(closed)
	w.events()
	return w.objects
}

func (w *world) policies() {
	w.add(policy("fleet", "weekends", func(s *refitv1.ChangeManagementPolicySpec) {
		s.Selector.Clusters.MatchLabels = map[string]string{"env": "prod", "region": "eu"}
		s.Budget = refitv1.Budget{MaxConcurrent: 3, StopAfterFailures: 2}
		s.MaintenanceSchedule = &schedule.MaintenanceSchedule{
			TimeZone: "Europe/Berlin", Permit: []schedule.Permit{{Recurrence: "FREQ=WEEKLY;BYDAY=SA", StartTime: "20:00", Duration: "8h"}},
			Exclude: []schedule.Exclude{{From: "2026-10-16", Until: "2026-10-19", Reason: "quarter close"}},
		}
	}), policy("fleet", "second-saturday", func(s *refitv1.ChangeManagementPolicySpec) {
		s.Selector.Clusters.MatchLabels = map[string]string{"env": "prod", "region": "us"}
		s.MaintenanceSchedule = &schedule.MaintenanceSchedule{
			TimeZone: "America/New_York", Permit: []schedule.Permit{{Recurrence: "FREQ=MONTHLY;BYDAY=2SA", StartTime: "14:00", Duration: "8h"}},
		}
	}), policy("fleet", "reloads-nightly", func(s *refitv1.ChangeManagementPolicySpec) {
		s.Selector.Clusters.MatchLabels = map[string]string{"env": "staging"}
		s.MaintenanceSchedule = &schedule.MaintenanceSchedule{
			TimeZone: "Europe/Berlin", Permit: []schedule.Permit{
				{Recurrence: "FREQ=DAILY", StartTime: "01:00", Duration: "4h", Changes: &schedule.PermittedChanges{MaxDisruption: "Reload"}},
				{Recurrence: "FREQ=WEEKLY;BYDAY=TU,TH", StartTime: "10:00", Duration: "6h"},
			},
		}
	}), policy("edge", "closing-time", func(s *refitv1.ChangeManagementPolicySpec) {
		s.Selector.Roles = []refitv1.Role{refitv1.WorkerRole}
		s.WhenClosed, s.Replacement = refitv1.RefuseWhenClosed, refitv1.ForbidReplacement
		s.MaintenanceSchedule = &schedule.MaintenanceSchedule{
			TimeZone: "America/New_York", Permit: []schedule.Permit{{Recurrence: "FREQ=WEEKLY;BYDAY=SU,WE", StartTime: "23:00", Duration: "5h"}},
		}
	}), policy("edge", "mistyped", func(s *refitv1.ChangeManagementPolicySpec) {
		s.Selector.Clusters.MatchLabels = map[string]string{"store": "none"}
		s.MaintenanceSchedule = &schedule.MaintenanceSchedule{Permit: []schedule.Permit{{Recurrence: "FREQ=WEEKLY;BYDAY=SOMEDAY"}}}
	}))
	freeze := &refitv1.ClusterChangeManagementPolicy{ObjectMeta: metav1.ObjectMeta{Name: "change-freeze", UID: "freeze", Generation: 1}}
	freeze.Spec.Strategy = schedule.MaintenanceScheduleStrategy
	freeze.Spec.NamespaceSelector.MatchLabels = map[string]string{"tier": "production"}
	freeze.Spec.MaintenanceSchedule = &schedule.MaintenanceSchedule{
		TimeZone: "Europe/Berlin", Exclude: []schedule.Exclude{{From: "2026-10-26", Until: "2026-10-30", Reason: "launch week"}},
	}
	w.add(freeze)
}

func (w *world) changes(closed string) {
	deployment, controlPlane := "MachineDeployment", "KubeadmControlPlane"
	owner := func(kind, name string) refitv1.PendingOwner {
		return refitv1.PendingOwner{Kind: kind, Name: name}
	}
	eu, us := []string{"prod-eu-worker-04", "prod-eu-worker-05"}, []string{"prod-us-worker-00", "prod-us-worker-01", "prod-us-worker-03", "prod-us-worker-04"}
	w.add(
		changed("fleet", "prod-eu", owner(deployment, "prod-eu-workers"), refitv1.WorkerRole, refitv1.PendingInPlace, "Slot", "2 of 14 workers are out", pointer(0), pointer(100*time.Minute), eu...),
		changed("fleet", "prod-eu", owner("Cluster", "prod-eu"), "", refitv1.PendingInPlace, "Slot", "2 of 14 workers are out", pointer(0), pointer(100*time.Minute), eu...),
		changed("fleet", "prod-us", owner(deployment, "prod-us-workers"), refitv1.WorkerRole, refitv1.PendingInPlace, "OutsideWindow", closed, pointer(6*24*time.Hour+22*time.Hour), pointer(7*24*time.Hour+2*time.Hour), us...),
		changed("fleet", "prod-us", owner("Cluster", "prod-us"), "", refitv1.PendingInPlace, "OutsideWindow", closed, pointer(6*24*time.Hour+22*time.Hour), pointer(7*24*time.Hour+2*time.Hour), us...),
		changed("edge", "store-003", owner(deployment, "store-003-workers"), refitv1.WorkerRole, refitv1.PendingReplacement, "OutsideWindow",
			"policy closing-time: OutsideWindow; opens at 2026-10-05T03:00:00Z", pointer(31*time.Hour), pointer(34*time.Hour), "store-003-worker-00"),
		changed("edge", "store-003", owner("Cluster", "store-003"), "", refitv1.PendingReplacement, "OutsideWindow",
			"policy closing-time: OutsideWindow; opens at 2026-10-05T03:00:00Z", pointer(31*time.Hour), pointer(34*time.Hour), "store-003-worker-00"),
		changed("edge", "store-004", owner(controlPlane, "store-004-control"), refitv1.ControlPlaneRole, refitv1.PendingUpgrade, refitv1.PendingOwnerPaused,
			"the KubeadmControlPlane is paused", nil, nil, "store-004-control-0"),
		changed("edge", "store-004", owner("Cluster", "store-004"), "", refitv1.PendingUpgrade, refitv1.PendingOwnerPaused, "the KubeadmControlPlane is paused", nil, nil, "store-004-control-0"),
	)
}

func (w *world) events() {
	for i, e := range []struct {
		ago          time.Duration
		kind, reason string
		note         string
	}{
		{8 * time.Minute, corev1.EventTypeNormal, "InPlaceUpdateAdmitted", "policy weekends is open until 2026-10-04T02:00:00Z"},
		{6 * time.Minute, corev1.EventTypeNormal, "InPlaceUpdateDraining", "draining node prod-eu-worker-01: 11 pods leave"},
		{4 * time.Minute, corev1.EventTypeWarning, "InPlaceUpdateDrainSlow", "pod shop/cart-7d9f is kept by its PodDisruptionBudget; asking again"},
		{2 * time.Minute, corev1.EventTypeNormal, "InPlaceUpdateApplying", "changing 3 files, then: Reload systemd, Restart containerd.service"},
	} {
		one := &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "fleet", Name: fmt.Sprintf("prod-eu-worker-01.%d", i), CreationTimestamp: at(-e.ago)},
			InvolvedObject: corev1.ObjectReference{Kind: "Machine", Namespace: "fleet", Name: "prod-eu-worker-01"},
			Type:           e.kind, Reason: e.reason, Message: e.note, EventTime: metav1.NewMicroTime(Now.Add(-e.ago)),
		}
		w.add(one)
	}
}

// Large returns so many Clusters with so many Machines each. One in ten waits, and one in a thousand has failed.
func Large(clusters, machines int) []client.Object {
	w := &world{}
	w.add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}})
	for c := range clusters {
		name := fmt.Sprintf("cluster-%04d", c)
		w.add(managementtest.Cluster("fleet", name, map[string]string{"env": "prod"}))
		for m := range machines {
			edit, n := succeeded, c*machines+m
			switch {
			case n%1000 == 7:
				edit = failed
			case n%10 == 3:
				edit = waiting(refitv1.ReasonWindow, "policy weekends is closed, and opens at 2026-10-10T18:00:00Z for 8h0m0s")
			}
			w.machine("fleet", name, fmt.Sprintf("%s-worker-%05d", name, m), refitv1.WorkerRole, edit)
		}
	}
	w.add(policy("fleet", "weekends", func(s *refitv1.ChangeManagementPolicySpec) {
		s.MaintenanceSchedule = &schedule.MaintenanceSchedule{Permit: []schedule.Permit{{Recurrence: "FREQ=WEEKLY;BYDAY=SA", StartTime: "18:00", Duration: "8h"}}}
	}))
	return w.objects
}

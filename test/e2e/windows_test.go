//go:build e2e

package e2e

import (
	"context"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
	"github.com/capi-refit/refit/test/system"
)

// sysctlFile is a file whose change restarts a unit that can be restarted at any time.
func sysctlFile(content string) bootstrapv1.File {
	return file("/etc/sysctl.d/60-windows.conf", "# "+content+"\n")
}

// policy creates a ChangeManagementPolicy, for the workers if it does not say for whom, and removes it when the scenario ends.
func (u *suite) policy(ctx context.Context, t *testing.T, name string, spec refitv1.ChangeManagementPolicySpec) *refitv1.ChangeManagementPolicy {
	t.Helper()
	p := &refitv1.ChangeManagementPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: u.Cluster.Namespace, Name: name}, Spec: spec}
	if p.Spec.DeletionGrace == "" {
		p.Spec.DeletionGrace = "0s" // the next scenario begins at once
	}
	if p.Spec.Selector.Roles == nil {
		p.Spec.Selector.Roles = []refitv1.Role{refitv1.WorkerRole}
	}
	require.NoError(t, u.Client.Create(ctx, p))
	t.Cleanup(func() {
		require.NoError(t, client.IgnoreNotFound(u.Client.Delete(context.WithoutCancel(ctx), p)))
	})
	return u.changePolicy(ctx, t, p, func(*refitv1.ChangeManagementPolicySpec) {})
}

// changePolicy changes a policy, and waits until its status is about the change.
func (u *suite) changePolicy(ctx context.Context, t *testing.T, p *refitv1.ChangeManagementPolicy, change func(*refitv1.ChangeManagementPolicySpec)) *refitv1.ChangeManagementPolicy {
	t.Helper()
	before := p.DeepCopy()
	change(&p.Spec)
	// refit writes the status at the same time.
	require.NoError(t, u.Client.Patch(ctx, p, client.MergeFrom(before)))
	require.NoError(t, poll(ctx, 250*time.Millisecond, func(ctx context.Context) (bool, error) {
		err := u.Client.Get(ctx, client.ObjectKeyFromObject(p), p)
		return p.Status.ObservedGeneration == p.Generation, err
	}), "the status of policy %s is not about its spec", p.Name)
	return p
}

func restrictive() refitv1.ChangeManagementPolicySpec {
	return refitv1.ChangeManagementPolicySpec{Policy: schedule.Policy{Strategy: schedule.RestrictiveStrategy}}
}

// annotateWorkers sets an annotation of the MachineDeployment, or with an empty value removes it.
func (u *suite) annotateWorkers(ctx context.Context, t *testing.T, key, value string) {
	t.Helper()
	md := u.workerDeployment(ctx, t)
	before := md.DeepCopy()
	if md.Annotations == nil {
		md.Annotations = map[string]string{}
	}
	md.Annotations[key] = value
	if value == "" {
		delete(md.Annotations, key)
	}
	require.NoError(t, u.Client.Patch(ctx, md, client.MergeFrom(before)))
}

func (u *suite) workerDeployment(ctx context.Context, t *testing.T) *clusterv1.MachineDeployment {
	t.Helper()
	var list clusterv1.MachineDeploymentList
	require.NoError(t, u.Client.List(ctx, &list, client.InNamespace(u.Cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: u.Cluster.Name}))
	require.Len(t, list.Items, 1)
	return &list.Items[0]
}

// anyWorker waits for the update of one of the workers: Cluster API chooses which goes first.
func (u *suite) anyWorker(ctx context.Context, t *testing.T, ok func(*refitv1.MachineUpdate) bool) *refitv1.MachineUpdate {
	t.Helper()
	var found *refitv1.MachineUpdate
	err := poll(ctx, 250*time.Millisecond, func(ctx context.Context) (bool, error) {
		for _, name := range u.workers(ctx, t) {
			mu, err := u.Update(ctx, name)
			if err != nil {
				return false, err
			}
			if mu != nil && ok(mu) {
				found = mu
				return true, nil
			}
		}
		return false, nil
	})
	require.NoError(t, err, "no worker's update came to be as expected")
	return found
}

func permitted(mu *refitv1.MachineUpdate) string {
	c := meta.FindStatusCondition(mu.Status.Conditions, refitv1.PermittedCondition)
	if c == nil {
		return ""
	}
	return c.Reason
}

// waitsForTheWindow starts from workers whose specs have nothing but files that need no action.
func (u *suite) waitsForTheWindow(ctx context.Context, t *testing.T) {
	u.needsSystemd(t)
	before := u.identities(ctx, t)
	from := func(opens time.Time) func(*refitv1.ChangeManagementPolicySpec) {
		return func(s *refitv1.ChangeManagementPolicySpec) {
			s.Strategy = schedule.MaintenanceScheduleStrategy
			s.MaintenanceSchedule = &schedule.MaintenanceSchedule{Permit: []schedule.Permit{
				{Recurrence: "FREQ=DAILY", StartTime: opens.Format(time.TimeOnly), Duration: "1h"},
			}}
		}
	}
	var later refitv1.ChangeManagementPolicySpec
	from(time.Now().UTC().Add(3 * time.Hour))(&later)
	p := u.policy(ctx, t, "soon", later)
	harmless := file(app+"/harmless", "does not wait\n")
	require.NoError(t, u.Cluster.SetWorkerFiles(ctx, harmless))
	u.rollOut(ctx, t, before)
	for _, name := range u.workers(ctx, t) {
		mu, err := u.Update(ctx, name)
		require.NoError(t, err)
		require.Equal(t, refitv1.NotMaterial, mu.Status.Admission.Reason)
	}
	f := sysctlFile("waits")
	require.NoError(t, u.Cluster.SetWorkerFiles(ctx, harmless, f))
	mu := u.anyWorker(ctx, t, func(mu *refitv1.MachineUpdate) bool {
		return waiting(refitv1.ReasonWindow)(mu) && strings.Contains(mu.Status.Message, "Restart systemd-sysctl.service")
	})
	require.Equal(t, string(schedule.OutsideWindow), permitted(mu))

	opens := time.Now().UTC().Add(2 * time.Hour).Truncate(time.Second)
	p = u.changePolicy(ctx, t, p, from(opens))
	require.False(t, *p.Status.Open)
	require.Equal(t, opens, p.Status.Next.Start.UTC())
	mu = u.anyWorker(ctx, t, func(mu *refitv1.MachineUpdate) bool {
		return strings.Contains(mu.Status.Message, "policy soon: OutsideWindow; opens at "+opens.Format(time.RFC3339))
	})
	u.tellsAtTheMachine(ctx, t, mu.Name, opens.Format(time.RFC3339))
	u.nowhere(ctx, t, f.Path)

	opens = time.Now().UTC().Add(15 * time.Second).Truncate(time.Second)
	u.changePolicy(ctx, t, p, from(opens))
	u.rollOut(ctx, t, before)
	for _, name := range u.workers(ctx, t) {
		require.NoError(t, u.CheckFile(ctx, name, f))
		mu, err := u.Update(ctx, name)
		require.NoError(t, err)
		require.Equal(t, string(schedule.Open), mu.Status.Admission.Reason)
		require.False(t, mu.Status.Admission.AdmittedAt.Time.Before(opens), "%s was admitted at %s", name, mu.Status.Admission.AdmittedAt)
		for _, e := range u.onceEach(ctx, t, name, mu.Spec.Digest) {
			require.False(t, e.Time.Before(opens), "%s on %s was at %s, before the window", e.Event, name, e.Time)
		}
	}
}

// tellsAtTheMachine demands that Cluster API shows a text in the Machine's Updating condition.
func (u *suite) tellsAtTheMachine(ctx context.Context, t *testing.T, name, text string) {
	t.Helper()
	require.NoError(t, poll(ctx, 200*time.Millisecond, func(ctx context.Context) (bool, error) {
		return strings.Contains(findCondition(u.machine(ctx, t, name), clusterv1.MachineUpdatingCondition).Message, text), nil
	}), "Cluster API does not show %q at Machine %s", text, name)
}

func (u *suite) overrideLetsGo(ctx context.Context, t *testing.T) {
	before := u.identities(ctx, t)
	spec := restrictive()
	spec.Hold = refitv1.HoldAll
	u.policy(ctx, t, "never", spec)
	f := file(app+"/overridden", "CVE\n")
	require.NoError(t, u.Cluster.SetWorkerFiles(ctx, f))
	mu := u.anyWorker(ctx, t, waiting(refitv1.ReasonWindow))
	require.Equal(t, string(schedule.Paused), permitted(mu))
	require.Nil(t, mu.Status.Plan, "with hold All nobody connects to the node")
	u.nowhere(ctx, t, f.Path)

	u.annotateWorkers(ctx, t, refitv1.PermissiveUntilAnnotation+refitv1.OverrideReasonSuffix, "CVE-2026-0001")
	until := time.Now().Add(20 * time.Minute).UTC().Format(time.RFC3339)
	u.annotateWorkers(ctx, t, refitv1.PermissiveUntilAnnotation, until)
	mu = u.anyWorker(ctx, t, func(mu *refitv1.MachineUpdate) bool {
		return mu.Status.Admission != nil && permitted(mu) == string(schedule.Overridden)
	})
	require.Contains(t, mu.Status.Admission.Message, "CVE-2026-0001")
	require.True(t, strings.HasSuffix(u.workerDeployment(ctx, t).Annotations[refitv1.PermissiveSinceAnnotation], " "+until), "it is noted since when it is there")
	u.metric(ctx, t, `refit_change_management_overrides_total{cluster="`+u.Cluster.Name+`",kind="permissive-until",namespace="`+u.Cluster.Namespace+`"}`, "[1-9]")
	u.rollOut(ctx, t, before)
	u.event(ctx, t, "ChangeManagementOverridden", func(e *corev1.Event) bool { return strings.Contains(e.Message, "CVE-2026-0001") })
	u.metric(ctx, t, `refit_change_management_override_active{cluster="`+u.Cluster.Name+`",kind="permissive-until",namespace="`+u.Cluster.Namespace+`"}`, "1")
	u.annotateWorkers(ctx, t, refitv1.PermissiveUntilAnnotation, "")
	u.annotateWorkers(ctx, t, refitv1.PermissiveUntilAnnotation+refitv1.OverrideReasonSuffix, "")
	require.NoError(t, poll(ctx, 250*time.Millisecond, func(ctx context.Context) (bool, error) {
		_, left := u.workerDeployment(ctx, t).Annotations[refitv1.PermissiveSinceAnnotation]
		return !left, nil
	}), "the note is left behind")
}

// event waits for an Event in the cluster's namespace that is as ok says.
func (u *suite) event(ctx context.Context, t *testing.T, reason string, ok func(*corev1.Event) bool) {
	t.Helper()
	require.NoError(t, poll(ctx, time.Second, func(ctx context.Context) (bool, error) {
		var events corev1.EventList
		err := u.Client.List(ctx, &events, client.InNamespace(u.Cluster.Namespace))
		return slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return e.Reason == reason && ok(&e) }), err
	}), "there is no such Event %s", reason)
}

// metric waits until a replica shows a sample with a value, which is a regular expression: its leader's, and scenarios of other clusters
// kill leaders.
func (u *suite) metric(ctx context.Context, t *testing.T, series, value string) {
	t.Helper()
	require.NoError(t, u.shows(ctx, series, value), "no replica shows %s %s", series, value)
}

func (u *suite) shows(ctx context.Context, series, value string) error {
	sample := regexp.MustCompile("(?m)^" + regexp.QuoteMeta(series) + " " + value + "$")
	return poll(ctx, time.Second, func(ctx context.Context) (bool, error) {
		return slices.ContainsFunc(u.Replicas, func(r *system.Replica) bool {
			text, err := r.Metrics(ctx)
			return err == nil && sample.MatchString(text)
		}), nil
	})
}

// manualWaitsForAPerson has each of the workers wait until somebody permits its change.
func (u *suite) manualWaitsForAPerson(ctx context.Context, t *testing.T) {
	before := u.identities(ctx, t)
	u.policy(ctx, t, "by-hand", refitv1.ChangeManagementPolicySpec{Policy: schedule.Policy{Strategy: schedule.ManualStrategy}})
	f := file(app+"/by-hand", "permitted\n")
	require.NoError(t, u.Cluster.SetWorkerFiles(ctx, f))
	mu := u.anyWorker(ctx, t, waiting(refitv1.ReasonWindow))
	require.Equal(t, string(schedule.Manual), permitted(mu))
	time.Sleep(3 * time.Second) // time to begin, were it allowed
	u.nowhere(ctx, t, f.Path)

	t.Log(u.refit(ctx, t, "permit", mu.Name))
	done, err := u.AwaitUpdate(ctx, mu.Name, system.Succeeded)
	require.NoError(t, err)
	require.Contains(t, done.Status.Admission.Message, "permitted by ")
	require.NoError(t, u.CheckFile(ctx, mu.Name, f))
	other := u.anyWorker(ctx, t, func(o *refitv1.MachineUpdate) bool {
		return o.Name != mu.Name && waiting(refitv1.ReasonWindow)(o)
	})
	_, err = u.Fleet.Node(other.Name).ReadFile(ctx, f.Path)
	require.ErrorIs(t, err, fs.ErrNotExist, "a permission is for one change")
	t.Log(u.refit(ctx, t, "permit", "--cluster", u.Cluster.Name, "--all"))
	u.rollOut(ctx, t, before)
	require.NoError(t, u.CheckFile(ctx, other.Name, f))
}

// aChangeSaysWhenItIsWanted has the workers' change be wanted later, and somebody pause the cluster meanwhile.
func (u *suite) aChangeSaysWhenItIsWanted(ctx context.Context, t *testing.T) {
	before := u.identities(ctx, t)
	u.annotateWorkers(ctx, t, refitv1.NotBeforeAnnotation, time.Now().Add(3*time.Hour).UTC().Format(time.RFC3339))
	f := file(app+"/wanted-later", "wanted\n")
	require.NoError(t, u.Cluster.SetWorkerFiles(ctx, f))
	mu := u.anyWorker(ctx, t, waiting(refitv1.ReasonWindow))
	require.Equal(t, string(schedule.NotBefore), permitted(mu))
	require.Contains(t, mu.Status.Message, "MachineDeployment "+u.workerDeployment(ctx, t).Name)
	t.Log(u.refit(ctx, t, "pause", "--cluster", u.Cluster.Name, "--reason", "incident 8"))
	at := time.Now().Add(2 * time.Second).UTC().Truncate(time.Second)
	u.annotateWorkers(ctx, t, refitv1.NotBeforeAnnotation, at.Format(time.RFC3339))
	mu = u.anyWorker(ctx, t, func(mu *refitv1.MachineUpdate) bool { return permitted(mu) == string(schedule.Overridden) })
	require.Contains(t, mu.Status.Message, "incident 8")
	time.Sleep(3 * time.Second) // time to begin, were it allowed
	u.nowhere(ctx, t, f.Path)

	t.Log(u.refit(ctx, t, "resume", "--cluster", u.Cluster.Name))
	u.rollOut(ctx, t, before)
	for _, name := range u.workers(ctx, t) {
		require.NoError(t, u.CheckFile(ctx, name, f))
		mu, err := u.Update(ctx, name)
		require.NoError(t, err)
		require.False(t, mu.Status.Admission.AdmittedAt.Time.Before(at), "%s was admitted at %s", name, mu.Status.Admission.AdmittedAt)
	}
	u.annotateWorkers(ctx, t, refitv1.NotBeforeAnnotation, "")
}

// aDeletedPolicyCounts deletes the policy that holds an update back, and puts another one in its place.
func (u *suite) aDeletedPolicyCounts(ctx context.Context, t *testing.T) {
	before := u.identities(ctx, t)
	spec := restrictive()
	spec.DeletionGrace = "1h"
	old := u.policy(ctx, t, "before", spec)
	f := file(app+"/deleted-policy", "waits\n")
	require.NoError(t, u.Cluster.SetWorkerFiles(ctx, f))
	u.anyWorker(ctx, t, waiting(refitv1.ReasonWindow))
	require.NoError(t, u.Client.Delete(ctx, old))
	require.NoError(t, poll(ctx, 250*time.Millisecond, func(ctx context.Context) (bool, error) {
		err := u.Client.Get(ctx, client.ObjectKeyFromObject(old), old)
		ready := meta.FindStatusCondition(old.Status.Conditions, refitv1.ReadyCondition)
		return ready != nil && ready.Reason == "Deleting", err
	}), "the policy does not say that it still counts")
	time.Sleep(3 * time.Second) // time to begin, were it allowed
	u.nowhere(ctx, t, f.Path)

	u.policy(ctx, t, "in-its-place", refitv1.ChangeManagementPolicySpec{Policy: schedule.Policy{Strategy: schedule.PermissiveStrategy}})
	u.rollOut(ctx, t, before) // within less than an hour
	for _, name := range u.workers(ctx, t) {
		require.NoError(t, u.CheckFile(ctx, name, f))
	}
	require.True(t, apierrors.IsNotFound(u.Client.Get(ctx, client.ObjectKeyFromObject(old), old)), "its successor has taken over")
}

// aStopHoldsEverything stops the workers, has one of them permissive still from before, and changes what disturbs no node.
func (u *suite) aStopHoldsEverything(ctx context.Context, t *testing.T) {
	before := u.identities(ctx, t)
	u.annotateWorkers(ctx, t, refitv1.RestrictiveUntilAnnotation+refitv1.OverrideReasonSuffix, "incident 7")
	u.annotateWorkers(ctx, t, refitv1.RestrictiveUntilAnnotation, "true")
	until := time.Now().Add(20 * time.Minute).UTC().Format(time.RFC3339)
	for _, name := range u.workers(ctx, t) {
		u.annotateMachine(ctx, t, name, refitv1.PermissiveUntilAnnotation, until)
	}
	f := file(app+"/stopped", "not now\n")
	require.NoError(t, u.Cluster.SetWorkerFiles(ctx, f))
	mu := u.anyWorker(ctx, t, waiting(refitv1.ReasonWindow))
	require.Equal(t, string(schedule.Overridden), permitted(mu))
	require.Contains(t, mu.Status.Message, "incident 7")
	require.Nil(t, mu.Status.Plan, "nobody connects to the node")
	require.NoError(t, poll(ctx, 250*time.Millisecond, func(ctx context.Context) (bool, error) {
		return u.machine(ctx, t, mu.Name).Annotations[refitv1.PermissiveSinceAnnotation] != "", nil
	}), "that it is permissive has not been noted")
	time.Sleep(3 * time.Second) // time to begin, were it allowed
	u.nowhere(ctx, t, f.Path)

	u.annotateMachine(ctx, t, mu.Name, refitv1.BypassAnnotation, mu.Spec.Digest)
	mu, err := u.AwaitUpdate(ctx, mu.Name, system.Succeeded)
	require.NoError(t, err)
	require.NoError(t, u.CheckFile(ctx, mu.Name, f))
	u.annotateMachine(ctx, t, mu.Name, refitv1.BypassAnnotation, "")
	u.annotateWorkers(ctx, t, refitv1.RestrictiveUntilAnnotation, "")
	u.annotateWorkers(ctx, t, refitv1.RestrictiveUntilAnnotation+refitv1.OverrideReasonSuffix, "")
	u.rollOut(ctx, t, before)
	for _, name := range u.workers(ctx, t) {
		require.NoError(t, u.CheckFile(ctx, name, f))
		u.annotateMachine(ctx, t, name, refitv1.PermissiveUntilAnnotation, "")
	}
}

// annotateMachine sets an annotation of a Machine, or with an empty value removes it.
func (u *suite) annotateMachine(ctx context.Context, t *testing.T, name, key, value string) {
	t.Helper()
	m := u.machine(ctx, t, name)
	before := m.DeepCopy()
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	m.Annotations[key] = value
	if value == "" {
		delete(m.Annotations, key)
	}
	require.NoError(t, u.Client.Patch(ctx, m, client.MergeFrom(before)))
}

func (u *suite) restrictiveStopsTheSecond(ctx context.Context, t *testing.T) {
	u.needsSystemd(t)
	before := u.identities(ctx, t)
	u.slowEverywhere(ctx, t)
	release := u.holdSlow(ctx, t, u.workers(ctx, t)...)
	f := slowFile("stops the second")
	require.NoError(t, u.Cluster.SetWorkerFiles(ctx, f))
	first := u.anyWorker(ctx, t, func(mu *refitv1.MachineUpdate) bool { return mu.Status.Phase == refitv1.PhaseApplying })
	u.annotateWorkers(ctx, t, refitv1.RestrictiveUntilAnnotation, "true")
	seen, cancel := context.WithTimeout(ctx, time.Minute) // the node gives a restart two
	defer cancel()
	err := u.shows(seen, `refit_change_management_override_active{cluster="`+u.Cluster.Name+`",kind="restrictive-until",namespace="`+u.Cluster.Namespace+`"}`, "1")
	t.Logf("the override is seen: %t", err == nil)
	release()
	second := u.anyWorker(ctx, t, func(mu *refitv1.MachineUpdate) bool {
		return mu.Name != first.Name && waiting(refitv1.ReasonWindow)(mu)
	})
	require.Equal(t, string(schedule.Overridden), permitted(second))
	mu, err := u.AwaitUpdate(ctx, first.Name, system.Succeeded)
	require.NoError(t, err)
	require.NoError(t, u.CheckFile(ctx, first.Name, f))
	require.Equal(t, first.Spec.Digest, mu.Spec.Digest)
	_, err = u.Fleet.Node(second.Name).ReadFile(ctx, f.Path)
	require.Error(t, err, "the second one is not touched")
	u.annotateWorkers(ctx, t, refitv1.RestrictiveUntilAnnotation, "")
	u.rollOut(ctx, t, before)
	require.NoError(t, u.CheckFile(ctx, second.Name, f))
}

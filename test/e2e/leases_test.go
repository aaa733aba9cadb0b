//go:build e2e

package e2e

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/test/system"
)

// leaseNamespace is medik8s'.
const leaseNamespace = "medik8s-leases"

// validToMedik8s is the rule by which medik8s' common/pkg/lease decides whether a lease is still somebody's.
func validToMedik8s(l *coordinationv1.Lease, now time.Time) bool {
	if l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil {
		return false
	}
	ends := l.Spec.RenewTime.Add(time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second)
	return !now.Before(l.Spec.RenewTime.Time) && !now.After(ends)
}

func (u *suite) workload(ctx context.Context, t *testing.T) client.Client {
	t.Helper()
	workload, err := u.Cluster.WorkloadClient(ctx)
	require.NoError(t, err)
	return workload
}

// nodeOf is the name of a Machine's Node.
func (u *suite) nodeOf(ctx context.Context, t *testing.T, machine string) string {
	t.Helper()
	return u.machine(ctx, t, machine).Status.NodeRef.Name
}

// nodeLease returns the lease of a Machine's node, or nil.
func (u *suite) nodeLease(ctx context.Context, t *testing.T, workload client.Client, machine string) *coordinationv1.Lease {
	t.Helper()
	var l coordinationv1.Lease
	err := workload.Get(ctx, client.ObjectKey{Namespace: leaseNamespace, Name: "node-" + u.nodeOf(ctx, t, machine)}, &l)
	if client.IgnoreNotFound(err) == nil && err != nil {
		return nil
	}
	require.NoError(t, err)
	return &l
}

// seize writes a foreign lease on a Machine's node, as the node-maintenance-operator does.
func (u *suite) seize(ctx context.Context, t *testing.T, workload client.Client, machine, holder string) {
	t.Helper()
	now := metav1.NowMicro()
	spec := coordinationv1.LeaseSpec{
		HolderIdentity: &holder, LeaseDurationSeconds: ptr.To[int32](3600), RenewTime: &now, AcquireTime: &now,
	}
	if l := u.nodeLease(ctx, t, workload, machine); l != nil {
		require.False(t, validToMedik8s(l, time.Now()), "to medik8s the lease is not free: %+v", l.Spec)
		l.Spec = spec
		require.NoError(t, workload.Update(ctx, l))
		return
	}
	err := workload.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: leaseNamespace}})
	require.NoError(t, client.IgnoreAlreadyExists(err))
	require.NoError(t, workload.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: leaseNamespace, Name: "node-" + u.nodeOf(ctx, t, machine)}, Spec: spec,
	}))
}

// nothingLeft demands that nothing of refit's is on any node: no lease, cordon or marker.
func (u *suite) nothingLeft(ctx context.Context, t *testing.T, workload client.Client) {
	t.Helper()
	for _, name := range u.machines(ctx, t) {
		if l := u.nodeLease(ctx, t, workload, name); l != nil {
			require.False(t, strings.HasPrefix(ptr.Deref(l.Spec.HolderIdentity, ""), "refit/"), "the lease of %s is held: %+v", name, l.Spec)
		}
		var n corev1.Node
		require.NoError(t, workload.Get(ctx, client.ObjectKey{Name: u.nodeOf(ctx, t, name)}, &n))
		require.False(t, n.Spec.Unschedulable, "Node %s is cordoned", n.Name)
		for key := range n.Annotations {
			// What refit has applied is remembered; all else is of an update that is over.
			mark := strings.HasPrefix(key, "capi-refit.dev/") && key != "capi-refit.dev/applied-labels-and-taints"
			require.False(t, mark, "Node %s has annotation %s", n.Name, key)
		}
		require.NotContains(t, n.Labels, "remediation.medik8s.io/exclude-from-remediation")
		for key := range u.machine(ctx, t, name).Annotations {
			require.NotContains(t, key, "/refit", "Machine %s", name)
			require.NotContains(t, key, "skip-remediation", "Machine %s", name)
		}
	}
}

// refit runs the command, and returns what it prints.
func (u *suite) refit(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(ctx, filepath.Join("..", "..", "bin", "refit"), append(args, "--kubeconfig", u.Lab.Kubeconfig, "-n", u.Cluster.Namespace)...)
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, "refit %s: %s", strings.Join(args, " "), output)
	return string(output)
}

func (u *suite) holdStops(ctx context.Context, t *testing.T) {
	before, workload := u.identities(ctx, t), u.workload(ctx, t)
	name := u.workers(ctx, t)[0]
	t.Log(u.refit(ctx, t, "hold", name, "--reason", "disk swap"))
	l := u.nodeLease(ctx, t, workload, name)
	require.NotNil(t, l)
	require.True(t, validToMedik8s(l, time.Now()), "medik8s honours the hold: %+v", l.Spec)
	f := file(app+"/held", "after the disk\n")
	require.NoError(t, u.Cluster.SetWorkerFiles(ctx, f))
	mu, err := u.AwaitUpdate(ctx, name, func(mu *refitv1.MachineUpdate) bool {
		return waiting(refitv1.ReasonHold)(mu) || waiting(refitv1.ReasonLease)(mu)
	})
	require.NoError(t, err)
	require.Contains(t, mu.Status.Message, "disk swap")
	u.tellsAtTheMachine(ctx, t, name, "disk swap")
	require.Contains(t, u.refit(ctx, t, "status"), "disk swap")
	_, err = u.Fleet.Node(name).ReadFile(ctx, f.Path)
	require.Error(t, err, "the held node is not touched")

	t.Log(u.refit(ctx, t, "release", name))
	u.rollOut(ctx, t, before)
	require.NoError(t, u.CheckFile(ctx, name, f))
	u.nothingLeft(ctx, t, workload)
}

func (u *suite) foreignLeaseWaits(ctx context.Context, t *testing.T) {
	before, workload := u.identities(ctx, t), u.workload(ctx, t)
	name := u.workers(ctx, t)[0]
	journal, err := u.Fleet.Node(name).Journal(ctx)
	require.NoError(t, err)
	u.seize(ctx, t, workload, name, "node-maintenance")
	f := file(app+"/foreign", "after the maintenance\n")
	require.NoError(t, u.Cluster.SetWorkerFiles(ctx, f))
	mu, err := u.AwaitUpdate(ctx, name, waiting(refitv1.ReasonLease))
	require.NoError(t, err)
	require.Contains(t, mu.Status.Message, "node lease held by node-maintenance since ")
	u.tellsAtTheMachine(ctx, t, name, "node-maintenance")
	after, err := u.Fleet.Node(name).Journal(ctx)
	require.NoError(t, err)
	require.Equal(t, journal, after, "the agent was not run")
	l := u.nodeLease(ctx, t, workload, name)
	require.Equal(t, "node-maintenance", *l.Spec.HolderIdentity, "the lease is not touched")

	require.NoError(t, workload.Delete(ctx, l))
	u.rollOut(ctx, t, before)
	require.NoError(t, u.CheckFile(ctx, name, f))
	u.nothingLeft(ctx, t, workload)
}

// oneControlPlane has somebody else hold one node of the control plane while it is to be updated.
func (u *suite) oneControlPlane(ctx context.Context, t *testing.T) {
	u.needsSystemd(t)
	before, workload := u.identities(ctx, t), u.workload(ctx, t)
	machines, err := u.Cluster.ControlPlaneMachines(ctx)
	require.NoError(t, err)
	held := machines[0].Name
	u.seize(ctx, t, workload, held, "node-maintenance")
	f := file("/etc/sysctl.d/70-one.conf", "# one at a time\n")
	require.NoError(t, u.Cluster.SetControlPlaneFiles(ctx, f))
	var waits *refitv1.MachineUpdate
	require.NoError(t, poll(ctx, 250*time.Millisecond, func(ctx context.Context) (bool, error) {
		u.atMostOneOut(ctx, t, held)
		updates, err := u.Updates(ctx)
		for i := range updates {
			if mu := &updates[i]; waiting(refitv1.ReasonSlot)(mu) || mu.Name == held && waiting(refitv1.ReasonLease)(mu) {
				waits = mu
			}
		}
		return waits != nil, err
	}), "no update of the control plane waits for the node that somebody else has")
	require.Contains(t, waits.Status.Message, "node-maintenance")
	u.nowhere(ctx, t, f.Path)

	require.NoError(t, workload.Delete(ctx, u.nodeLease(ctx, t, workload, held)))
	watching, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for watching.Err() == nil {
			u.atMostOneOut(ctx, t, "")
			time.Sleep(200 * time.Millisecond)
		}
	}()
	u.rollOut(ctx, t, before)
	stop()
	<-watched
	u.nothingLeft(ctx, t, workload)
}

// atMostOneOut demands that of the control plane no more than one node has a slot, and none while somebody else has another.
func (u *suite) atMostOneOut(ctx context.Context, t *testing.T, foreign string) {
	var updates refitv1.MachineUpdateList // all at one time: a slot may just be going from one to another
	if err := u.Client.List(ctx, &updates, client.InNamespace(u.Cluster.Namespace)); err != nil {
		return // it is asked again
	}
	controlPlanes, err := u.Cluster.ControlPlaneMachines(ctx)
	if err != nil {
		return
	}
	var out []string
	if foreign != "" {
		out = append(out, foreign)
	}
	for _, mu := range updates.Items {
		ours := slices.ContainsFunc(controlPlanes, func(m clusterv1.Machine) bool { return m.Name == mu.Name })
		if ours && mu.Status.Slot != nil && mu.Name != foreign {
			out = append(out, mu.Name)
		}
	}
	if len(out) > 1 {
		t.Errorf("of the control plane %v are out at once", out)
	}
}

// failedUnit is a unit that can't start with the drop-in that failingFile is.
const failedUnit = "e2e-fails.service"

// failedKeepsItsSlot lets the update of one worker fail.
func (u *suite) failedKeepsItsSlot(ctx context.Context, t *testing.T) {
	u.needsSystemd(t)
	before, workload := u.identities(ctx, t), u.workload(ctx, t)
	for _, name := range u.workers(ctx, t) {
		u.putUnit(ctx, t, name, failedUnit, "[Service]\nType=oneshot\nExecStart=/usr/bin/test -e /etc/refit-e2e/mended\n")
	}
	f := file("/etc/systemd/system/"+failedUnit+".d/e2e.conf", "[Unit]\nDescription=it fails\n")
	// Cluster API would let one worker go after the other. With 2, it is for refit to say no.
	together := func(n int32) {
		require.NoError(t, u.Cluster.ChangeWorkers(ctx, func(md *clusterv1.MachineDeployment, config *bootstrapv1.KubeadmConfigSpec) {
			md.Spec.Rollout.Strategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt32(n))
			config.Files = []bootstrapv1.File{f}
		}))
	}
	together(2)
	failed := u.anyWorker(ctx, t, func(mu *refitv1.MachineUpdate) bool { return mu.Status.Phase == refitv1.PhaseFailed })
	require.NotNil(t, failed.Status.Slot)
	second := u.anyWorker(ctx, t, waiting(refitv1.ReasonSlot))
	require.Contains(t, second.Status.Message, failed.Name)
	require.Nil(t, second.Status.Slot)
	u.nothingLeft(ctx, t, workload)

	for _, name := range u.workers(ctx, t) {
		require.NoError(t, u.Fleet.Node(name).WriteFile(ctx, "/etc/refit-e2e/mended", nodeFile("fit\n")))
	}
	t.Log(u.refit(ctx, t, "abandon", failed.Name))
	_, err := u.AwaitUpdate(ctx, second.Name, system.Succeeded)
	require.NoError(t, err)
	mu, err := u.Update(ctx, failed.Name)
	require.NoError(t, err)
	require.Equal(t, refitv1.PhaseFailed, mu.Status.Phase, "abandoned is not done")
	require.Nil(t, mu.Status.Slot)
	t.Log(u.refit(ctx, t, "retry", failed.Name))
	u.rollOut(ctx, t, before)
	require.NoError(t, u.CheckFile(ctx, failed.Name, f))
	together(1)
	u.nothingLeft(ctx, t, workload)
}

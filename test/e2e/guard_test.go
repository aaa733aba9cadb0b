//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
	"github.com/capi-refit/refit/test/lab"
	"github.com/capi-refit/refit/test/system"
)

const (
	refusedBy    = `admission webhook "guard.capi-refit.dev" denied the request: `
	commandsStay = "spec.postKubeadmCommands of the bootstrapConfig can't be updated in place: it takes effect when a machine is made"
	whatToDo     = "take the change of these fields back, or set replacement: Allow in the policy"
)

// guarded has machines of all roles be kept, and the guard refuse what would replace them.
func guarded() refitv1.ChangeManagementPolicySpec {
	spec := refitv1.ChangeManagementPolicySpec{
		Policy: schedule.Policy{Strategy: schedule.PermissiveStrategy}, Replacement: refitv1.ForbidReplacement, Guard: refitv1.RefuseGuard, DeletionGrace: "0s",
	}
	spec.Selector.Roles = []refitv1.Role{refitv1.ControlPlaneRole, refitv1.WorkerRole}
	return spec
}

// guard has the API server ask about edits in a namespace while the scenario runs. It asks when it refuses an edit that it is asked to try.
func (u *suite) guard(ctx context.Context, t *testing.T, namespace string, try func() error) {
	t.Helper()
	remove, err := u.Guard(ctx, namespace)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, remove(context.WithoutCancel(ctx))) })
	read()
	eventually(ctx, t, func(context.Context) error {
		if err := try(); !apierrors.IsForbidden(err) {
			return errors.Join(errors.New("the edit is not refused"), err)
		}
		return nil
	})
}

// theGuardRefuses edits a control plane and workers under a policy that keeps their machines: what would replace them is not stored, what is made in place
// is made, and workers come and go.
func (u *suite) theGuardRefuses(ctx context.Context, t *testing.T) {
	before := u.identities(ctx, t)
	p := u.policy(ctx, t, "guarded", guarded())
	command := func(commands []string, opts ...client.PatchOption) (string, error) {
		kcp := &controlplanev1.KubeadmControlPlane{}
		require.NoError(t, u.Client.Get(ctx, u.Cluster.ObjectKey, kcp))
		was := kcp.DeepCopy()
		kcp.Spec.KubeadmConfigSpec.PostKubeadmCommands = commands
		return u.patch(ctx, t, kcp, was, opts...)
	}
	forbidden := []string{"echo forbidden"}
	u.guard(ctx, t, u.Cluster.Namespace, func() error { _, err := command(forbidden, client.DryRunAll); return err })

	_, err := command(forbidden)
	says(t, err, fmt.Sprintf("%s of 3 Machines of KubeadmControlPlane/%s/%s would be replaced because of spec.kubeadmConfigSpec.postKubeadmCommands: ",
		u.controlPlanes(ctx, t)[0], u.Cluster.Namespace, u.Cluster.Name), p.Name)
	err = u.Cluster.ChangeWorkers(ctx, func(_ *clusterv1.MachineDeployment, c *bootstrapv1.KubeadmConfigSpec) {
		c.PostKubeadmCommands = forbidden
	})
	md := u.workerDeployment(ctx, t)
	says(t, err, fmt.Sprintf("%s of 2 Machines of MachineDeployment/%s/%s would be replaced because of spec.template.spec.bootstrap: ",
		u.workers(ctx, t)[0], md.Namespace, md.Name), p.Name)

	// What is made in place is stored without a word, and made.
	f := file(app+"/guarded", "in place\n")
	require.NoError(t, u.SetFiles(ctx, f))
	u.rollOut(ctx, t, before)
	u.everywhere(ctx, t, f)

	u.scaleUpAndDown(ctx, t, before)

	// By Warn it is stored, and held back by the hooks. To take it back is no edit to be warned of.
	u.changePolicy(ctx, t, p, func(s *refitv1.ChangeManagementPolicySpec) { s.Guard = refitv1.WarnGuard })
	var told string
	eventually(ctx, t, func(context.Context) (err error) { // refit reads the policy a moment later
		told, err = command(forbidden)
		return err
	})
	require.Contains(t, told, commandsStay)
	require.Contains(t, told, "policy guarded forbids replacement (replacement: Forbid). Until policies let that be, refit holds it back")
	u.withheld(ctx, t, "policy guarded forbids the replacement")
	u.changePolicy(ctx, t, p, func(s *refitv1.ChangeManagementPolicySpec) { s.Guard = refitv1.RefuseGuard })
	told, err = command(nil)
	require.NoError(t, err)
	require.Empty(t, told)
	u.rollOut(ctx, t, before)
}

// says demands that the guard refuses an edit because of the commands, and says of which machines and what to do.
func says(t *testing.T, err error, which, policy string) {
	t.Helper()
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	for _, text := range []string{refusedBy, which, commandsStay, "policy " + policy + " forbids replacement (replacement: Forbid)", whatToDo} {
		require.ErrorContains(t, err, text)
	}
}

// scaleUpAndDown has a worker more, and that one go again, without a warning.
func (u *suite) scaleUpAndDown(ctx context.Context, t *testing.T, before map[string]types.UID) {
	t.Helper()
	md := u.workerDeployment(ctx, t)
	replicas := ptr.Deref(md.Spec.Replicas, 1)
	require.Empty(t, u.scaleWorkers(ctx, t, md.Name, replicas+1, ""))
	require.NoError(t, u.Cluster.WaitForRollout(ctx))
	for _, name := range u.workers(ctx, t) {
		if _, was := before[name]; !was {
			u.annotateMachine(ctx, t, name, clusterv1.DeleteMachineAnnotation, "yes")
		}
	}
	require.Empty(t, u.scaleWorkers(ctx, t, md.Name, replicas, ""))
	u.rollOut(ctx, t, before)
}

// theGuardRefusesTopologies edits a Cluster with a topology under such a policy. Its machines have no nodes, so that what is made in place begins and does
// not end.
func (u *suite) theGuardRefusesTopologies(ctx context.Context, t *testing.T) {
	const older, newer = "v1.36.0", "v1.36.1"
	one := int32(1)
	cluster, err := u.Lab.CreateCluster(ctx, lab.ClusterOptions{
		Backend: lab.InMemory, Namespace: "guarded", Name: "kept", Version: older, Topology: true, ControlPlaneReplicas: &one, WorkerReplicas: &one,
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: cluster.Name}}
		require.NoError(t, u.Client.Delete(context.WithoutCancel(ctx), c))
	})
	access := system.Access(u.Fleet.Kind()) // without one the hooks would claim nothing
	access.Namespace, access.Name = cluster.Namespace, system.AccessName
	require.NoError(t, u.Client.Create(ctx, access))
	p := &refitv1.ChangeManagementPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "keeps"}, Spec: guarded()}
	require.NoError(t, u.Client.Create(ctx, p))
	u.changePolicy(ctx, t, p, func(*refitv1.ChangeManagementPolicySpec) {})
	u.classLike(ctx, t, cluster, "commands", func(c *bootstrapv1.KubeadmConfigSpec) { c.PostKubeadmCommands = []string{"echo forbidden"} })
	u.classLike(ctx, t, cluster, "files", func(c *bootstrapv1.KubeadmConfigSpec) { c.Files = append(c.Files, file(app+"/guarded", "in place\n")) })
	edit := func(change func(*clusterv1.Topology), opts ...client.PatchOption) (string, error) {
		c := &clusterv1.Cluster{}
		require.NoError(t, u.Client.Get(ctx, cluster.ObjectKey, c))
		was := c.DeepCopy()
		change(&c.Spec.Topology)
		return u.patch(ctx, t, c, was, opts...)
	}
	class := func(name string) func(*clusterv1.Topology) {
		return func(topology *clusterv1.Topology) { topology.ClassRef.Name = name }
	}
	u.guard(ctx, t, cluster.Namespace, func() error { _, err := edit(class("commands"), client.DryRunAll); return err })
	workers, err := cluster.WorkerMachines(ctx)
	require.NoError(t, err)
	require.Len(t, workers, 1)

	_, err = edit(class("commands"))
	says(t, err, workers[0].Name+", the Machine of Cluster/guarded/kept MachineDeployment md-0, would be replaced because of spec.topology.classRef: ", p.Name)
	_, err = edit(func(topology *clusterv1.Topology) { topology.Version = newer })
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, "spec.topology.version: spec.version of the machine can't be updated in place")

	told, err := edit(class("files"))
	require.NoError(t, err)
	require.Empty(t, told)
	require.NoError(t, poll(ctx, 250*time.Millisecond, func(ctx context.Context) (bool, error) {
		return true, u.Client.Get(ctx, client.ObjectKeyFromObject(&workers[0]), &refitv1.MachineUpdate{})
	}), "Cluster API does not ask for an update of the same Machine")
	now, err := cluster.WorkerMachines(ctx)
	require.NoError(t, err)
	require.Len(t, now, 1)
	require.Equal(t, workers[0].UID, now[0].UID)

	told, err = edit(func(topology *clusterv1.Topology) { topology.Workers.MachineDeployments[0].Replicas = ptr.To(int32(2)) })
	require.NoError(t, err)
	require.Empty(t, told)
	eventually(ctx, t, func(ctx context.Context) error {
		now, err := cluster.WorkerMachines(ctx)
		if err == nil && len(now) != 2 {
			err = fmt.Errorf("there are %d workers", len(now))
		}
		return err
	})
	u.remediationIsTold(ctx, t, cluster, workers[0].Name)
}

// remediationIsTold has a MachineHealthCheck replace the worker that is not of the name: whoever makes it is warned, and refit says what came of it.
func (u *suite) remediationIsTold(ctx context.Context, t *testing.T, cluster *lab.Cluster, other string) {
	t.Helper()
	workers, err := cluster.WorkerMachines(ctx)
	require.NoError(t, err)
	m := workers[slices.IndexFunc(workers, func(m clusterv1.Machine) bool { return m.Name != other })]
	mhc := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "workers"}}
	mhc.Spec.ClusterName = cluster.Name
	mhc.Spec.Selector.MatchLabels = map[string]string{clusterv1.MachineDeploymentNameLabel: m.Labels[clusterv1.MachineDeploymentNameLabel]}
	mhc.Spec.Checks.UnhealthyNodeConditions = []clusterv1.UnhealthyNodeCondition{{Type: "Ready", Status: "False", TimeoutSeconds: ptr.To(int32(600))}}
	told, err := u.createAndHear(ctx, t, mhc.DeepCopy())
	require.NoError(t, err)
	require.Contains(t, told, "of the 2 Machines that this selects, policy keeps forbids the replacement of ")
	was := m.DeepCopy()
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, clusterv1.RemediateMachineAnnotation, "")
	require.NoError(t, u.Client.Patch(ctx, &m, client.MergeFrom(was)))
	require.NoError(t, poll(ctx, 250*time.Millisecond, func(ctx context.Context) (bool, error) {
		var list corev1.EventList
		err := u.Client.List(ctx, &list, client.InNamespace(cluster.Namespace))
		return slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
			return e.Reason == "RemediatedDespitePolicy" && e.InvolvedObject.UID == m.UID && strings.Contains(e.Message, "though policy keeps forbids that")
		}), err
	}), "no Event tells that %s is replaced", m.Name)

	// The annotation in the template's metadata comes to the Machines as they are, and keeps them from it.
	c := &clusterv1.Cluster{}
	require.NoError(t, u.Client.Get(ctx, cluster.ObjectKey, c))
	before := c.DeepCopy()
	c.Spec.Topology.Workers.MachineDeployments[0].Metadata.Annotations = map[string]string{clusterv1.MachineSkipRemediationAnnotation: "kept"}
	told, err = u.patch(ctx, t, c, before)
	require.NoError(t, err)
	require.Empty(t, told)
	mhc.Name = "again"
	eventually(ctx, t, func(ctx context.Context) error {
		told, err := u.createAndHear(ctx, t, mhc.DeepCopy(), client.DryRunAll)
		if err == nil && told != "" {
			err = errors.New(told)
		}
		return err
	})
	kept, err := cluster.WorkerMachines(ctx)
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(kept, func(m clusterv1.Machine) bool { return m.Name == other }), "it was replaced for an annotation")
}

// classLike makes a ClusterClass that differs from a cluster's in its workers' configuration.
func (u *suite) classLike(ctx context.Context, t *testing.T, cluster *lab.Cluster, name string, change func(*bootstrapv1.KubeadmConfigSpec)) {
	t.Helper()
	class, template := &clusterv1.ClusterClass{}, &bootstrapv1.KubeadmConfigTemplate{}
	require.NoError(t, u.Client.Get(ctx, cluster.ObjectKey, class))
	bootstrap := &class.Spec.Workers.MachineDeployments[0].Bootstrap.TemplateRef
	require.NoError(t, u.Client.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: bootstrap.Name}, template))
	in := metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name}
	class.ObjectMeta, template.ObjectMeta, bootstrap.Name = in, in, name
	change(&template.Spec.Template.Spec)
	require.NoError(t, u.Client.Create(ctx, template))
	require.NoError(t, u.Client.Create(ctx, class))
}

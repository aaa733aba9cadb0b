//go:build e2e

package e2e

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
	"github.com/capi-refit/refit/test/lab"
)

// tooNewVersion is two minor versions after the older one.
const tooNewVersion = "v1.37.0"

// minorVersion is a group of the scenarios of versions, from one minor version to the next. kubeadm brings another etcd with it.
var minorVersion = group{
	name: "minor", machines: true, older: lab.PreviousMinorMachineVersion, scenarios: slices.Concat([]scenario{
		{"to skip a minor version is refused, and nothing is touched", (*suite).skipIsRefused},
	}, versions, []scenario{
		{"to go back to the minor version before is refused, and nothing is touched", (*suite).backIsRefused},
	}),
}

// TestMinorVersion runs the scenarios of versions from one minor version to the next.
func TestMinorVersion(t *testing.T) { run(t, minorVersion) }

// skipIsRefused has workers skip a minor version. Of a control plane Cluster API itself refuses it.
func (u *suite) skipIsRefused(ctx context.Context, t *testing.T) {
	u.keepMachines(ctx, t)
	err := u.setControlPlaneVersion(ctx, tooNewVersion)
	require.ErrorContains(t, err, "cannot update Kubernetes version from "+u.older+" to "+tooNewVersion)
	u.refusesWorkers(ctx, t, u.older, tooNewVersion, "kubeadm can't skip a minor version; go to v1.36 first")
}

// backIsRefused has workers and a control plane go back to where they came from.
func (u *suite) backIsRefused(ctx context.Context, t *testing.T) {
	const reason = "a node is not taken back to an older version"
	u.keepMachines(ctx, t)
	u.refusesWorkers(ctx, t, newerVersion, u.older, reason)
	before, manifestsBefore := u.identities(ctx, t), u.manifestsOf(ctx, t)
	require.NoError(t, u.setControlPlaneVersion(ctx, u.older))
	u.refuses(ctx, t, "CanUpdateMachineRequest", u.controlPlanes(ctx, t), reason)
	require.Equal(t, manifestsBefore, u.manifestsOf(ctx, t))
	require.NoError(t, u.setControlPlaneVersion(ctx, newerVersion))
	u.rollOut(ctx, t, before)
	u.runs(ctx, t, u.machines(ctx, t), newerVersion)
}

// keepMachines has no Machine replaced for what is not made in place.
func (u *suite) keepMachines(ctx context.Context, t *testing.T) {
	t.Helper()
	u.policy(ctx, t, "keeps", refitv1.ChangeManagementPolicySpec{
		Policy: schedule.Policy{Strategy: schedule.PermissiveStrategy}, Replacement: refitv1.ForbidReplacement,
		Selector: refitv1.MachinesSelector{Roles: []refitv1.Role{refitv1.ControlPlaneRole, refitv1.WorkerRole}},
	})
	read()
}

func (u *suite) setControlPlaneVersion(ctx context.Context, version string) error {
	return u.Cluster.ChangeControlPlane(ctx, func(kcp *controlplanev1.KubeadmControlPlane) { kcp.Spec.Version = version })
}

// refusesWorkers has the workers brought from a version to one that is refused with a reason, and takes that back.
func (u *suite) refusesWorkers(ctx context.Context, t *testing.T, from, to, reason string) {
	t.Helper()
	before := u.identities(ctx, t)
	set := func(version string) {
		require.NoError(t, u.Cluster.ChangeWorkers(ctx, func(md *clusterv1.MachineDeployment, _ *bootstrapv1.KubeadmConfigSpec) {
			md.Spec.Template.Spec.Version = version
		}))
	}
	set(to)
	u.refuses(ctx, t, "CanUpdateMachineSetRequest", u.workers(ctx, t), reason)
	set(from)
	u.rollOut(ctx, t, before)
	u.runs(ctx, t, u.workers(ctx, t), from)
}

// refuses waits until a replica has logged that it has answered a kind of Cluster API's questions by a refusal, since a field can't be updated in
// place for a reason, and demands that no machine is replaced or updated.
func (u *suite) refuses(ctx context.Context, t *testing.T, kind string, machines []string, reason string) {
	t.Helper()
	before := u.identities(ctx, t)
	u.logs(ctx, t, `kind="`+kind+`"`, "policy keeps forbids the replacement", reason)
	time.Sleep(8 * time.Second) // Cluster API asks again, and gets the same answer
	require.Equal(t, before, u.identities(ctx, t))
	for _, name := range machines {
		require.NotContains(t, u.machine(ctx, t, name).Annotations, clusterv1.UpdateInProgressAnnotation, "nothing was committed")
	}
}

//go:build e2e

package e2e

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
)

const (
	auditPolicyFile = "/etc/kubernetes/audit-policy.yaml"
	auditLogs       = "/var/log/kubernetes/audit"
)

// auditAt is a policy that has everything audited at a level.
func auditAt(level string) bootstrapv1.File {
	return file(auditPolicyFile, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: "+level+"\n")
}

// auditPolicy has the API servers be told of an audit policy in the same edit in which they get it, and then changes the policy alone, which
// each of them reads only when it starts.
func (u *suite) auditPolicy(ctx context.Context, t *testing.T) {
	before, original := u.identities(ctx, t), u.controlPlaneConfig(ctx, t)
	u.edit(ctx, t, func(config *bootstrapv1.KubeadmConfigSpec) {
		config.Files = append(config.Files, auditAt("None"))
		server := &config.ClusterConfiguration.APIServer
		server.ExtraArgs = append(server.ExtraArgs,
			argument("audit-policy-file", auditPolicyFile), argument("audit-log-path", auditLogs+"/audit.log"))
		server.ExtraVolumes = append(server.ExtraVolumes,
			bootstrapv1.HostPathMount{Name: "audit-policy", HostPath: auditPolicyFile, MountPath: auditPolicyFile, ReadOnly: new(true), PathType: corev1.HostPathFile},
			bootstrapv1.HostPathMount{Name: "audit-logs", HostPath: auditLogs, MountPath: auditLogs, PathType: corev1.HostPathDirectoryOrCreate})
	})
	u.rollOut(ctx, t, before)
	u.settled(ctx, t, controlplanev1.KubeadmControlPlaneMachinesUpToDateCondition)
	for _, name := range u.controlPlanes(ctx, t) {
		u.exec(ctx, t, name, "sh", "-c", "test ! -s "+auditLogs+"/audit.log")
	}
	manifestsBefore := u.manifestsOf(ctx, t)

	explained := u.edit(ctx, t, func(config *bootstrapv1.KubeadmConfigSpec) {
		config.Files[len(config.Files)-1] = auditAt("Metadata")
	})
	u.rollOut(ctx, t, before)
	u.settled(ctx, t, controlplanev1.KubeadmControlPlaneMachinesUpToDateCondition)
	u.tookActions(ctx, t, explained)
	for _, name := range u.controlPlanes(ctx, t) {
		u.exec(ctx, t, name, "sh", "-c", "grep -q '\"level\":\"Metadata\"' "+auditLogs+"/audit.log")
	}
	require.Equal(t, manifestsBefore, u.manifestsOf(ctx, t), "manifests are not touched for that")

	u.edit(ctx, t, takeBack(original))
	u.rollOut(ctx, t, before)
	u.settled(ctx, t, controlplanev1.KubeadmControlPlaneMachinesUpToDateCondition)
}

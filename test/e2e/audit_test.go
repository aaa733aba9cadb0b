//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// auditLog is where the API servers of real machines write what their audit policy says. A command of bootstrap has laid down one by which
// nothing is written.
const auditLog = "/var/log/kubernetes/audit/audit.log"

// auditPolicyFile has a little audited: what an API server itself does with its lease, each 10 seconds.
var auditPolicyFile = file("/etc/kubernetes/audit-policy.yaml", `apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: Metadata
  users: ["system:apiserver"]
  resources: [{group: coordination.k8s.io, resources: [leases]}]
- level: None
`)

// auditPolicy changes the audit policy alone, which each API server reads only when it starts. It is not taken back: without the file no API
// server would start.
func (u *suite) auditPolicy(ctx context.Context, t *testing.T) {
	before, machines := u.identities(ctx, t), u.controlPlanes(ctx, t)
	for _, name := range machines {
		u.exec(ctx, t, name, "sh", "-c", "test -e "+auditLog+" && ! test -s "+auditLog)
	}
	manifestsBefore := u.manifestsOf(ctx, t)
	u.withPolicy(ctx, t, func(s *refitv1.NodeDisruptionPolicySpec) { s.Soak = "5s" })
	asked := time.Now()
	explained := u.edit(ctx, t, func(config *bootstrapv1.KubeadmConfigSpec) { config.Files = append(config.Files, auditPolicyFile) })
	u.rollOut(ctx, t, before)
	u.settled(ctx, t, controlplanev1.KubeadmControlPlaneMachinesUpToDateCondition)
	u.tookActions(ctx, t, explained)
	for _, name := range machines {
		eventually(ctx, t, func(ctx context.Context) error {
			if _, err := u.Fleet.Node(name).Exec(ctx, "grep", "--quiet", `"level":"Metadata"`, auditLog); err != nil {
				return fmt.Errorf("the API server of %s has audited nothing: %w", name, err)
			}
			return nil
		})
	}
	require.Equal(t, manifestsBefore, u.manifestsOf(ctx, t), "manifests are not touched for that")
	u.inTurn(ctx, t, machines, asked, 5*time.Second)
}

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

func applying(mu *refitv1.MachineUpdate) bool {
	return mu.Status.Phase == refitv1.PhaseApplying && strings.Contains(mu.Status.Message, "steps")
}

// machineDeleted deletes a Machine in the middle of its update.
func (u *suite) machineDeleted(ctx context.Context, t *testing.T) {
	u.needsSystemd(t)
	u.slowEverywhere(ctx, t)
	before, workload := u.identities(ctx, t), u.workload(ctx, t)
	name := u.workers(ctx, t)[0]
	require.NoError(t, u.Cluster.SetWorkerFiles(ctx, slowFile("is not waited for")))
	_, err := u.AwaitUpdate(ctx, name, applying)
	require.NoError(t, err)
	require.NoError(t, u.Client.Delete(ctx, u.machine(ctx, t, name)))
	require.NoError(t, u.Cluster.WaitForRollout(ctx))
	after := u.identities(ctx, t)
	require.NotContains(t, after, name)
	require.Len(t, after, len(before))
	for machine, uid := range before {
		if machine != name {
			require.Equal(t, uid, after[machine], "only the deleted Machine was made again")
		}
	}
	u.nothingLeft(ctx, t, workload)
}

// foregroundDeleted deletes a Machine in the middle of its update together with all that it owns, its MachineUpdate among it, before
// itself: nothing that keeps the Machine may be left to what is deleted first.
func (u *suite) foregroundDeleted(ctx context.Context, t *testing.T) {
	u.needsSystemd(t)
	u.slowEverywhere(ctx, t)
	before, workload := u.identities(ctx, t), u.workload(ctx, t)
	name := u.workers(ctx, t)[0]
	release := u.holdSlow(ctx, t, name)
	end, err := u.Lab.CollectGarbage(ctx)
	require.NoError(t, err)
	defer func() { require.NoError(t, end()) }()
	require.NoError(t, u.Cluster.SetWorkerFiles(ctx, slowFile("goes with its owner")))
	mu, err := u.AwaitUpdate(ctx, name, applying)
	require.NoError(t, err)
	require.NoError(t, u.Client.Delete(ctx, u.machine(ctx, t, name), client.PropagationPolicy(metav1.DeletePropagationForeground)))
	eventually(ctx, t, func(ctx context.Context) error {
		var deleted refitv1.MachineUpdate
		err := u.Client.Get(ctx, client.ObjectKeyFromObject(mu), &deleted)
		if err == nil && deleted.DeletionTimestamp.IsZero() {
			err = fmt.Errorf("the garbage collector has not come to MachineUpdate %s", name)
		}
		return client.IgnoreNotFound(err)
	})
	release()
	require.NoError(t, u.Cluster.WaitForRollout(ctx))
	after := u.identities(ctx, t)
	require.NotContains(t, after, name)
	for machine, uid := range before {
		if machine != name {
			require.Equal(t, uid, after[machine], "only the deleted Machine was made again")
		}
	}
	u.nothingLeft(ctx, t, workload)
}

// updateDeleted deletes the MachineUpdate alone in the middle of an update, which Cluster API then asks for again.
func (u *suite) updateDeleted(ctx context.Context, t *testing.T) {
	u.needsSystemd(t)
	u.slowEverywhere(ctx, t)
	before, workload := u.identities(ctx, t), u.workload(ctx, t)
	name := u.workers(ctx, t)[0]
	release := u.holdSlow(ctx, t, name)
	f := slowFile("is asked for again")
	require.NoError(t, u.Cluster.SetWorkerFiles(ctx, f))
	mu, err := u.AwaitUpdate(ctx, name, applying)
	require.NoError(t, err)
	require.NoError(t, u.Client.Delete(ctx, mu))
	stays, err := u.Update(ctx, name)
	require.NoError(t, err)
	require.Equal(t, mu.UID, stays.UID)
	require.False(t, stays.DeletionTimestamp.IsZero(), "it stays for what runs on the node")
	release()
	u.rollOut(ctx, t, before)
	again, err := u.Update(ctx, name)
	require.NoError(t, err)
	require.NotEqual(t, mu.UID, again.UID)
	require.NoError(t, u.CheckFile(ctx, name, f))
	u.onceEach(ctx, t, name, mu.Spec.Digest)
	u.nothingLeft(ctx, t, workload)
}

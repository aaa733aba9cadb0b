//go:build e2e

package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/test/system"
)

// accessMadeAgain deletes the NodeAccess between two rollouts, asks for the second one while there is none, and makes it again.
func (u *suite) accessMadeAgain(ctx context.Context, t *testing.T) {
	before := u.identities(ctx, t)
	first := file(app+"/access", "before\n")
	require.NoError(t, u.SetFiles(ctx, first))
	u.rollOut(ctx, t, before)
	u.everywhere(ctx, t, first)

	var access refitv1.NodeAccess
	require.NoError(t, u.Client.Get(ctx, client.ObjectKey{Namespace: u.Cluster.Namespace, Name: system.AccessName}, &access))
	again := &refitv1.NodeAccess{ObjectMeta: metav1.ObjectMeta{Namespace: access.Namespace, Name: access.Name, Labels: access.Labels}, Spec: access.Spec}
	require.NoError(t, u.Client.Delete(ctx, &access))
	made := false
	t.Cleanup(func() { // whatever fails, the scenarios that come after this one need it
		if !made {
			require.NoError(t, u.Client.Create(context.WithoutCancel(ctx), again))
		}
	})
	second := file(app+"/access", "after\n")
	require.NoError(t, u.SetFiles(ctx, second))
	for _, kind := range []string{"KubeadmControlPlane", "MachineDeployment"} {
		u.awaitPending(ctx, t, u.Cluster, kind, func(p *refitv1.PendingChange) bool {
			c := meta.FindStatusCondition(p.Status.Conditions, refitv1.ChangePendingCondition)
			return c != nil && c.Reason == string(refitv1.PendingUnknown) && strings.Contains(c.Message, "nothing is decided")
		})
	}
	require.Equal(t, before, u.identities(ctx, t), "nothing is replaced while there is none")

	require.NoError(t, u.Client.Create(ctx, again))
	made = true
	u.rollOut(ctx, t, before)
	u.everywhere(ctx, t, second)
	for _, name := range u.machines(ctx, t) {
		mu, err := u.Update(ctx, name)
		require.NoError(t, err)
		require.True(t, system.Succeeded(mu))
	}
}

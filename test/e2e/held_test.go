//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	capiconditions "sigs.k8s.io/cluster-api/util/conditions"
)

// heldIsNotScaledDown has Cluster API scale down to the Machine that somebody holds: it waits for the release.
func (u *suite) heldIsNotScaledDown(ctx context.Context, t *testing.T) {
	before, workload := u.identities(ctx, t), u.workload(ctx, t)
	all := u.workers(ctx, t)
	name := all[0]
	deployment := u.machine(ctx, t, name).Labels[clusterv1.MachineDeploymentNameLabel]
	node := u.nodeOf(ctx, t, name)
	t.Log(u.refit(ctx, t, "hold", name, "--reason", "disk swap"))
	var n corev1.Node
	require.NoError(t, workload.Get(ctx, client.ObjectKey{Name: node}, &n))
	require.Equal(t, "true", n.Annotations["cluster-autoscaler.kubernetes.io/scale-down-disabled"])
	require.Equal(t, "true", n.Labels["remediation.medik8s.io/exclude-from-remediation"])
	m := u.machine(ctx, t, name)
	require.Contains(t, m.Annotations, clusterv1.MachineSkipRemediationAnnotation)

	first := m.DeepCopy()
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, clusterv1.DeleteMachineAnnotation, "")
	require.NoError(t, u.Client.Patch(ctx, m, client.MergeFrom(first)))
	require.Contains(t, u.scaleWorkers(ctx, t, deployment, int32(len(all)-1), "disk swap"), name+" by ")
	eventually(ctx, t, func(ctx context.Context) error {
		m := &clusterv1.Machine{}
		if err := u.Client.Get(ctx, client.ObjectKeyFromObject(first), m); err != nil {
			return err
		}
		if c := capiconditions.Get(m, clusterv1.MachineDeletingCondition); c == nil || c.Reason != clusterv1.MachineDeletingWaitingForPreDrainHookReason {
			return fmt.Errorf("its deletion is not waiting: %+v", c)
		}
		return nil
	})
	require.NoError(t, workload.Get(ctx, client.ObjectKey{Name: node}, &n))
	require.True(t, n.DeletionTimestamp.IsZero())
	require.False(t, n.Spec.Unschedulable, "it is not drained")

	t.Log(u.refit(ctx, t, "release", name))
	eventually(ctx, t, func(ctx context.Context) error {
		if err := u.Client.Get(ctx, client.ObjectKeyFromObject(first), &clusterv1.Machine{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the Machine is not gone: %w", err)
		}
		return nil
	})
	u.scaleWorkers(ctx, t, deployment, int32(len(all)), "")
	require.NoError(t, u.Cluster.WaitForRollout(ctx))
	after := u.identities(ctx, t)
	require.NotContains(t, after, name)
	require.Len(t, after, len(before))
	u.nothingLeft(ctx, t, workload)
}

// scaleWorkers changes how many workers there are, as soon as it is noted at the MachineDeployment what is held, and returns what the API
// server warns of.
func (u *suite) scaleWorkers(ctx context.Context, t *testing.T, deployment string, replicas int32, noted string) string {
	t.Helper()
	key := client.ObjectKey{Namespace: u.Cluster.Namespace, Name: deployment}
	md := &clusterv1.MachineDeployment{}
	eventually(ctx, t, func(ctx context.Context) error {
		err := u.Client.Get(ctx, key, md)
		if note := md.Annotations["capi-refit.dev/held"]; err == nil && ((note != "") != (noted != "") || !strings.Contains(note, noted)) {
			err = fmt.Errorf("it is noted that %q", note)
		}
		return err
	})
	before := md.DeepCopy()
	md.Spec.Replicas = ptr.To(replicas)
	told, err := u.patch(ctx, t, md, before)
	require.NoError(t, err)
	return told
}

// patch writes what an object differs in from what it was, and returns what the API server warns of.
func (u *suite) patch(ctx context.Context, t *testing.T, o, before client.Object, opts ...client.PatchOption) (string, error) {
	t.Helper()
	return u.hear(t, func(c client.Client) error { return c.Patch(ctx, o, client.MergeFrom(before), opts...) })
}

// createAndHear creates an object, and returns what the API server warns of.
func (u *suite) createAndHear(ctx context.Context, t *testing.T, o client.Object, opts ...client.CreateOption) (string, error) {
	t.Helper()
	return u.hear(t, func(c client.Client) error { return c.Create(ctx, o, opts...) })
}

// hear returns what the API server warns of while something is written.
func (u *suite) hear(t *testing.T, write func(client.Client) error) (string, error) {
	t.Helper()
	var told warnings
	config := rest.CopyConfig(u.Lab.Config)
	config.WarningHandler = &told
	admin, err := client.New(config, client.Options{Scheme: u.Client.Scheme()})
	require.NoError(t, err)
	err = write(admin)
	return strings.Join(told, "\n"), err
}

//go:build e2e

package e2e

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
	"github.com/capi-refit/refit/test/system"
)

// bootImages are the scenarios of images that move on, for a provider that allows it. They make machines of their own.
var bootImages = []scenario{
	{"the image of a MachineDeployment moves on and every machine stays, where the provider allows it", (*suite).imageMovesOn},
}

// forbiddenImages comes last, since a template is not changed back.
var forbiddenImages = []scenario{
	{"what an operator names an image moves on, and an image that the provider forbids to change is refused before anything is committed", (*suite).imageForbidden},
}

// bootImagePolicy has the images of the cluster's workers move on as long as the test runs.
func (u *suite) bootImagePolicy(ctx context.Context, t *testing.T, kinds ...refitv1.BootImageKind) *refitv1.BootImagePolicy {
	t.Helper()
	p := &refitv1.BootImagePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: u.Cluster.Namespace, Name: "e2e"}}
	p.Spec.Selector.Roles = []refitv1.Role{refitv1.WorkerRole}
	p.Spec.Selection.Mode = refitv1.AllBootImages
	p.Spec.Kinds = kinds
	require.NoError(t, u.Client.Create(ctx, p))
	t.Cleanup(func() { require.NoError(t, u.Client.Delete(context.WithoutCancel(ctx), p)) })
	require.NoError(t, poll(ctx, 200*time.Millisecond, func(ctx context.Context) (bool, error) {
		err := u.Client.Get(ctx, client.ObjectKeyFromObject(p), p)
		return p.Status.ObservedGeneration == p.Generation && meta.IsStatusConditionTrue(p.Status.Conditions, refitv1.ReadyCondition), err
	}), "the policy is not Ready")
	read()
	return p
}

// imageMovesOn rotates the image of a MachineDeployment whose provider allows it. That is a stand-in, because none that runs without
// servers allows it; all else is genuine.
func (u *suite) imageMovesOn(ctx context.Context, t *testing.T) {
	const older, newer = "http://images.example.org/debian-12.7.0.qcow2", "http://images.example.org/debian-12.8.0.qcow2"
	g := &golden{suite: u, policy: client.ObjectKeyFromObject(u.bootImagePolicy(ctx, t)), version: u.machine(ctx, t, u.workers(ctx, t)[0]).Spec.Version}
	g.publish(ctx, t) // early, since refit waits with what is new
	provider := u.startMetal3(ctx, t)
	deployment := u.Cluster.Name + "-metal"
	provider.template(ctx, t, deployment+"-1", older)
	md := u.deployLike(ctx, t, deployment, deployment+"-1")
	before := u.rolledOutWith(ctx, t, provider, deployment, older)
	require.NoError(t, poll(ctx, 200*time.Millisecond, func(ctx context.Context) (bool, error) {
		recorded := 0
		for name := range before {
			if u.machine(ctx, t, name).Annotations[refitv1.BootedImageAnnotation] != "" {
				recorded++
			}
		}
		return recorded == len(before), nil
	}), "it is not recorded what the machines have booted from")
	sets := u.setsOf(ctx, t, deployment)

	provider.template(ctx, t, deployment+"-2", newer)
	patch := client.MergeFrom(md.DeepCopy())
	md.Spec.Template.Spec.InfrastructureRef.Name = deployment + "-2"
	require.NoError(t, u.Client.Patch(ctx, md, patch))
	after := u.rolledOutWith(ctx, t, provider, deployment, newer)
	require.Equal(t, before, after, "every machine was kept")
	for name, set := range u.setsOf(ctx, t, deployment) {
		require.NotEqual(t, sets[name], set, "it was Cluster API that moved %s", name)
	}
	g.asked = u.onlyAsked(ctx, t, after, older)

	g.provider, g.deployment, g.machines, g.booted = provider, client.ObjectKeyFromObject(md), after, older
	g.own, g.image = md.Spec.Template.Spec.InfrastructureRef.Name, newer
	if !t.Run("and then it follows the golden image", func(t *testing.T) { g.followsGolden(ctx, t) }) {
		return
	}

	require.NoError(t, u.Client.Delete(ctx, md))
	require.NoError(t, poll(ctx, time.Second, func(ctx context.Context) (bool, error) {
		left, err := u.of(ctx, deployment)
		return err == nil && len(left) == 0, nil
	}), "the machines do not go")
}

// onlyAsked demands that Cluster API has asked refit for machines, that nothing was done on them, and that it is still known from which
// image they have booted. It returns the digests of what was asked for, by the machines' names.
func (u *suite) onlyAsked(ctx context.Context, t *testing.T, machines map[string]string, booted string) map[string]string {
	t.Helper()
	asked := map[string]string{}
	for name := range machines {
		mu, err := u.Update(ctx, name)
		require.NoError(t, err)
		require.NotNil(t, mu, "Cluster API has asked refit for %s", name)
		require.True(t, system.Succeeded(mu), "%s: %s", name, mu.Status.Message)
		require.Empty(t, mu.Status.Changes, "nothing was done on the node")
		require.Empty(t, mu.Status.Actions)
		require.Nil(t, mu.Status.Drain)
		require.Contains(t, u.machine(ctx, t, name).Annotations[refitv1.BootedImageAnnotation], booted, "%s has booted from the older one", name)
		asked[name] = mu.Spec.Digest
	}
	return asked
}

// deployLike makes a MachineDeployment of two machines like the workers, with another infrastructure.
func (u *suite) deployLike(ctx context.Context, t *testing.T, name, template string) *clusterv1.MachineDeployment {
	t.Helper()
	var workers clusterv1.MachineDeployment
	key := client.ObjectKey{Namespace: u.Cluster.Namespace, Name: u.machine(ctx, t, u.workers(ctx, t)[0]).Labels[clusterv1.MachineDeploymentNameLabel]}
	require.NoError(t, u.Client.Get(ctx, key, &workers))
	md := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: name}, Spec: *workers.Spec.DeepCopy()}
	md.Spec.Replicas = ptr.To[int32](2)
	md.Spec.Selector, md.Spec.Template.ObjectMeta = metav1.LabelSelector{}, clusterv1.ObjectMeta{}
	md.Spec.Template.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: metalVersion.Group, Kind: metalTemplate, Name: template,
	}
	require.NoError(t, u.Client.Create(ctx, md))
	return md
}

// setsOf are the names of the MachineSets that the Machines of a MachineDeployment are of, by the Machines' names.
func (u *suite) setsOf(ctx context.Context, t *testing.T, deployment string) map[string]string {
	t.Helper()
	machines, err := u.of(ctx, deployment)
	require.NoError(t, err)
	require.NotEmpty(t, machines)
	out := map[string]string{}
	for _, m := range machines {
		out[m.Name] = m.Labels[clusterv1.MachineSetNameLabel]
	}
	return out
}

// of are the Machines of a MachineDeployment.
func (u *suite) of(ctx context.Context, deployment string) ([]clusterv1.Machine, error) {
	var list clusterv1.MachineList
	err := u.Client.List(ctx, &list, client.InNamespace(u.Cluster.Namespace), client.MatchingLabels{clusterv1.MachineDeploymentNameLabel: deployment})
	return list.Items, err
}

// rolledOutWith waits until both machines of a MachineDeployment are up to date and name an image. It returns their uids by name.
func (u *suite) rolledOutWith(ctx context.Context, t *testing.T, provider *metal3, deployment, image string) map[string]string {
	t.Helper()
	uids, last := map[string]string{}, map[string]string{}
	err := poll(ctx, 500*time.Millisecond, func(ctx context.Context) (bool, error) {
		machines, err := u.of(ctx, deployment)
		if err != nil {
			return false, err
		}
		if last, err = provider.images(ctx); err != nil {
			return false, err
		}
		clear(uids)
		for _, m := range machines {
			_, updating := m.Annotations[clusterv1.UpdateInProgressAnnotation]
			if !updating && last[m.Spec.InfrastructureRef.Name] == image &&
				meta.IsStatusConditionTrue(m.Status.Conditions, clusterv1.MachineAvailableCondition) &&
				meta.IsStatusConditionTrue(m.Status.Conditions, clusterv1.MachineUpToDateCondition) {
				uids[m.Name] = string(m.UID)
			}
		}
		return len(uids) == 2 && len(machines) == 2, nil
	})
	require.NoError(t, err, "the machines of %s do not have image %s; they name %v", deployment, image, last)
	return uids
}

// imageForbidden changes fields of DevMachines that say what new machines have. Of these the provider lets one change, which is no image
// until an operator says so, and forbids the other.
func (u *suite) imageForbidden(ctx context.Context, t *testing.T) {
	before := u.identities(ctx, t)
	u.bootImagePolicy(ctx, t, refitv1.BootImageKind{
		Group: metalVersion.Group, Kind: "DevMachine", Paths: []string{"backend.docker.preLoadImages"},
	})
	u.changeInfrastructure(ctx, t, []any{"example.org/app:1"}, "spec", "template", "spec", "backend", "docker", "preLoadImages")
	u.rollOut(ctx, t, before)

	sets := u.machineSets(ctx, t)
	policy := u.policy(ctx, t, "keeps", refitv1.ChangeManagementPolicySpec{
		Policy: schedule.Policy{Strategy: schedule.PermissiveStrategy}, Replacement: refitv1.ForbidReplacement,
	})
	read()
	u.changeInfrastructure(ctx, t, "example.org/node:2", "spec", "template", "spec", "backend", "docker", "customImage")
	u.withheld(ctx, t, "policy keeps forbids the replacement")
	u.withheld(ctx, t, "the provider's webhook does not let backend.docker.customImage of a running DevMachine change")
	u.withheld(ctx, t, "leave the image out of the template")
	time.Sleep(8 * time.Second) // Cluster API asks again, and gets the same answer
	require.Equal(t, before, u.identities(ctx, t))
	require.Subset(t, sets, u.machineSets(ctx, t), "no MachineSet was planned")
	for _, name := range u.workers(ctx, t) {
		require.NotContains(t, u.machine(ctx, t, name).Annotations, clusterv1.UpdateInProgressAnnotation, "nothing was committed")
	}

	// Without the policy Cluster API does what it does by itself.
	require.NoError(t, u.Client.Delete(ctx, policy))
	require.NoError(t, u.Cluster.WaitForRollout(ctx))
	after := u.identities(ctx, t)
	require.Len(t, after, len(before))
	for _, name := range u.workers(ctx, t) {
		require.NotContains(t, slices.Collect(maps.Keys(before)), name, "Cluster API has replaced the workers")
	}
}

// changeInfrastructure points the workers at a new template of their infrastructure, which differs from the one before in a field.
func (u *suite) changeInfrastructure(ctx context.Context, t *testing.T, value any, field ...string) {
	t.Helper()
	require.NoError(t, u.Cluster.ChangeWorkers(ctx, func(md *clusterv1.MachineDeployment, _ *bootstrapv1.KubeadmConfigSpec) {
		ref := &md.Spec.Template.Spec.InfrastructureRef
		old := &unstructured.Unstructured{}
		old.SetGroupVersionKind(metalVersion.WithKind(ref.Kind)) // the same group and version
		require.NoError(t, u.Client.Get(ctx, client.ObjectKey{Namespace: md.Namespace, Name: ref.Name}, old))
		next := &unstructured.Unstructured{Object: map[string]any{"spec": old.Object["spec"]}}
		next.SetGroupVersionKind(old.GroupVersionKind())
		next.SetNamespace(md.Namespace)
		next.SetGenerateName(u.Cluster.Name + "-workers-")
		require.NoError(t, unstructured.SetNestedField(next.Object, value, field...))
		require.NoError(t, u.Client.Create(ctx, next))
		ref.Name = next.GetName()
	}))
}

//go:build e2e

package e2e

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// golden is a MachineDeployment whose template a policy keeps at a golden image.
type golden struct {
	*suite
	policy client.ObjectKey
	// version is that of Kubernetes on its machines.
	version string
	// configMap says what is golden.
	configMap *corev1.ConfigMap

	provider   *metal3
	deployment client.ObjectKey
	// own is the template that people made for it, and image what that one names.
	own, image string
	// machines are the uids of its machines by their names: they stay.
	machines map[string]string
	// booted is the image from which they have booted.
	booted string
	// asked are the digests of what Cluster API has asked refit for last, by the machines' names.
	asked map[string]string
}

// told waits for an Event about an object.
func (g *golden) told(ctx context.Context, t *testing.T, reason, about string) {
	t.Helper()
	g.event(ctx, t, reason, func(e *corev1.Event) bool { return e.InvolvedObject.Name == about })
}

func (g *golden) read(ctx context.Context, t *testing.T) *clusterv1.MachineDeployment {
	t.Helper()
	var md clusterv1.MachineDeployment
	require.NoError(t, g.Client.Get(ctx, g.deployment, &md))
	return &md
}

func (g *golden) change(ctx context.Context, t *testing.T, edit func(*clusterv1.MachineDeployment)) {
	t.Helper()
	md := g.read(ctx, t)
	patch := client.MergeFrom(md.DeepCopy())
	edit(md)
	require.NoError(t, g.Client.Patch(ctx, md, patch))
}

func (g *golden) changePolicy(ctx context.Context, t *testing.T, edit func(*refitv1.BootImagePolicySpec)) {
	t.Helper()
	var p refitv1.BootImagePolicy
	require.NoError(t, g.Client.Get(ctx, g.policy, &p))
	patch := client.MergeFrom(p.DeepCopy())
	edit(&p.Spec)
	require.NoError(t, g.Client.Patch(ctx, &p, patch))
}

func (g *golden) refersTo(ctx context.Context, t *testing.T) string {
	t.Helper()
	return g.read(ctx, t).Spec.Template.Spec.InfrastructureRef.Name
}

// refer has the MachineDeployment refer to a template.
func (g *golden) refer(ctx context.Context, t *testing.T, template string) {
	t.Helper()
	g.change(ctx, t, func(md *clusterv1.MachineDeployment) { md.Spec.Template.Spec.InfrastructureRef.Name = template })
}

// allow returns how many machines may be unavailable, and how many there may be more.
func allow(unavailable, surge int32) func(*clusterv1.MachineDeployment) {
	return func(md *clusterv1.MachineDeployment) {
		update := &md.Spec.Rollout.Strategy.RollingUpdate
		update.MaxUnavailable, update.MaxSurge = ptr.To(intstr.FromInt32(unavailable)), ptr.To(intstr.FromInt32(surge))
	}
}

// templates are the names of all templates.
func (g *golden) templates(ctx context.Context, t *testing.T) []string {
	t.Helper()
	list, err := g.provider.list(ctx, metalTemplate)
	require.NoError(t, err)
	var names []string
	for _, o := range list {
		names = append(names, o.GetName())
	}
	return names
}

func (g *golden) template(ctx context.Context, t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(metalVersion.WithKind(metalTemplate))
	require.NoError(t, g.Client.Get(ctx, client.ObjectKey{Namespace: g.deployment.Namespace, Name: name}, o))
	return o
}

// changeOwners changes the owners of the template of people.
func (g *golden) changeOwners(ctx context.Context, t *testing.T, edit func([]metav1.OwnerReference) []metav1.OwnerReference) {
	t.Helper()
	o := g.template(ctx, t, g.own)
	patch := client.MergeFrom(o.DeepCopy())
	o.SetOwnerReferences(edit(o.GetOwnerReferences()))
	require.NoError(t, g.Client.Patch(ctx, o, patch))
}

package lab

import (
	"context"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SetControlPlaneFiles replaces the files of the control plane's machines.
func (c *Cluster) SetControlPlaneFiles(ctx context.Context, files ...bootstrapv1.File) error {
	return c.ChangeControlPlane(ctx, func(kcp *controlplanev1.KubeadmControlPlane) {
		kcp.Spec.KubeadmConfigSpec.Files = files
	})
}

// SetWorkerFiles replaces the files of the workers.
func (c *Cluster) SetWorkerFiles(ctx context.Context, files ...bootstrapv1.File) error {
	return c.ChangeWorkers(ctx, func(_ *clusterv1.MachineDeployment, config *bootstrapv1.KubeadmConfigSpec) {
		config.Files = files
	})
}

// ChangeControlPlane lets change edit the KubeadmControlPlane, and stores what it has changed. What a topology's templates say, the
// topology puts back.
func (c *Cluster) ChangeControlPlane(ctx context.Context, change func(*controlplanev1.KubeadmControlPlane)) error {
	kcp := &controlplanev1.KubeadmControlPlane{}
	if err := c.lab.Client.Get(ctx, c.controlPlaneKey(), kcp); err != nil {
		return fmt.Errorf("reading the control plane of %s: %w", c, err)
	}
	before := kcp.DeepCopy()
	change(kcp)
	// Nobody else changes its spec, and its controller changes the rest all the time.
	if err := c.lab.Client.Patch(ctx, kcp, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("changing the control plane of %s: %w", c, err)
	}
	return nil
}

// ChangeWorkers lets change edit the MachineDeployment and the configuration of its machines, and stores what it has changed. A
// changed configuration goes into a new template, at which the MachineDeployment then points: the old MachineSet goes on
// using the old one. What a topology's templates say, the topology puts back.
func (c *Cluster) ChangeWorkers(
	ctx context.Context, change func(*clusterv1.MachineDeployment, *bootstrapv1.KubeadmConfigSpec),
) error {
	deployment := &clusterv1.MachineDeployment{}
	if err := c.lab.Client.Get(ctx, c.workersKey(), deployment); err != nil {
		return fmt.Errorf("reading the workers of %s: %w", c, err)
	}
	before := deployment.DeepCopy()
	ref := &deployment.Spec.Template.Spec.Bootstrap.ConfigRef
	template := &bootstrapv1.KubeadmConfigTemplate{}
	if err := c.lab.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: ref.Name}, template); err != nil {
		return fmt.Errorf("reading the configuration of the workers of %s: %w", c, err)
	}
	config := template.Spec.Template.Spec.DeepCopy()
	change(deployment, config)
	if !reflect.DeepEqual(config, &template.Spec.Template.Spec) {
		next, err := c.createTemplate(ctx, template, config)
		if err != nil {
			return err
		}
		ref.Name = next
	}
	// Nobody else changes its spec, and its controller changes the rest all the time.
	if err := c.lab.Client.Patch(ctx, deployment, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("changing the workers of %s: %w", c, err)
	}
	return nil
}

// createTemplate creates a template that differs from the old one in config, and returns its name.
func (c *Cluster) createTemplate(
	ctx context.Context, old *bootstrapv1.KubeadmConfigTemplate, config *bootstrapv1.KubeadmConfigSpec,
) (string, error) {
	next := &bootstrapv1.KubeadmConfigTemplate{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:    c.Namespace,
			GenerateName: c.workersKey().Name + "-",
			Labels:       old.Labels,
		},
		Spec: *old.Spec.DeepCopy(),
	}
	next.Spec.Template.Spec = *config
	if err := c.lab.Client.Create(ctx, next); err != nil {
		return "", fmt.Errorf("creating a template: %w", err)
	}
	return next.Name, nil
}

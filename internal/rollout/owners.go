package rollout

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// SameMachines reports whether two versions of an owner make the same machines, so that Cluster API rolls none out for the difference. What its templates
// say is not looked at: Cluster API goes by their names.
func SameMachines(ctx context.Context, from, to *unstructured.Unstructured) (bool, error) {
	reasons, err := Reasons(ctx, from, to)
	return err == nil && len(reasons) == 0, err
}

// Reasons returns the fields for which Cluster API rolls the machines of an owner out when it becomes the other version: of a MachineDeployment, a
// KubeadmControlPlane, or a Cluster with a topology. It names fields and no values. Labels, timeouts, and all else that Cluster API writes to machines
// that run are no reason.
func Reasons(ctx context.Context, from, to *unstructured.Unstructured) ([]string, error) {
	if from.GetKind() != to.GetKind() {
		return nil, fmt.Errorf("a %s is no %s", from.GetKind(), to.GetKind())
	}
	switch from.GetKind() {
	case "MachineDeployment":
		return deploymentReasons(from, to)
	case "KubeadmControlPlane":
		return controlPlaneReasons(ctx, from, to)
	case "Cluster":
		return topologyReasons(from, to)
	default:
		return nil, fmt.Errorf("refit can't tell what a %s makes", from.GetKind())
	}
}

func read[T any](o *unstructured.Unstructured) (*T, error) {
	var out T
	object := map[string]any{"spec": o.Object["spec"]}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &out); err != nil {
		return nil, fmt.Errorf("%s %s/%s can't be read: %w", o.GetKind(), o.GetNamespace(), o.GetName(), err)
	}
	return &out, nil
}

// reasons collects the fields that differ.
type reasons []string

func (r *reasons) differ(field string, a, b any) {
	if !reflect.DeepEqual(a, b) {
		*r = append(*r, field)
	}
}

func deploymentReasons(from, to *unstructured.Unstructured) ([]string, error) {
	a, err := read[clusterv1.MachineDeployment](from)
	if err != nil {
		return nil, err
	}
	b, err := read[clusterv1.MachineDeployment](to)
	if err != nil {
		return nil, err
	}
	now, wanted := a.Spec.Template.Spec, b.Spec.Template.Spec
	var out reasons
	out.differ("spec.template.spec.version", now.Version, wanted.Version)
	out.differ("spec.template.spec.bootstrap", now.Bootstrap, wanted.Bootstrap)
	out.differ("spec.template.spec.infrastructureRef", now.InfrastructureRef, wanted.InfrastructureRef)
	out.differ("spec.template.spec.failureDomain", now.FailureDomain, wanted.FailureDomain)
	return out, nil
}

func controlPlaneReasons(ctx context.Context, from, to *unstructured.Unstructured) ([]string, error) {
	a, err := controlPlaneOf(from, false)
	if err != nil {
		return nil, err
	}
	b, err := controlPlaneOf(to, false)
	if err != nil {
		return nil, err
	}
	var out reasons
	out.differ("spec.version", a.Spec.Version, b.Spec.Version)
	out.differ("spec.machineTemplate.spec.infrastructureRef", a.Spec.MachineTemplate.Spec.InfrastructureRef, b.Spec.MachineTemplate.Spec.InfrastructureRef)
	now, err := ConfigOf(from, "", "")
	if err != nil {
		return nil, err
	}
	wanted, err := ConfigOf(to, "", "")
	if err != nil {
		return nil, err
	}
	change, _, err := CompareConfigs(ctx, now, wanted)
	for _, f := range change.Fields {
		field := "spec.kubeadmConfigSpec" + f.Path.String()
		if !slices.Contains(out, field) {
			out = append(out, field)
		}
	}
	return out, err
}

// InitReasons returns the fields of a KubeadmControlPlane that differ in what the machine has that the cluster was initialized with, and no other: for these
// Cluster API rolls that one out, unless it has been updated to what machines that join have. Of other owners there are none.
func InitReasons(ctx context.Context, from, to *unstructured.Unstructured) ([]string, error) {
	if from.GetKind() != "KubeadmControlPlane" {
		return nil, nil
	}
	now, err := config(from, "", "", false)
	if err != nil {
		return nil, err
	}
	wanted, err := config(to, "", "", false)
	if err != nil {
		return nil, err
	}
	change, _, err := CompareConfigs(ctx, now, wanted)
	var out []string
	for _, f := range change.Fields {
		out = append(out, "spec.kubeadmConfigSpec"+f.Path.String())
	}
	return out, err
}

// topologyReasons are the fields of a topology of which others are made: what comes of them is the ClusterClass's to say.
func topologyReasons(from, to *unstructured.Unstructured) ([]string, error) {
	a, err := read[clusterv1.Cluster](from)
	if err != nil {
		return nil, err
	}
	b, err := read[clusterv1.Cluster](to)
	if err != nil {
		return nil, err
	}
	now, wanted := a.Spec.Topology, b.Spec.Topology
	var out reasons
	out.differ("spec.topology.classRef", now.ClassRef, wanted.ClassRef)
	out.differ("spec.topology.version", now.Version, wanted.Version)
	out.differ("spec.topology.variables", now.Variables, wanted.Variables)
	out.differ("spec.topology.controlPlane.variables", now.ControlPlane.Variables, wanted.ControlPlane.Variables)
	before := map[string]clusterv1.MachineDeploymentTopology{}
	for _, md := range now.Workers.MachineDeployments {
		before[md.Name] = md
	}
	for _, md := range wanted.Workers.MachineDeployments {
		was, ok := before[md.Name]
		if !ok {
			continue // it makes machines, and changes none
		}
		field := fmt.Sprintf("spec.topology.workers.machineDeployments[name=%q]", md.Name)
		out.differ(field+".class", was.Class, md.Class)
		out.differ(field+".failureDomain", was.FailureDomain, md.FailureDomain)
		out.differ(field+".variables", was.Variables, md.Variables)
	}
	return out, nil
}

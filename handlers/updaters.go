package handlers

import (
	"context"
	"strings"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/runtime/schema"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/updaters"
)

// Updaters are those that judge changes of a machine. Which they are, and what they let change, can depend on the machine.
type Updaters interface {
	// For returns the updaters for a machine. It is asked for each request, so it answers from what it knows. An error has
	// Cluster API ask again; it is never a "no".
	For(ctx context.Context, s Subject) (*updaters.Registry, error)
}

// UpdatersFunc is a function that returns the updaters for a machine.
type UpdatersFunc func(ctx context.Context, s Subject) (*updaters.Registry, error)

// For implements Updaters.
func (f UpdatersFunc) For(ctx context.Context, s Subject) (*updaters.Registry, error) {
	return f(ctx, s)
}

// Always returns the same updaters for every machine.
func Always(registry *updaters.Registry) Updaters {
	return UpdatersFunc(func(context.Context, Subject) (*updaters.Registry, error) { return registry, nil })
}

// Subject is the Machine that a request is about; of a MachineSet, what all of its Machines have.
type Subject struct {
	Namespace, Cluster string
	// Labels are those of the Machine, or those that the MachineSet gives to its Machines.
	Labels map[string]string
	// Bootstrap is what bootstraps the machine, such as a KubeadmConfig also of a MachineSet. It is empty if it is not known.
	Bootstrap schema.GroupKind
}

// MadeByKubeadm says whether a machine is made out of a KubeadmConfig.
func (s Subject) MadeByKubeadm() bool {
	return s.Bootstrap == bootstrapv1.GroupVersion.WithKind("KubeadmConfig").GroupKind()
}

// bootstrapOf returns what kind a bootstrap config is; of a template, what is made from it.
func bootstrapOf(config object) schema.GroupKind {
	if config.raw == "" {
		return schema.GroupKind{}
	}
	return schema.FromAPIVersionAndKind(config.apiVersion, strings.TrimSuffix(config.kind, "Template")).GroupKind()
}

// subjectOf reads the Subject out of a Machine or, if template, out of a MachineSet.
func subjectOf(machine object, template bool) (Subject, error) {
	s := Subject{Namespace: machine.namespace}
	labels, cluster := "metadata.labels", "spec.clusterName"
	if template {
		labels, cluster = "spec.template.metadata.labels", "spec.template.spec.clusterName"
	}
	s.Cluster = gjson.Get(machine.raw, cluster).Str
	if found := gjson.Get(machine.raw, labels); found.Type != gjson.Null {
		valid := found.IsObject()
		s.Labels = map[string]string{}
		found.ForEach(func(key, value gjson.Result) bool {
			valid = valid && value.Type == gjson.String
			s.Labels[key.Str] = value.Str
			return valid
		})
		if !valid {
			return s, &RequestError{Field: "the machine's labels", Problem: "can't be read"}
		}
	}
	if s.Cluster == "" {
		s.Cluster = s.Labels[clusterv1.ClusterNameLabel]
	}
	return s, nil
}

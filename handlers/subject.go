package handlers

import (
	"strings"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/runtime/schema"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/inplace"
)

// bootstrapOf returns what kind a bootstrap config is; of a template, what is made from it.
func bootstrapOf(config object) schema.GroupKind {
	if config.raw == "" {
		return schema.GroupKind{}
	}
	return schema.FromAPIVersionAndKind(config.apiVersion, strings.TrimSuffix(config.kind, "Template")).GroupKind()
}

// subjectOf reads the Subject out of a Machine or, if template, out of a MachineSet.
func subjectOf(machine object, template bool) (inplace.Subject, error) {
	s := inplace.Subject{Namespace: machine.namespace}
	labels, cluster, version := "metadata.labels", "spec.clusterName", "spec.version"
	if template {
		labels, cluster, version = "spec.template.metadata.labels", "spec.template.spec.clusterName", "spec.template.spec.version"
	}
	s.Cluster, s.Version = gjson.Get(machine.raw, cluster).Str, gjson.Get(machine.raw, version).Str
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

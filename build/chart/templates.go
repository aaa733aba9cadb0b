package main

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/capi-refit/refit/build/manifests"
)

const header = "{{- /* Made by make chart, out of config/: change it there. */}}\n"

// templates returns the chart's templates, by name.
func templates(config string) (map[string][]byte, error) {
	base, err := manifests.Build(config, "default")
	if err != nil {
		return nil, err
	}
	var deployment string
	if deployment, err = deploymentOf(config, base["deployment-refit"]); err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for name, o := range base {
		var text string
		switch o.GetKind() {
		case "Namespace": // Helm makes it, or whoever runs Helm has
			continue
		case "Deployment":
			text = deployment
		default:
			if text, err = manifest(o); err != nil {
				return nil, err
			}
		}
		files[name+".yaml"] = []byte(header + when(condition(o.GetKind()), text))
	}
	for _, part := range []struct {
		of, condition string
		components    []string
		kinds         []string
	}{
		{"prometheus", ".Values.prometheus.serviceMonitor.enabled", nil, []string{"Service", "ServiceMonitor"}},
		{"prometheus", ".Values.prometheus.rules.enabled", nil, []string{"PrometheusRule"}},
		{"default", ".Values.watchSecrets.enabled", []string{"watch-secrets"}, []string{"ClusterRole", "ClusterRoleBinding"}},
	} {
		objects, err := manifests.Build(config, part.of, part.components...)
		if err != nil {
			return nil, err
		}
		for name, o := range objects {
			if _, known := base[name]; known || !isOneOf(o.GetKind(), part.kinds) {
				continue
			}
			text, err := manifest(o)
			if err != nil {
				return nil, err
			}
			files[name+".yaml"] = []byte(header + when(part.condition, text))
		}
	}
	return files, nil
}

func isOneOf(kind string, kinds []string) bool {
	for _, k := range kinds {
		if k == kind {
			return true
		}
	}
	return false
}

// condition returns the value that has objects of a kind installed; empty if nothing keeps them out.
func condition(kind string) string {
	switch kind {
	case "CustomResourceDefinition":
		return ".Values.crds.enabled"
	case "NetworkPolicy":
		return ".Values.networkPolicy.enabled"
	case "ExtensionConfig":
		return ".Values.extensionConfig.enabled"
	case "PodDisruptionBudget":
		return "gt (int .Values.replicas) 1"
	default:
		return ""
	}
}

func when(condition, text string) string {
	if condition == "" {
		return text
	}
	return fmt.Sprintf("{{- if %s }}\n%s{{- end }}\n", condition, text)
}

// What is in a manifest where a template has something else.
const (
	keepKey        = "capi-refit.dev/chart-keep"
	namespaceLabel = "capi-refit.dev/chart-selector"
)

// manifest returns an object as a template.
func manifest(o *unstructured.Unstructured) (string, error) {
	o = o.DeepCopy()
	switch o.GetKind() {
	case "CustomResourceDefinition":
		annotations := o.GetAnnotations()
		annotations[keepKey] = "true"
		o.SetAnnotations(annotations)
	case "ExtensionConfig":
		selector := map[string]any{namespaceLabel: "true"}
		if err := unstructured.SetNestedMap(o.Object, selector, "spec", "namespaceSelector"); err != nil {
			return "", err
		}
	}
	text, err := asTemplate(o)
	if err != nil {
		return "", err
	}
	text = strings.ReplaceAll(text, `    `+keepKey+`: "true"`+"\n",
		"    {{- if .Values.crds.keep }}\n    helm.sh/resource-policy: keep\n    {{- end }}\n")
	return strings.ReplaceAll(text, `    `+namespaceLabel+`: "true"`+"\n", "    {{- toYaml .Values.extensionConfig.namespaceSelector | nindent 4 }}\n"), nil
}

// asTemplate writes an object down. What would be an action of a template is text, and the namespace is that of the release.
func asTemplate(o *unstructured.Unstructured) (string, error) {
	data, err := yaml.Marshal(o.Object)
	if err != nil {
		return "", err
	}
	text := strings.ReplaceAll(string(data), "{{", `{{ "{{" }}`)
	return strings.ReplaceAll(text, manifests.Namespace, "{{ .Release.Namespace }}"), nil
}

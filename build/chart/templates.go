package main

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/capi-refit/refit/build/manifests"
)

const header = "{{- /* Made by make chart, out of config/: change it there. */}}\n"

// part is what of a kustomization the chart has beside config/default, where a value asks for it.
type part struct {
	of, condition string
	components    []string
	kinds         []string
}

var parts = []part{
	{"prometheus", ".Values.prometheus.serviceMonitor.enabled", nil, []string{"Service", "ServiceMonitor"}},
	{"prometheus", ".Values.prometheus.rules.enabled", nil, []string{"PrometheusRule"}},
	{"grafana", ".Values.grafana.dashboards.enabled", nil, []string{"ConfigMap"}},
	{"default", ".Values.watchSecrets.enabled", []string{"watch-secrets"}, []string{"ClusterRole", "ClusterRoleBinding"}},
	{"default", ".Values.guard.enabled", []string{"guard"}, []string{"ValidatingWebhookConfiguration"}},
	{"default", ".Values.ui.enabled", []string{"ui"}, []string{"Service", "ClusterRole", "ClusterRoleBinding"}},
}

// templates returns the chart's templates, by name.
func templates(config string) (map[string][]byte, error) {
	base, err := manifests.Build(config, "default")
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for name, o := range base {
		if o.GetKind() == "Namespace" { // Helm makes it, or whoever runs Helm has
			continue
		}
		text, err := textOf(config, o)
		if err != nil {
			return nil, err
		}
		files[name+".yaml"] = []byte(header + when(condition(o.GetKind()), text))
	}
	for _, p := range parts {
		if err := p.add(config, base, files); err != nil {
			return nil, err
		}
	}
	return files, nil
}

func textOf(config string, o *unstructured.Unstructured) (string, error) {
	if o.GetKind() == "Deployment" {
		return deploymentOf(config, o)
	}
	return manifest(o)
}

// add adds the templates of a part that are not in the chart yet.
func (p part) add(config string, base map[string]*unstructured.Unstructured, files map[string][]byte) error {
	objects, err := manifests.Build(config, p.of, p.components...)
	if err != nil {
		return err
	}
	for name, o := range objects {
		if _, known := base[name]; known || !slices.Contains(p.kinds, o.GetKind()) {
			continue
		}
		text, err := manifest(o)
		if err != nil {
			return err
		}
		files[name+".yaml"] = []byte(header + when(p.condition, text))
	}
	return nil
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

// namespaces is the selector of namespaces that values make: all of them, those that they select, or those with the label that config/ has.
const namespaces = `{{- $labelled := dict "matchLabels" (dict "capi-refit.dev/in-place-updates" "enabled") }}
    {{- if .Values.extensionConfig.allNamespaces }}
    {}
    {{- else }}
    {{- toYaml (.Values.extensionConfig.namespaceSelector | default $labelled) | nindent 4 }}
    {{- end }}`

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
	return strings.ReplaceAll(text, `    `+namespaceLabel+`: "true"`+"\n", "    "+namespaces+"\n"), nil
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

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/capi-refit/refit/build/manifests"
)

// component is what a component of config/ adds to the Deployment, where a value asks for it.
type component struct{ name, condition string }

var components = []component{
	{"mtls", ".Values.mtls.enabled"},
	{"watch-secrets", ".Values.watchSecrets.enabled"},
	{"guard", ".Values.guard.enabled"},
	{"ui", ".Values.ui.enabled"},
}

// lists of the container, or of the pod, that components add to, with how far their items are indented.
var lists = []struct {
	name   string
	indent int
	ofPod  bool
}{
	{"args", 8, false},
	{"volumeMounts", 8, false},
	{"volumes", 6, true},
}

// values are what the container has from values, by what stands for it.
var values = map[string]string{
	"image: chart-image": `image: "{{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}"
        imagePullPolicy: {{ .Values.image.pullPolicy }}`,
	"replicas: 424242":           "replicas: {{ .Values.replicas }}",
	"value: chart-gomemlimit":    "value: {{ .Values.goMemLimit | quote }}",
	"chart-resources: here":      "{{- toYaml (.Values.resources | default dict) | nindent 10 }}",
	"- key: chart-tolerations":   "{{- toYaml (.Values.tolerations | default list) | nindent 8 }}",
	"chart-node-selector: here":  "{{- toYaml (.Values.nodeSelector | default dict) | nindent 8 }}",
	"priorityClassName: chart-x": `priorityClassName: {{ .Values.priorityClassName | quote }}`,
}

// deploymentOf returns the Deployment as a template.
func deploymentOf(config string, base *unstructured.Unstructured) (string, error) {
	o := base.DeepCopy()
	if err := mark(o); err != nil {
		return "", err
	}
	text, err := asTemplate(o)
	if err != nil {
		return "", err
	}
	with, err := withEach(config, base)
	if err != nil {
		return "", err
	}
	for _, l := range lists {
		block, err := added(base, with, l.name, l.indent)
		if err != nil {
			return "", err
		}
		if l.name == "args" {
			block += "        {{- if gt (int .Values.shards) 1 }}\n        - --shards={{ .Values.shards }}\n        {{- end }}\n" +
				"        {{- with .Values.tracing.endpoint }}\n        - --tracing-endpoint={{ . }}\n" +
				"        - --tracing-sampling-ratio={{ $.Values.tracing.samplingRatio }}\n" +
				"        {{- if $.Values.tracing.insecure }}\n        - --tracing-insecure\n        {{- end }}\n        {{- end }}\n" +
				"        {{- with .Values.extraArgs }}\n        {{- toYaml . | nindent 8 }}\n        {{- end }}\n"
		}
		if text, err = manifests.ReplaceOnce(text, strings.Repeat(" ", l.indent)+"- chart-"+l.name+"\n", block); err != nil {
			return "", err
		}
	}
	for is, becomes := range values {
		if strings.HasPrefix(becomes, "{{-") { // it has line and indentation of its own
			is = strings.Repeat(" ", indentOf(text, is)) + is
		}
		if text, err = manifests.ReplaceOnce(text, is, becomes); err != nil {
			return "", err
		}
	}
	return text, nil
}

// withEach returns the Deployment as each of the components makes it.
func withEach(config string, base *unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	with := make([]*unstructured.Unstructured, len(components))
	for i, c := range components {
		objects, err := manifests.Build(config, "default", c.name)
		if err != nil {
			return nil, err
		}
		with[i] = objects[manifests.NameOf(base)]
	}
	return with, nil
}

// mark puts into the Deployment what stands for values, and for what components add.
func mark(o *unstructured.Unstructured) error {
	spec, container, err := podOf(o)
	if err != nil {
		return err
	}
	container["image"], container["resources"] = "chart-image", map[string]any{"chart-resources": "here"}
	spec["tolerations"] = []any{map[string]any{"key": "chart-tolerations"}}
	spec["nodeSelector"], spec["priorityClassName"] = map[string]any{"chart-node-selector": "here"}, "chart-x"
	env, _ := container["env"].([]any)
	for _, e := range env {
		if e, ok := e.(map[string]any); ok && e["name"] == "GOMEMLIMIT" {
			e["value"] = "chart-gomemlimit"
		}
	}
	for _, l := range lists {
		in := container
		if l.ofPod {
			in = spec
		}
		items, _ := in[l.name].([]any)
		in[l.name] = append(slices.Clone(items), "chart-"+l.name)
	}
	return unstructured.SetNestedField(o.Object, int64(424242), "spec", "replicas")
}

func indentOf(text, line string) int {
	before, _, _ := strings.Cut(text, line)
	return len(before) - strings.LastIndex(before, "\n") - 1
}

// podOf returns the spec of the pods, and of the first container.
func podOf(o *unstructured.Unstructured) (spec, container map[string]any, err error) {
	field, _, err := unstructured.NestedFieldNoCopy(o.Object, "spec", "template", "spec")
	spec, isMap := field.(map[string]any)
	if err != nil || !isMap {
		return nil, nil, errors.Join(errors.New("the Deployment has no pods"), err)
	}
	containers, _ := spec["containers"].([]any)
	if len(containers) != 1 {
		return nil, nil, fmt.Errorf("the Deployment has %d containers, and should have one", len(containers))
	}
	container, isMap = containers[0].(map[string]any)
	if !isMap {
		return nil, nil, errors.New("the container can't be read")
	}
	return spec, container, nil
}

// added returns what the components add to a list, each where its value asks for it.
func added(base *unstructured.Unstructured, with []*unstructured.Unstructured, list string, indent int) (string, error) {
	was, err := listOf(base, list)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for i, c := range components {
		is, err := listOf(with[i], list)
		if err != nil {
			return "", err
		}
		if len(is) == len(was) {
			continue
		}
		data, err := yaml.Marshal(is[len(was):])
		if err != nil {
			return "", err
		}
		prefix := strings.Repeat(" ", indent)
		fmt.Fprintf(&out, "%s{{- if %s }}\n", prefix, c.condition)
		for line := range strings.Lines(string(data)) {
			out.WriteString(prefix + line)
		}
		fmt.Fprintf(&out, "%s{{- end }}\n", prefix)
	}
	return out.String(), nil
}

func listOf(o *unstructured.Unstructured, list string) ([]any, error) {
	if o == nil {
		return nil, errors.New("there is no Deployment refit")
	}
	spec, container, err := podOf(o)
	if err != nil {
		return nil, err
	}
	if list == "volumes" {
		items, _ := spec[list].([]any)
		return items, nil
	}
	items, _ := container[list].([]any)
	return items, nil
}

//go:build e2e

// Package chart renders refit's Helm chart by Helm's own engine, and holds it against the manifests of config/. It is a module of its own: refit needs
// no Helm.
package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const root = "../.."

// load returns the chart.
func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(filepath.Join(root, "charts", "refit"))
	require.NoError(t, err)
	require.NoError(t, c.Validate())
	return c
}

// rendered returns what the chart installs with the values, by kind and name, and its notes.
func rendered(t *testing.T, namespace string, values map[string]any) (objects map[string]map[string]any, notes string) {
	t.Helper()
	c := load(t)
	all, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: "refit", Namespace: namespace, IsInstall: true}, nil)
	require.NoError(t, err)
	files, err := engine.Render(c, all)
	require.NoError(t, err)
	objects = map[string]map[string]any{}
	for name, text := range files {
		if strings.HasSuffix(name, "NOTES.txt") {
			notes = text
			continue
		}
		if strings.TrimSpace(text) != "" {
			add(t, objects, []byte(text))
		}
	}
	return objects, notes
}

func add(t *testing.T, objects map[string]map[string]any, data []byte) {
	t.Helper()
	var fields map[string]any
	require.NoError(t, yaml.Unmarshal(data, &fields), "%s", data)
	if fields == nil {
		return
	}
	o := unstructured.Unstructured{Object: fields}
	key := o.GetKind() + "/" + o.GetName()
	require.NotContains(t, objects, key)
	objects[key] = fields
}

// built returns what kustomize makes of config/default with components, and of more of config/.
func built(t *testing.T, components []string, more ...string) map[string]map[string]any {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(dir, "config"), os.DirFS(filepath.Join(root, "config"))))
	objects := map[string]map[string]any{}
	for i, of := range append([]string{"default"}, more...) {
		k := map[string][]string{"resources": {"../config/" + of}}
		if i == 0 {
			for _, c := range components {
				k["components"] = append(k["components"], "../config/components/"+c)
			}
		}
		data, err := yaml.Marshal(k)
		require.NoError(t, err)
		overlay := filepath.Join(dir, "overlay-"+of)
		require.NoError(t, os.Mkdir(overlay, 0o750))
		require.NoError(t, os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), data, 0o600))
		resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), overlay)
		require.NoError(t, err)
		for _, r := range resources.Resources() {
			if r.GetKind() == "Namespace" { // Helm's user makes it
				continue
			}
			data, err := r.AsYAML()
			require.NoError(t, err)
			add(t, objects, data)
		}
	}
	return objects
}

// image is what the manifests name until somebody sets a version.
var image = map[string]any{"image": map[string]any{"tag": "dev"}}

// TestTheChartInstallsWhatTheManifestsDo, with each component and with all that is optional.
func TestTheChartInstallsWhatTheManifestsDo(t *testing.T) {
	enabled := map[string]any{"enabled": true}
	for name, tc := range map[string]struct {
		values           map[string]any
		components, more []string
	}{
		"as it is":       {},
		"mtls":           {values: map[string]any{"mtls": enabled}, components: []string{"mtls"}},
		"watch secrets":  {values: map[string]any{"watchSecrets": enabled}, components: []string{"watch-secrets"}},
		"guard":          {values: map[string]any{"guard": enabled}, components: []string{"guard"}},
		"all namespaces": {values: map[string]any{"extensionConfig": map[string]any{"allNamespaces": true}}, components: []string{"all-namespaces"}},
		"ui":             {values: map[string]any{"ui": enabled}, components: []string{"ui"}},
		"both":           {values: map[string]any{"watchSecrets": enabled, "mtls": enabled}, components: []string{"mtls", "watch-secrets"}},
		"for Grafana":    {values: map[string]any{"grafana": map[string]any{"dashboards": enabled}}, more: []string{"grafana"}},
		"for Prometheus": {values: map[string]any{"prometheus": map[string]any{"serviceMonitor": enabled, "rules": enabled}}, more: []string{"prometheus"}},
	} {
		t.Run(name, func(t *testing.T) {
			values := chartutil.CoalesceTables(tc.values, image)
			if values == nil {
				values = image
			}
			got, notes := rendered(t, "refit-system", values)
			require.Contains(t, notes, "kubectl delete extensionconfig refit")
			want := built(t, tc.components, tc.more...)
			for key, o := range got {
				require.Contains(t, want, key)
				require.Equal(t, plain(want[key]), plain(o), key)
			}
			require.Len(t, got, len(want))
		})
	}
}

// plain returns an object without what is empty, and without what only a chart can have.
func plain(o map[string]any) any {
	u := unstructured.Unstructured{Object: o}
	annotations := u.GetAnnotations()
	delete(annotations, "helm.sh/resource-policy")
	u.SetAnnotations(annotations)
	if u.GetKind() == "Deployment" {
		pod, _, _ := unstructured.NestedFieldNoCopy(o, "spec", "template", "spec")
		spec := pod.(map[string]any)
		if value, _ := spec["nodeSelector"].(map[string]any); len(value) == 0 { // unless it is set
			delete(spec, "nodeSelector")
		}
		delete(spec["containers"].([]any)[0].(map[string]any), "imagePullPolicy") // Kubernetes' default
	}
	return o
}

// TestValuesAreFollowed: each value changes what it says, and nothing names the namespace that the manifests have.
func TestValuesAreFollowed(t *testing.T) {
	digest := "sha256:" + strings.Repeat("ab", 32)
	got, _ := rendered(t, "elsewhere", map[string]any{
		"replicas": 3, "shards": 3, "extraArgs": []any{"--max-unavailable-workers=10%"}, "goMemLimit": "3600MiB",
		"image":           map[string]any{"repository": "registry.example.org/refit", "digest": digest},
		"resources":       map[string]any{"limits": map[string]any{"memory": "4Gi"}},
		"nodeSelector":    map[string]any{"disk": "ssd"},
		"extensionConfig": map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{"team": "one"}}},
		"networkPolicy":   map[string]any{"enabled": false}, "crds": map[string]any{"keep": false}, "priorityClassName": "of-the-platform",
		"tracing": map[string]any{"endpoint": "otel:4317", "samplingRatio": 0.25, "insecure": true},
	})
	for key, o := range got {
		data, err := yaml.Marshal(o)
		require.NoError(t, err)
		require.NotContains(t, string(data), "refit-system", key)
		require.NotContains(t, string(data), "resource-policy", key)
	}
	require.NotContains(t, got, "NetworkPolicy/refit")
	deployment, err := yaml.Marshal(got["Deployment/refit"])
	require.NoError(t, err)
	for _, want := range []string{
		"replicas: 3", "- --shards=3", "- --max-unavailable-workers=10%", "value: 3600MiB", "image: registry.example.org/refit@" + digest,
		"- --tracing-endpoint=otel:4317", "- --tracing-sampling-ratio=0.25", "- --tracing-insecure",
		"memory: 4Gi", "disk: ssd", "priorityClassName: of-the-platform", "topologyKey: topology.kubernetes.io/zone", "key: node-role.kubernetes.io/control-plane",
	} {
		require.Contains(t, string(deployment), want)
	}
	selector, _, err := unstructured.NestedMap(got["ExtensionConfig/refit"], "spec", "namespaceSelector", "matchLabels")
	require.NoError(t, err)
	require.Equal(t, map[string]any{"team": "one"}, selector)
}

// TestOneReplicaHasNoBudget: a PodDisruptionBudget of the only replica would let no node be drained.
func TestOneReplicaHasNoBudget(t *testing.T) {
	got, _ := rendered(t, "refit-system", map[string]any{"replicas": 1})
	require.NotContains(t, got, "PodDisruptionBudget/refit")
}

// TestADefaultThatIsTakenAway: null is how Helm drops what a chart's values have. It is refused, or what is rendered can be read.
func TestADefaultThatIsTakenAway(t *testing.T) {
	for name := range load(t).Values {
		t.Run(name, func(t *testing.T) {
			c, values := load(t), map[string]any{name: nil}
			all, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: "refit", Namespace: "refit-system"}, nil)
			if err != nil {
				return
			}
			files, err := engine.Render(c, all)
			require.NoError(t, err)
			for file, text := range files {
				if !strings.HasSuffix(file, "NOTES.txt") && strings.TrimSpace(text) != "" {
					add(t, map[string]map[string]any{}, []byte(text))
				}
			}
		})
	}
}

// TestWhatIsNoValueIsRefused, and not passed over.
func TestWhatIsNoValueIsRefused(t *testing.T) {
	for name, values := range map[string]map[string]any{
		"a value that there is not":    {"replica": 3},
		"no replicas":                  {"replicas": 0},
		"latest":                       {"image": map[string]any{"tag": "latest"}},
		"a digest that is none":        {"image": map[string]any{"digest": "abc"}},
		"an argument without its name": {"extraArgs": []any{"debug"}},
		"a tag that is more than one":  {"image": map[string]any{"tag": "v1\n        tty: true"}},
		"a tag with a comment":         {"image": map[string]any{"tag": "v1 # x"}},
		"no repository":                {"image": map[string]any{"repository": nil}},
		"too many shards":              {"shards": 65},
		"a collector that is a URL":    {"tracing": map[string]any{"endpoint": "http://otel:4317"}},
		"a collector without a port":   {"tracing": map[string]any{"endpoint": "otel"}},
		"a collector without a host":   {"tracing": map[string]any{"endpoint": ":4317"}},
		"a port that there is not":     {"tracing": map[string]any{"endpoint": "otel:99999999"}},
		"dashboards by themselves":     {"dashboards": map[string]any{"enabled": true}},
		"more than all traces":         {"tracing": map[string]any{"samplingRatio": 2}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := chartutil.ToRenderValues(load(t), values, chartutil.ReleaseOptions{Name: "refit", Namespace: "refit-system"}, nil)
			require.Error(t, err)
		})
	}
}

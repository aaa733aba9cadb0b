package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/capi-refit/refit/build/manifests"
)

// repository is where the image of a release is.
const repository = "ghcr.io/capi-refit/refit"

// namespace is the one that clusterctl installs into. It is a variable because clusterctl itself, with --target-namespace, changes neither what
// ExtensionConfigs name nor the names of ClusterRoles, by which it knows what to delete.
const namespace = "${REFIT_NAMESPACE:=" + manifests.Namespace + "}"

// variables are what else clusterctl fills in, by what stands for it in the manifests.
var variables = map[string]string{
	"replicas: 424242":           "replicas: ${REFIT_REPLICAS:=2}",
	"memory: release-memory":     "memory: ${REFIT_MEMORY_LIMIT:=2560Mi}",
	"value: release-gomemlimit":  `value: "${REFIT_GOMEMLIMIT:=2300MiB}"`,
	"- --shards=release-shards":  `- "--shards=${REFIT_SHARDS:=1}"`,
	"image: " + repository + ":": "image: " + repository + ":", // only to see that it is there once
}

// components returns what clusterctl installs: config/default with the version's image, and variables with defaults.
func components(config string, v version) ([]byte, error) {
	objects, err := manifests.Build(config, "default")
	if err != nil {
		return nil, err
	}
	if err := prepare(objects["deployment-refit"], v); err != nil {
		return nil, err
	}
	var out strings.Builder
	for _, name := range slices.SortedFunc(maps.Keys(objects), byOrder(objects)) {
		data, err := yaml.Marshal(objects[name].Object)
		if err != nil {
			return nil, err
		}
		if strings.Contains(string(data), "${") {
			return nil, fmt.Errorf("%s has what clusterctl takes for a variable: ${", name)
		}
		out.WriteString("---\n" + string(data))
	}
	text := strings.ReplaceAll(out.String(), manifests.Namespace, namespace)
	for is, becomes := range variables {
		if text, err = manifests.ReplaceOnce(text, is, becomes); err != nil {
			return nil, err
		}
	}
	return []byte(text), nil
}

// byOrder has what others need come first.
func byOrder(objects map[string]*unstructured.Unstructured) func(a, b string) int {
	order := []string{"Namespace", "CustomResourceDefinition"}
	rank := func(name string) int {
		if i := slices.Index(order, objects[name].GetKind()); i >= 0 {
			return i
		}
		return len(order)
	}
	return func(a, b string) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	}
}

// prepare puts into the Deployment what stands for variables, and the image.
func prepare(deployment *unstructured.Unstructured, v version) error {
	if deployment == nil {
		return errors.New("config/default has no Deployment refit")
	}
	containers, _, err := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		return errors.Join(errors.New("the Deployment should have one container"), err)
	}
	container, ok := containers[0].(map[string]any)
	if !ok {
		return errors.New("the container can't be read")
	}
	container["image"] = repository + ":" + v.String()
	args, _ := container["args"].([]any)
	container["args"] = append(args, "--shards=release-shards")
	env, _ := container["env"].([]any)
	for _, e := range env {
		if e, ok := e.(map[string]any); ok && e["name"] == "GOMEMLIMIT" {
			e["value"] = "release-gomemlimit"
		}
	}
	return errors.Join(
		unstructured.SetNestedField(container, "release-memory", "resources", "limits", "memory"),
		unstructured.SetNestedSlice(deployment.Object, containers, "spec", "template", "spec", "containers"),
		unstructured.SetNestedField(deployment.Object, int64(424242), "spec", "replicas"),
	)
}

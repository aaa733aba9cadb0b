// Package manifests builds what config/ has, for what is packed out of it.
package manifests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// Namespace is the one that the manifests name.
const Namespace = "refit-system"

// Build returns the objects of a kustomization in the directory config, with components, by what NameOf says.
func Build(config, of string, components ...string) (map[string]*unstructured.Unstructured, error) {
	overlay, err := os.MkdirTemp("", "manifests-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(overlay) }()
	if config, err = relative(overlay, config); err != nil {
		return nil, err
	}
	kustomization := map[string][]string{"resources": {filepath.Join(config, of)}}
	for _, c := range components {
		kustomization["components"] = append(kustomization["components"], filepath.Join(config, "components", c))
	}
	data, err := yaml.Marshal(kustomization)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), data, 0o600); err != nil {
		return nil, err
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), overlay)
	if err != nil {
		return nil, fmt.Errorf("build %s: %w", of, err)
	}
	objects := map[string]*unstructured.Unstructured{}
	for _, r := range built.Resources() {
		data, err := r.MarshalJSON()
		if err != nil {
			return nil, err
		}
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(data); err != nil {
			return nil, err
		}
		objects[NameOf(o)] = o
	}
	return objects, nil
}

// relative returns a path as it is from a directory: kustomize takes no other.
func relative(from, path string) (string, error) {
	var err error
	if path, err = filepath.Abs(path); err != nil {
		return "", err
	}
	for _, p := range []*string{&from, &path} {
		if *p, err = filepath.EvalSymlinks(*p); err != nil {
			return "", err
		}
	}
	return filepath.Rel(from, path)
}

// NameOf returns a file's name for an object: its kind and its name.
func NameOf(o *unstructured.Unstructured) string {
	name := o.GetName()
	if o.GetKind() == "CustomResourceDefinition" {
		name, _, _ = strings.Cut(name, ".")
		return "crds/" + name
	}
	return strings.ToLower(o.GetKind()) + "-" + name
}

// ReplaceOnce replaces in a text what has to be there once.
func ReplaceOnce(text, is, becomes string) (string, error) {
	if n := strings.Count(text, is); n != 1 {
		return "", fmt.Errorf("%q is there %d times, and should be once", is, n)
	}
	return strings.Replace(text, is, becomes, 1), nil
}

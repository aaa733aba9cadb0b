package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// namespace is the one that the manifests name.
const namespace = "refit-system"

// render returns the objects of a kustomization, with components, by kind and name.
func render(config, of string, components ...string) (map[string]*unstructured.Unstructured, error) {
	overlay, err := os.MkdirTemp(filepath.Join(config, ".."), "chart-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(overlay) }()
	kustomization := map[string][]string{"resources": {filepath.Join("..", filepath.Base(config), of)}}
	for _, c := range components {
		kustomization["components"] = append(kustomization["components"], filepath.Join("..", filepath.Base(config), "components", c))
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
		objects[nameOf(o)] = o
	}
	return objects, nil
}

// nameOf returns the name of an object's template.
func nameOf(o *unstructured.Unstructured) string {
	name := o.GetName()
	if o.GetKind() == "CustomResourceDefinition" {
		name, _, _ = strings.Cut(name, ".")
		return "crds/" + name
	}
	return strings.ToLower(o.GetKind()) + "-" + name
}

// write writes the templates, and removes those that are made no more. Notes are not made here.
func write(dir string, files map[string][]byte) error {
	old, err := templatesIn(dir)
	if err != nil {
		return err
	}
	for name := range old {
		if _, ok := files[name]; !ok {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	for name, data := range files {
		if bytes.Equal(old[name], data) {
			continue
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o644); err != nil { //nolint:gosec // the repository's files are for everybody
			return err
		}
	}
	return nil
}

// templatesIn returns the templates that a directory has.
func templatesIn(dir string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, pattern := range []string{"*.yaml", "crds/*.yaml"} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			name, err := filepath.Rel(dir, path)
			if err != nil {
				return nil, err
			}
			if files[name], err = os.ReadFile(path); err != nil {
				return nil, err
			}
		}
	}
	return files, nil
}

package main

import (
	"fmt"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"
)

// contract is the version of Cluster API's contract that refit is for.
const contract = "v1beta2"

// version is that of a release: v0.1.0, say.
type version struct{ *utilversion.Version }

func parse(text string) (version, error) {
	parsed, err := utilversion.ParseSemantic(text)
	if err != nil || (version{parsed}).String() != text {
		return version{}, fmt.Errorf("--version: %q is no version such as v0.1.0", text)
	}
	return version{parsed}, nil
}

// String is the version as it is tagged.
func (v version) String() string { return "v" + v.plain() }

// plain is the version without its v, as Helm has it.
func (v version) plain() string { return v.Version.String() }

// metadata says to clusterctl for which contract the releases are.
func metadata(v version) ([]byte, error) {
	return yaml.Marshal(map[string]any{
		"apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3", "kind": "Metadata",
		"releaseSeries": []any{map[string]any{"major": v.Major(), "minor": v.Minor(), "contract": contract}},
	})
}

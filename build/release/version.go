package main

import (
	"fmt"
	"os"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"
)

// version is that of a release: v0.1.0, say.
type version struct{ *utilversion.Version }

func parse(text string) (version, error) {
	parsed, err := utilversion.ParseSemantic(text)
	if err != nil || (version{parsed}).String() != text || parsed.BuildMetadata() != "" { // no tag of an image has a plus sign
		return version{}, fmt.Errorf("--version: %q is no version such as v0.1.0", text)
	}
	return version{parsed}, nil
}

// String is the version as it is tagged.
func (v version) String() string { return "v" + v.plain() }

// plain is the version without its v, as Helm has it.
func (v version) plain() string { return v.Version.String() }

// metadata returns what says to clusterctl for which contracts the releases are, if it has the version's.
func metadata(file string, v version) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var m struct {
		ReleaseSeries []struct {
			Major, Minor uint
			Contract     string
		}
	}
	if err := yaml.Unmarshal(data, &m); err != nil {
		return nil, err
	}
	for _, s := range m.ReleaseSeries {
		if s.Major == v.Major() && s.Minor == v.Minor() && s.Contract != "" {
			return data, nil
		}
	}
	return nil, fmt.Errorf("%s has no line for %d.%d: add it, and leave the others", file, v.Major(), v.Minor())
}

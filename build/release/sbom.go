package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// spdx is a document of SPDX 2.3, as far as modules of Go have something to say there.
type spdx struct {
	Version       string             `json:"spdxVersion"`
	License       string             `json:"dataLicense"`
	ID            string             `json:"SPDXID"`
	Name          string             `json:"name"`
	Namespace     string             `json:"documentNamespace"`
	Creation      spdxCreation       `json:"creationInfo"`
	Packages      []spdxPackage      `json:"packages"`
	Relationships []spdxRelationship `json:"relationships"`
}

type spdxCreation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	Name     string    `json:"name"`
	ID       string    `json:"SPDXID"`
	Version  string    `json:"versionInfo"`
	Download string    `json:"downloadLocation"`
	Analyzed bool      `json:"filesAnalyzed"`
	Refs     []spdxRef `json:"externalRefs"`
}

type spdxRef struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type spdxRelationship struct {
	Of   string `json:"spdxElementId"`
	To   string `json:"relatedSpdxElement"`
	Type string `json:"relationshipType"`
}

// sbom lists the modules that the programs were built of, as Go has written them into each. Of all platforms together: they may differ.
func (o options) sbom(v version, at time.Time) ([]byte, error) {
	modules := map[string]bool{}
	for _, p := range platforms {
		info, err := buildinfo.ReadFile(filepath.Join(o.programs, p.program()))
		if err != nil {
			return nil, fmt.Errorf("what %s was built of: %w", p.program(), err)
		}
		modules["stdlib@"+strings.Fields(info.GoVersion)[0]] = true
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			modules[m.Path+"@"+m.Version] = true
		}
	}
	const document, refit = "SPDXRef-DOCUMENT", "SPDXRef-refit"
	out := spdx{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: document, Name: "refit " + v.String(), Namespace: downloads + v.String() + "/refit.spdx.json",
		Creation:      spdxCreation{at.Format(time.RFC3339), []string{"Tool: make release"}},
		Packages:      []spdxPackage{packageOf(refit, "github.com/capi-refit/refit", v.String())},
		Relationships: []spdxRelationship{{document, refit, "DESCRIBES"}},
	}
	for i, m := range slices.Sorted(maps.Keys(modules)) {
		path, version, _ := strings.Cut(m, "@")
		id := fmt.Sprintf("SPDXRef-module-%d", i+1)
		out.Packages = append(out.Packages, packageOf(id, path, version))
		out.Relationships = append(out.Relationships, spdxRelationship{refit, id, "DEPENDS_ON"})
	}
	data, err := json.MarshalIndent(out, "", "  ")
	return append(data, '\n'), err
}

func packageOf(id, path, version string) spdxPackage {
	return spdxPackage{
		Name: path, ID: id, Version: version, Download: "NOASSERTION",
		Refs: []spdxRef{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + path + "@" + version}},
	}
}

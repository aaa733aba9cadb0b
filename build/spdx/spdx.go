// Package spdx lists the modules that Go programs were built of, in SPDX 2.3.
package spdx

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// Document is one of SPDX 2.3, as far as modules of Go have something to say there.
type Document struct {
	Version       string         `json:"spdxVersion"`
	License       string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creation       `json:"creationInfo"`
	Packages      []Package      `json:"packages"`
	Relationships []Relationship `json:"relationships"`
}

// creation says when and by what the document was made.
type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

// Package is a program or a module.
type Package struct {
	Name     string `json:"name"`
	ID       string `json:"SPDXID"`
	Version  string `json:"versionInfo"`
	Download string `json:"downloadLocation"`
	Analyzed bool   `json:"filesAnalyzed"`
	// Checksums are those of a program; a module has none.
	Checksums []Checksum `json:"checksums,omitempty"`
	Refs      []Ref      `json:"externalRefs"`
}

// Checksum is of a file.
type Checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

// Ref is what a package is called elsewhere.
type Ref struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

// Relationship is one of two elements of the document.
type Relationship struct {
	Of   string `json:"spdxElementId"`
	To   string `json:"relatedSpdxElement"`
	Type string `json:"relationshipType"`
}

// Program is what is listed: files that were built of the same source, for one platform each.
type Program struct {
	// Name is its own in the document.
	Name string
	// Path is its package's or module's. Unset: what Go has written into its files.
	Path  string
	Files []string
}

// List returns a document of programs of a version, and of the modules that they were built of, as Go has written them into each. All files of a program
// are listed together: they may differ. A program of one file has the checksum of that.
func List(name, namespace, version string, at time.Time, programs ...Program) ([]byte, error) {
	const document = "SPDXRef-DOCUMENT"
	out := Document{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: document, Name: name, Namespace: namespace,
		Creation: creation{at.UTC().Format(time.RFC3339), []string{"Tool: make release"}},
	}
	of := map[string][]string{} // the programs that have a module
	for _, p := range programs {
		id := "SPDXRef-" + strings.NewReplacer("/", "-", "_", "-").Replace(p.Name)
		modules := map[string]bool{}
		for _, file := range p.Files {
			path, err := modulesOf(file, modules)
			if err != nil {
				return nil, err
			}
			p.Path = cmp.Or(p.Path, path)
		}
		program := packageOf(id, p.Path, version)
		if len(p.Files) == 1 {
			content, err := os.ReadFile(p.Files[0])
			if err != nil {
				return nil, err
			}
			sum := sha256.Sum256(content)
			program.Checksums = []Checksum{{"SHA256", hex.EncodeToString(sum[:])}}
		}
		for m := range modules {
			of[m] = append(of[m], id)
		}
		out.Packages = append(out.Packages, program)
		out.Relationships = append(out.Relationships, Relationship{document, id, "DESCRIBES"})
	}
	for i, m := range slices.Sorted(maps.Keys(of)) {
		path, version, _ := strings.Cut(m, "@")
		id := fmt.Sprintf("SPDXRef-module-%d", i+1)
		out.Packages = append(out.Packages, packageOf(id, path, version))
		for _, program := range of[m] {
			out.Relationships = append(out.Relationships, Relationship{program, id, "DEPENDS_ON"})
		}
	}
	data, err := json.MarshalIndent(out, "", "  ")
	return append(data, '\n'), err
}

// modulesOf adds the modules of a program, and returns its package.
func modulesOf(file string, modules map[string]bool) (string, error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("what %s was built of: %w", file, err)
	}
	modules["stdlib@"+strings.Fields(info.GoVersion)[0]] = true
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		modules[m.Path+"@"+m.Version] = true
	}
	return info.Path, nil
}

func packageOf(id, path, version string) Package {
	return Package{
		Name: path, ID: id, Version: version, Download: "NOASSERTION",
		Refs: []Ref{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + path + "@" + version}},
	}
}

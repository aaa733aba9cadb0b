package agent

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/capi-refit/refit/internal/disruption"
)

// certsDir has a directory for each registry, which containerd reads on each pull if its configuration names it.
const certsDir = "/etc/containerd/certs.d"

// containerdRegistry is what containerd's configuration says of registries, by whichever plugin.
type containerdRegistry struct {
	Plugins map[string]struct {
		Registry struct {
			ConfigPath *string        `toml:"config_path"`
			Mirrors    map[string]any `toml:"mirrors"`
		} `toml:"registry"`
	} `toml:"plugins"`
}

// certsSkipped returns an error if containerd's configuration, or what it imports, says that files below certsDir are not read. Where
// nothing is said it depends on containerd's version, and they are written, as where not all that it says is known.
func (p *planner) certsSkipped(name string) error {
	texts, all := p.containerdConfig()
	skipped := false
	for _, text := range texts {
		var c containerdRegistry
		if toml.Unmarshal(text, &c) != nil {
			return nil //nolint:nilerr // containerd says itself what it can't read
		}
		for _, plugin := range c.Plugins {
			r := plugin.Registry
			if r.ConfigPath != nil && slices.ContainsFunc(strings.Split(*r.ConfigPath, ":"), p.isCertsDir) {
				return nil
			}
			skipped = skipped || r.ConfigPath != nil || len(r.Mirrors) > 0
		}
	}
	if !skipped || !all {
		return nil
	}
	return fmt.Errorf("containerd does not read %s, since config_path of the registries in %s is not %s: set it there", name, disruption.ContainerdConfig, certsDir)
}

// containerdConfig returns containerd's configuration and what that imports, as they will be, and reports whether that is all of it.
func (p *planner) containerdConfig() (texts [][]byte, all bool) {
	planned := p.plannedFiles()
	main, there := p.textOf(planned, disruption.ContainerdConfig)
	if !there {
		return nil, false
	}
	texts, all = [][]byte{main}, true
	imports := containerdImports(main)
	for _, in := range imports {
		all = all && !strings.ContainsAny(path.Dir(in.pattern), "*?[")
	}
	for _, file := range p.filesOf(planned, imports) {
		text, there := p.textOf(planned, file)
		all = all && there && len(containerdImports(text)) == 0
		texts = append(texts, text)
	}
	return texts, all
}

// isCertsDir reports whether a directory is certsDir, by whatever name.
func (p *planner) isCertsDir(dir string) bool {
	if path.Clean(dir) == certsDir {
		return true
	}
	is, err := p.root.Resolve(path.Clean(dir))
	want, err2 := p.root.Resolve(certsDir)
	return err == nil && err2 == nil && is == want
}

package agent

import (
	"fmt"
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
// nothing is said it depends on containerd's version, and they are written.
func (p *planner) certsSkipped(name string) error {
	planned := p.plannedFiles()
	main, there := p.textOf(planned, disruption.ContainerdConfig)
	if !there {
		return nil
	}
	texts := [][]byte{main}
	for _, file := range p.filesOf(planned, containerdImports(main)) {
		if text, there := p.textOf(planned, file); there {
			texts = append(texts, text)
		}
	}
	skipped := false
	for _, text := range texts {
		var c containerdRegistry
		if toml.Unmarshal(text, &c) != nil {
			continue
		}
		for _, plugin := range c.Plugins {
			r := plugin.Registry
			if r.ConfigPath != nil && slices.Contains(strings.Split(*r.ConfigPath, ":"), certsDir) {
				return nil
			}
			skipped = skipped || r.ConfigPath != nil || len(r.Mirrors) > 0
		}
	}
	if !skipped {
		return nil
	}
	return fmt.Errorf("containerd does not read %s, since config_path of the registries in %s is not %s: set it there", name, disruption.ContainerdConfig, certsDir)
}

package files

import (
	"strings"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// unit returns the unit that is enabled once the file has brought it to a node, if there is one. Nothing on a running node does that
// otherwise, and the unit would be gone after a reboot.
func unit(f node.File) (node.Resource, bool) {
	name, ok := disruption.UnitOfFile(f.Path)
	if !ok || disruption.CheckUnit(disruption.None, name) != nil || !installs(string(f.Content)) {
		return node.Resource{}, false
	}
	return node.Resource{Unit: &node.Unit{Name: name, Enabled: new(true), File: f.Path}}, true
}

// installs reports whether the section [Install] of a unit's file says what the unit is enabled for (systemd.unit(5)), and names no other
// units with Also, of which it is not known who has enabled them: these would be enabled and disabled with it. What UpheldBy says systemd
// knows since version 254 only.
func installs(content string) bool {
	section, says := "", map[string]bool{}
	for line := range strings.Lines(strings.ReplaceAll(content, "\\\n", " ")) {
		line = strings.TrimSpace(line)
		key, value, isSetting := strings.Cut(line, "=")
		switch {
		case strings.HasPrefix(line, "#"), strings.HasPrefix(line, ";"):
		case strings.HasPrefix(line, "["):
			section = line
		case section == "[Install]" && isSetting: // an empty value takes back those before
			says[strings.TrimSpace(key)] = strings.TrimSpace(value) != ""
		}
	}
	return (says["WantedBy"] || says["RequiredBy"] || says["Alias"]) && !says["Also"]
}

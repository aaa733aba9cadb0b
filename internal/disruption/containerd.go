package disruption

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// What containerd reads at its start. The directory has what the file imports.
const (
	ContainerdConfig = "/etc/containerd/config.toml"
	containerdDropIn = "/etc/containerd/conf.d/"
)

// containerdDirs are the directories in which containerd keeps what it knows of containers, of containerd-config.toml(5).
type containerdDirs struct {
	Root    string         `toml:"root"`
	State   string         `toml:"state"`
	Plugins map[string]any `toml:"plugins"`
}

// ByContents reports whether what a change of a file takes depends on what is in it, see ActionsFor.
func ByContents(p string) bool {
	return p == RegistriesConf || isContainerdConfig(p) || within(p, udevRules)
}

func isContainerdConfig(p string) bool {
	return p == ContainerdConfig || strings.HasPrefix(p, containerdDropIn)
}

// movesContainers reports whether a change of a configuration of containerd has it look for its containers elsewhere. After a restart it
// would know of none of those that run, static pods among them, and the kubelet would start them a second time beside them. A boot ends
// them all. It is false of what is not TOML: containerd does not start with it.
func movesContainers(p string, before, after []byte) bool {
	var was, is containerdDirs
	if toml.Unmarshal(before, &was) != nil || toml.Unmarshal(after, &is) != nil {
		return false
	}
	return !maps.Equal(was.all(p), is.all(p))
}

// all returns the directories that a file names, by their settings. What the main file does not name is where it is by default.
func (d containerdDirs) all(p string) map[string]string {
	dirs := map[string]string{"root": path.Clean(d.Root), "state": path.Clean(d.State)}
	if p == ContainerdConfig {
		dirs["root"], dirs["state"] = path.Clean(cmp.Or(d.Root, "/var/lib/containerd")), path.Clean(cmp.Or(d.State, "/run/containerd"))
	}
	for name, plugin := range d.Plugins {
		settings, _ := plugin.(map[string]any)
		if dir, ok := settings["root_path"].(string); ok && dir != "" {
			dirs[name] = path.Clean(dir)
		}
	}
	return dirs
}

// rebooted returns actions with a reboot.
func rebooted(actions []Action) []Action {
	if Has(actions, Reboot) || Has(actions, Replace) {
		return actions
	}
	return append(slices.Clone(actions), Action{Type: Reboot})
}

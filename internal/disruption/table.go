package disruption

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// UnitOfPath stands, as the Unit of a rule's action, for the unit that the changed path configures:
// /etc/systemd/system/X and /etc/systemd/system/X.d/… both stand for X.
const UnitOfPath = "*"

// StaticPods is where kubeadm has the kubelet look for the manifests of static pods. It runs each that changes again, by itself.
const StaticPods = "/etc/kubernetes/manifests"

// systemdUnits is where the administrator's units and their drop-ins are.
const systemdUnits = "/etc/systemd/system"

// Rule says which actions a change of a file takes.
type Rule struct {
	// Path is a file, or a directory that stands for everything below it. It is absolute and clean.
	Path string `json:"path"`
	// Actions are done after a change, in this order.
	Actions []Action `json:"actions"`
	// From names the policies that the rule comes from. Empty: it is built in.
	From string `json:"from,omitempty"`
	// Unsafe lets files be written that their reader skips. All policies that the rule comes from say so.
	Unsafe bool `json:"unsafe,omitempty"`
}

// Table is a set of rules. The rule with the longest path that matches wins; between equal paths the later one.
type Table []Rule

// RegistriesConf is compared by its meaning, see ActionsFor.
const RegistriesConf = "/etc/containers/registries.conf"

// Builtin returns the rules that hold where an operator has said nothing else.
func Builtin() Table { //nolint:funlen // a table: a line for each row
	const crio, containerd = "crio.service", "containerd.service"
	restart := func(unit string) []Action { return []Action{{Type: Restart, Unit: unit}} }
	reload := func(unit string) []Action { return []Action{{Type: Reload, Unit: unit}} }
	drained := func(a Action) []Action { return []Action{{Type: Drain}, a} }
	network := drained(Action{Type: NetworkReload})
	bootloader := []Action{{Type: RebuildBootloader}, {Type: Reboot}}
	initramfs := []Action{{Type: RebuildInitramfs}, {Type: Reboot}}
	none, pods := []Action{{Type: None}}, []Action{{Type: StaticPodRefresh}}
	// Nodes have one of the container runtimes. The unit of another one is not installed, and is not restarted.
	trust := []Action{{Type: TrustStoreUpdate}, {Type: Restart, Unit: containerd}, {Type: Restart, Unit: crio}}
	runtimeUnit := []Action{{Type: Drain}, {Type: DaemonReload}, {Type: Restart, Unit: UnitOfPath}} // as for the runtime's configuration
	var t Table
	for _, r := range []struct {
		path    string
		actions []Action
	}{
		{"/var/lib/kubelet/config.json", none},
		{"/etc/containers/policy.json", reload(crio)},
		{"/etc/containers/registries.d", reload(crio)},
		{"/etc/crio/policies", reload(crio)},
		{RegistriesConf, drained(Action{Type: Reload, Unit: crio})},
		{"/etc/containerd/certs.d", none}, // containerd reads it on each pull
		{"/etc/containerd/config.toml", drained(Action{Type: Restart, Unit: containerd})},
		{"/etc/containerd/conf.d", drained(Action{Type: Restart, Unit: containerd})},
		{"/etc/kubernetes/credential-providers", restart("kubelet.service")},
		{"/etc/sysctl.d", restart("systemd-sysctl.service")},
		{"/run/sysctl.d", restart("systemd-sysctl.service")},
		{"/usr/lib/sysctl.d", restart("systemd-sysctl.service")},
		{"/etc/modules-load.d", restart("systemd-modules-load.service")},
		{"/etc/ssh/sshd_config.d", reload("ssh.service")},
		{systemdUnits, []Action{{Type: DaemonReload}, {Type: Restart, Unit: UnitOfPath}}},
		{systemdUnits + "/" + containerd, runtimeUnit}, // by KillMode= a restart can end all pods
		{systemdUnits + "/" + containerd + ".d", runtimeUnit},
		{systemdUnits + "/" + crio, runtimeUnit},
		{systemdUnits + "/" + crio + ".d", runtimeUnit},
		{"/etc/pki/ca-trust/source/anchors", trust},
		{"/usr/local/share/ca-certificates", trust},
		{"/etc/logrotate.d", none},
		{"/etc/cron.d", none},
		{"/etc/motd", none},
		{"/etc/issue", none},
		{"/etc/default/grub", bootloader},
		{"/etc/default/grub.d", bootloader},
		{"/etc/grub.d", bootloader},
		{"/etc/kernel/cmdline", bootloader}, // kernel-install's; the rest of /etc/kernel is programs that it runs
		{"/etc/kernelstub", bootloader},
		{"/etc/initramfs-tools", initramfs},
		{"/etc/dracut.conf", initramfs},
		{"/etc/dracut.conf.d", initramfs},
		{"/etc/mkinitcpio.conf", initramfs},
		{"/etc/mkinitcpio.conf.d", initramfs},
		{"/etc/modprobe.d", initramfs}, // a module that is loaded keeps its parameters, and the initramfs loads some
		{"/etc/netplan", network},
		{"/etc/systemd/network", network},
		{"/etc/NetworkManager/system-connections", network},
		{"/etc/network/interfaces", network},
		{"/etc/network/interfaces.d", network},
		{udevRules, reload("systemd-udevd.service")},
		{"/etc/tmpfiles.d", none}, // the agent has systemd-tmpfiles make what they name
		{"/etc/systemd/resolved.conf", restart("systemd-resolved.service")},
		{"/etc/systemd/resolved.conf.d", restart("systemd-resolved.service")},
		{"/etc/systemd/journald.conf", restart("systemd-journald.service")},
		{"/etc/systemd/journald.conf.d", restart("systemd-journald.service")},
		{StaticPods, pods},
		{"/etc/kubernetes/audit-policy.yaml", pods}, // what the API server reads when it starts, where its manifest mounts it
		{"/etc/kubernetes/audit", pods},
		{"/etc/kubernetes/admission-config.yaml", pods},
		{"/etc/kubernetes/admission", pods},
		{KubeadmPatches, restart("kubelet.service")}, // after kubeadm has made the kubelet's configuration again, see patched
		{"/etc/sudoers", none},                       // sudo reads them each time; the agent has visudo read them before
		{"/etc/sudoers.d", none},
		{"/etc/ssh/sshd_config", reload("ssh.service")},
	} {
		t = append(t, Rule{Path: r.path, Actions: slices.Clone(r.actions)})
	}
	return t
}

// AllowPaths returns rules by which everything below dirs takes no action, or the Drain or Reboot that follows a "=":
// /etc/app/boot.d=Reboot. An error names a directory that is not an absolute, clean path below the root, or is below the Floor.
func AllowPaths(dirs []string) (Table, error) {
	var t Table
	for _, d := range dirs {
		p, takes, named := strings.Cut(d, "=")
		p = strings.TrimSuffix(p, "/")
		if err := ValidPath(p); err != nil {
			return nil, fmt.Errorf("allowed path %q: %w", d, err)
		}
		action := Action{Type: None}
		if named {
			action.Type = ActionType(takes)
		}
		if !slices.Contains([]ActionType{None, Drain, Reboot}, action.Type) {
			return nil, fmt.Errorf("allowed path %q: after the = comes what a change takes: %s, %s or %s", d, None, Drain, Reboot)
		}
		r := Rule{Path: p, Actions: []Action{action}}
		if missing, whose := below(p, r.Actions); len(missing) > 0 {
			return nil, fmt.Errorf("allowed path %q leaves out %s, which the built-in rule for %s has, so that a change would have no effect or "+
				"would not be tested; leave it out, or name it in a NodeDisruptionPolicy with unsafe: true if that is meant", d, strings.Join(missing, ", "), whose)
		}
		t = append(t, r)
	}
	return t, nil
}

// ValidPath returns an error that says why p can't be the path of a file on a node, or nil.
func ValidPath(p string) error {
	switch {
	case !path.IsAbs(p):
		return fmt.Errorf("path %q is not absolute", p)
	case path.Clean(p) != p:
		return fmt.Errorf("path %q is not clean; write it as %q", p, path.Clean(p))
	case p == "/":
		return fmt.Errorf("path %q is the root directory", p)
	case strings.ContainsRune(p, 0):
		return fmt.Errorf("path %q contains a NUL byte", p)
	}
	return nil
}

// Actions returns what a change of the file p takes, or an error that says why it can't be done in place.
func (t Table) Actions(p string) ([]Action, error) { return Rules{Files: t}.Actions(p) }

// match returns the rule with the longest path that p is, or lies under.
func (t Table) match(p string) (Rule, bool) {
	var best Rule
	for _, r := range t {
		if within(p, r.Path) && len(r.Path) >= len(best.Path) {
			best = r
		}
	}
	return best, best.Path != ""
}

// within reports whether p is one of the paths, or lies under one.
func within(p string, paths ...string) bool {
	return slices.ContainsFunc(paths, func(dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") })
}

// UnitOfFile returns the unit whose own file has that path, or false if there can be none. A template is no unit.
func UnitOfFile(p string) (string, bool) {
	unit, ok := unitOf(p)
	return unit, ok && p == systemdUnits+"/"+unit
}

// unitOf returns the unit that a path below /etc/systemd/system configures.
func unitOf(p string) (string, bool) {
	rest, ok := strings.CutPrefix(p, systemdUnits+"/")
	if !ok {
		return "", false
	}
	dir, file, nested := strings.Cut(rest, "/")
	if !nested {
		return dir, ValidUnit(dir)
	}
	unit, isDropIn := strings.CutSuffix(dir, ".d")
	return unit, isDropIn && ValidUnit(unit) && !strings.Contains(file, "/") && strings.HasSuffix(file, ".conf")
}

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

// systemdUnits is where the administrator's units and their drop-ins are.
const systemdUnits = "/etc/systemd/system"

// Rule says which actions a change of a file takes.
type Rule struct {
	// Path is a file, or a directory that stands for everything below it. It is absolute and clean.
	Path string `json:"path"`
	// Actions are done after a change, in this order.
	Actions []Action `json:"actions"`
}

// Table is a set of rules. The rule with the longest path that matches wins; between equal paths the later one.
type Table []Rule

// Builtin returns the rules that hold where an operator has said nothing else.
//
// Paths that are known to need more than can be done today (a static pod) are listed with what they need, so that people are
// told instead of left guessing.
func Builtin() Table {
	restart := func(unit string) []Action { return []Action{{Type: Restart, Unit: unit}} }
	reload := func(unit string) []Action { return []Action{{Type: Reload, Unit: unit}} }
	none := []Action{{Type: None}}
	return Table{
		{"/var/lib/kubelet/config.json", none},
		{"/etc/containers/policy.json", reload("crio.service")},
		{"/etc/containers/registries.d", reload("crio.service")},
		{"/etc/crio/policies", reload("crio.service")},
		// Some changes of registries.conf need no drain, but which is decided by meaning and not by path: all of them get one.
		{"/etc/containers/registries.conf", []Action{{Type: Drain}, {Type: Reload, Unit: "crio.service"}}},
		{"/etc/containerd/certs.d", none}, // containerd reads it on each pull
		{"/etc/containerd/config.toml", []Action{{Type: Drain}, {Type: Restart, Unit: "containerd.service"}}},
		{"/etc/containerd/conf.d", []Action{{Type: Drain}, {Type: Restart, Unit: "containerd.service"}}},
		{"/etc/kubernetes/credential-providers", restart("kubelet.service")},
		{"/etc/sysctl.d", restart("systemd-sysctl.service")},
		{"/run/sysctl.d", restart("systemd-sysctl.service")},
		{"/usr/lib/sysctl.d", restart("systemd-sysctl.service")},
		{"/etc/modules-load.d", restart("systemd-modules-load.service")},
		{"/etc/ssh/sshd_config.d", reload("ssh.service")},
		{systemdUnits, []Action{{Type: DaemonReload}, {Type: Restart, Unit: UnitOfPath}}},
		{"/etc/logrotate.d", none},
		{"/etc/cron.d", none},
		{"/etc/motd", none},
		{"/etc/issue", none},
		{"/etc/kubernetes/manifests", []Action{{Type: StaticPodRefresh}}},
	}
}

// AllowPaths returns rules by which everything below dirs takes no action, or the Drain or Reboot that follows a "=":
// /etc/default/grub.d=Reboot. An error names a directory that is not an absolute, clean path below the root.
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
		t = append(t, Rule{Path: p, Actions: []Action{action}})
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
func (t Table) Actions(p string) ([]Action, error) {
	if err := ValidPath(p); err != nil {
		return nil, err
	}
	rule, ok := t.match(p)
	if !ok {
		return nil, fmt.Errorf("no rule says what a change of %s takes on a node; if it takes nothing, name its directory with --allow-paths", p)
	}
	actions := slices.Clone(rule.Actions)
	for i, a := range actions {
		if a.Unit == UnitOfPath {
			unit, ok := unitOf(p)
			if !ok {
				return nil, fmt.Errorf("%s is neither a unit nor a drop-in of one", p)
			}
			actions[i].Unit = unit
		}
		if err := actions[i].Validate(); err != nil {
			return nil, fmt.Errorf("rule for %s: %w", rule.Path, err)
		}
		if err := a.Type.doable(p); err != nil {
			return nil, err
		}
	}
	return actions, nil
}

// doable returns an error that says why a change of p that takes an action of the type is not made in place, or nil.
func (t ActionType) doable(p string) error {
	switch t {
	case StaticPodRefresh:
		return fmt.Errorf("a change of %s takes %s, which is not done in place yet", p, t)
	case Replace:
		return fmt.Errorf("a change of %s is not made in place: the rule for it says %s", p, t)
	default:
		return nil
	}
}

func (t Table) match(p string) (Rule, bool) {
	var best Rule
	for _, r := range t {
		if (p == r.Path || strings.HasPrefix(p, r.Path+"/")) && len(r.Path) >= len(best.Path) {
			best = r
		}
	}
	return best, best.Path != ""
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

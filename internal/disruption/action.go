package disruption

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// ActionType is what has to be done on a node so that a change takes effect. The types are ordered: a later one
// disturbs a node more than an earlier one.
type ActionType string

// The actions, from none to worst.
const (
	// None is needed when what uses the changed thing reads it again by itself.
	None ActionType = "None"
	// DaemonReload has systemd read its unit files again.
	DaemonReload ActionType = "DaemonReload"
	// Reload has a unit read its configuration again while it runs on.
	Reload ActionType = "Reload"
	// Restart stops and starts a unit.
	Restart ActionType = "Restart"
	// StaticPodRefresh waits until the kubelet has replaced a static pod.
	StaticPodRefresh ActionType = "StaticPodRefresh"
	// Drain moves the node's pods elsewhere before anything is written.
	Drain ActionType = "Drain"
	// Reboot restarts the node.
	Reboot ActionType = "Reboot"
	// Replace says that the change can't be made in place.
	Replace ActionType = "Replace"
)

// maxUnitName is systemd's limit on the length of a unit's name, in bytes.
const maxUnitName = 255

var unitName = regexp.MustCompile(`^[a-zA-Z0-9:._\\-]+\.(service|socket|device|mount|automount|swap|target|path|timer|snapshot|slice|scope)$`)

// ValidUnit says whether name can be the unit of a Reload or Restart. Instances and templates (with @) can't: which
// instances run is known on the node only.
func ValidUnit(name string) bool {
	return len(name) <= maxUnitName && unitName.MatchString(name)
}

// Action is one thing to do on a node.
type Action struct {
	Type ActionType `json:"type"`
	// Unit is the systemd unit of a Reload or a Restart.
	Unit string `json:"unit,omitempty"`
}

// String returns the action as people read it, for example "Restart kubelet.service".
func (a Action) String() string {
	if a.Unit == "" {
		return string(a.Type)
	}
	return string(a.Type) + " " + a.Unit
}

// Validate returns an error that says what is wrong with the action, or nil.
func (a Action) Validate() error {
	switch a.Type {
	case Reload, Restart:
		if !ValidUnit(a.Unit) {
			return fmt.Errorf("action %s: %q is not the name of a systemd unit", a.Type, a.Unit)
		}
	case None, DaemonReload, StaticPodRefresh, Drain, Reboot, Replace:
		if a.Unit != "" {
			return fmt.Errorf("action %s takes no unit, but names %q", a.Type, a.Unit)
		}
	default:
		return fmt.Errorf("unknown action %q", a.Type)
	}
	return nil
}

// Worst returns the one of the types that disturbs a node most. Of none it is None; a type that is not known is the worst.
func Worst(types ...ActionType) ActionType {
	order := []ActionType{None, DaemonReload, Reload, Restart, StaticPodRefresh, Drain, Reboot, Replace}
	worst := 0
	for _, t := range types {
		i := slices.Index(order, t)
		if i < 0 {
			return t
		}
		worst = max(worst, i)
	}
	return order[worst]
}

// rank orders the actions of a merged list as they are run: unit files first, then what runs from them.
func (a Action) rank() int {
	return slices.Index([]ActionType{None, Drain, DaemonReload, Reload, Restart, StaticPodRefresh, Reboot, Replace}, a.Type)
}

// Merge joins lists of actions into the one list that makes all of their changes real, in the order in which it is run.
// Equal actions are done once, None vanishes beside others, a Restart includes the Reload of the same unit, and a Reboot
// or a Replace includes everything. The result does not depend on the order of the arguments.
func Merge(lists ...[]Action) []Action {
	all := slices.Concat(lists...)
	slices.SortFunc(all, func(a, b Action) int {
		if d := a.rank() - b.rank(); d != 0 {
			return d
		}
		return strings.Compare(a.Unit, b.Unit)
	})
	all = slices.Compact(all)
	if len(all) == 0 {
		return nil
	}
	switch worst := all[len(all)-1].Type; worst {
	case None:
		return []Action{{Type: None}}
	case Replace, Reboot:
		return []Action{{Type: worst}}
	default:
	}
	return slices.DeleteFunc(all, func(a Action) bool {
		return a.Type == None || a.Type == Reload && slices.Contains(all, Action{Type: Restart, Unit: a.Unit})
	})
}

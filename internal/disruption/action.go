package disruption

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
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
	// TrustStoreUpdate rebuilds the bundle of the authorities that the node trusts. What reads it has to be restarted after it.
	TrustStoreUpdate ActionType = "TrustStoreUpdate"
	// RebuildInitramfs makes the file system again that the kernel boots with. What it brings is there after the next boot.
	RebuildInitramfs ActionType = "RebuildInitramfs"
	// RebuildBootloader makes the boot loader's configuration again. The kernel has its arguments after the next boot.
	RebuildBootloader ActionType = "RebuildBootloader"
	// Reload has a unit read its configuration again while it runs on.
	Reload ActionType = "Reload"
	// Restart stops and starts a unit.
	Restart ActionType = "Restart"
	// NetworkReload has what manages the node's network read its files again, and bring up what they say.
	NetworkReload ActionType = "NetworkReload"
	// StaticPodRefresh restarts the static pods that mount what was changed, and waits until the kubelet runs them, and those of changed
	// manifests, again.
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

// ValidUnit reports whether name can be the unit of a Reload or Restart. Instances and templates (with @) can't: which
// instances run is known on the node only.
func ValidUnit(name string) bool {
	return len(name) <= maxUnitName && unitName.MatchString(name)
}

// Action is one thing to do on a node.
type Action struct {
	Type ActionType `json:"type"`
	// Unit is the systemd unit of a Reload or a Restart.
	Unit string `json:"unit,omitempty"`
	// Timeout is how long the action may take before it has failed, in nanoseconds where it is written as JSON. 0: nobody has
	// said, and who does the action decides.
	Timeout time.Duration `json:"timeout,omitempty"`
}

// String returns the action as people read it, for example "Restart kubelet.service". The timeout is not part of it.
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
		if err := CheckUnit(a.Type, a.Unit); err != nil {
			return err
		}
	case None, DaemonReload, TrustStoreUpdate, RebuildInitramfs, RebuildBootloader, NetworkReload, StaticPodRefresh, Drain, Reboot, Replace:
		if a.Unit != "" {
			return fmt.Errorf("action %s takes no unit, but names %q", a.Type, a.Unit)
		}
	default:
		return fmt.Errorf("unknown action %q", a.Type)
	}
	if a.Timeout < 0 {
		return fmt.Errorf("action %s: the timeout %s is negative", a, a.Timeout)
	}
	return nil
}

// Has reports whether an action of the type is among those of a list, whatever its unit and timeout.
func Has(actions []Action, t ActionType) bool {
	return slices.ContainsFunc(actions, func(a Action) bool { return a.Type == t })
}

// severity is the types from none to worst.
var severity = []ActionType{
	None, DaemonReload, TrustStoreUpdate, RebuildInitramfs, RebuildBootloader, Reload, Restart, NetworkReload, StaticPodRefresh, Drain, Reboot, Replace,
}

// sequence is the types as they are done: the node is empty before anything changes, and what others run from or read comes
// before what runs from it or reads it.
var sequence = []ActionType{
	None, Drain, DaemonReload, TrustStoreUpdate, NetworkReload, Reload, Restart, StaticPodRefresh, RebuildInitramfs, RebuildBootloader, Reboot, Replace,
}

// beforeBoot are the types that a reboot does not make needless: a boot reads what they make, and makes none of it.
var beforeBoot = []ActionType{TrustStoreUpdate, RebuildInitramfs, RebuildBootloader}

// Worst returns the one of the types that disturbs a node most. Of none it is None; a type that is not known is the worst.
func Worst(types ...ActionType) ActionType {
	worst := 0
	for _, t := range types {
		i := slices.Index(severity, t)
		if i < 0 {
			return t
		}
		worst = max(worst, i)
	}
	return severity[worst]
}

// Known reports whether it is one of the types that there are.
func (t ActionType) Known() bool { return slices.Contains(severity, t) }

// OrReplace returns the type, and Replace in the place of one that refit does not know: the worst is assumed.
func (t ActionType) OrReplace() ActionType {
	if !t.Known() {
		return Replace
	}
	return t
}

// place is where a type is in the sequence. One that is not known is last, so that nothing includes it.
func (t ActionType) place() int {
	if i := slices.Index(sequence, t); i >= 0 {
		return i
	}
	return len(sequence)
}

// compare orders actions as they are done, and those of one type by their units. Equal ones differ in their timeouts only.
func compare(a, b Action) int {
	return cmp.Or(a.Type.place()-b.Type.place(), strings.Compare(string(a.Type), string(b.Type)), strings.Compare(a.Unit, b.Unit))
}

// Merge joins lists of actions into the one list that makes all of their changes real, in the order in which it is run.
// Equal actions are done once, None vanishes beside others, and a Restart includes the Reload of the same unit. A Reboot includes
// all but what a boot only reads: the trust store, the initramfs and the boot loader's configuration are made before it. A Replace
// includes everything. Of the timeouts of equal actions the longest counts. The result does not depend on the order of the arguments.
func Merge(lists ...[]Action) []Action {
	all := slices.Concat(lists...)
	slices.SortFunc(all, func(a, b Action) int { return cmp.Or(compare(a, b), cmp.Compare(b.Timeout, a.Timeout)) })
	all = slices.CompactFunc(all, func(a, b Action) bool { return compare(a, b) == 0 })
	if len(all) == 0 {
		return nil
	}
	switch worst := all[len(all)-1]; worst.Type {
	case None:
		return []Action{{Type: None}}
	case Replace:
		return []Action{worst}
	case Reboot:
		return slices.DeleteFunc(all, func(a Action) bool { return a.Type != Reboot && !slices.Contains(beforeBoot, a.Type) })
	default:
	}
	return slices.DeleteFunc(all, func(a Action) bool {
		return a.Type == None || a.Type == Reload && slices.ContainsFunc(all, func(r Action) bool { return r.Type == Restart && r.Unit == a.Unit })
	})
}

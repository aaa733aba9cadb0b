package disruption

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// reserved are units that no action may name, because more than the unit changes with them (see systemd.special(7)).
type reserved struct {
	units []string
	// only is the one type of action that may not name them. Empty: none may.
	only ActionType
	// why they are refused, and what to use instead.
	why, instead string
}

// reservedUnits is the one list of them. The CRD of NodeDisruptionPolicies repeats it, and a test compares the two.
var reservedUnits = []reserved{
	{
		units: []string{
			"ctrl-alt-del.target", "default.target", "emergency.target", "exit.target", "factory-reset.target", "final.target",
			"halt.target", "hibernate.target", "hybrid-sleep.target", "initrd-fs.target", "initrd-root-device.target",
			"initrd-root-fs.target", "initrd-switch-root.target", "initrd-usr-fs.target", "initrd.target", "kexec.target",
			"poweroff.target", "reboot.target", "rescue.target", "runlevel0.target", "runlevel1.target", "runlevel2.target",
			"runlevel3.target", "runlevel4.target", "runlevel5.target", "runlevel6.target", "shutdown.target", "sigpwr.target",
			"sleep.target", "soft-reboot.target", "storage-target-mode.target", "suspend-then-hibernate.target", "suspend.target",
			"system-update-pre.target", "system-update.target", "umount.target",
			"emergency.service", "halt.service", "initrd-cleanup.service", "initrd-parse-etc.service", "initrd-switch-root.service",
			"initrd-udevadm-cleanup-db.service", "kexec.service", "killprocs.service", "poweroff.service", "reboot.service",
			"rescue.service", "shutdown.service", "single.service", "system-update-cleanup.service", "systemd-exit.service",
			"systemd-factory-reset-reboot.service", "systemd-factory-reset-request.service", "systemd-halt.service",
			"systemd-hibernate.service", "systemd-hybrid-sleep.service", "systemd-kexec.service", "systemd-poweroff.service",
			"systemd-reboot.service", "systemd-soft-reboot.service", "systemd-suspend-then-hibernate.service",
			"systemd-suspend.service", "systemd-sysupdate-reboot.service", "systemd-sysupdate-reboot.timer",
			"dnf-offline-updates.service", "dnf-system-upgrade.service", "dnf-system-upgrade-cleanup.service", "dnf5-offline-transaction.service",
			"dnf5-offline-transaction-cleanup.service", "fwupd-offline-update.service", "packagekit-offline-update.service",
		},
		why:     "it ends or changes the state of the whole system, and the node is not drained before",
		instead: "to restart the node, use an action of type Reboot",
	},
	{
		units: []string{
			"basic.target", "graphical.target", "local-fs.target", "multi-user.target", "sysinit.target",
			"-.mount", "dev.mount", "proc.mount", "run.mount", "sys.mount",
			"-.slice", "init.scope", "kubepods-besteffort.slice", "kubepods-burstable.slice", "kubepods.slice", "machine.slice",
			"system.slice", "user.slice",
		},
		why:     "what the whole system or its pods run in would be stopped with it",
		instead: "for new settings of it, use an action of type DaemonReload or Reboot",
	},
	{
		units:   []string{"dbus-broker.service", "dbus.service", "dbus.socket"},
		only:    Restart,
		why:     "what is connected to the message bus does not survive that",
		instead: "use an action of type Reload or Reboot",
	},
}

// actedOn are the types of units that an action may name. By a Restart of another type, such as a mount or a slice, what uses it is stopped
// with it, and nobody could list all of those that a node needs. systemd can reload a mount, by which it gets other options in its place.
var actedOn = map[ActionType][]string{
	Restart: {".service", ".socket", ".timer", ".path"},
	Reload:  {".service", ".socket", ".timer", ".path", ".mount"},
}

// ownUnits is how the names of refit's own units begin: a run on a node is one.
const ownUnits = "refit-"

// CheckUnit returns an error if an action of the type may not name the unit. It tells why, and what to use instead.
func CheckUnit(t ActionType, unit string) error {
	name := strings.ToLower(unit) // systemd tells them apart, and nobody has a Reboot.target of another meaning
	if strings.HasPrefix(name, ownUnits) {
		return fmt.Errorf("unit %s can't be named in actions: names that begin with %s are those of refit's own units; give the unit another name",
			unit, ownUnits)
	}
	for _, r := range reservedUnits {
		if (r.only == "" || r.only == t) && slices.Contains(r.units, name) {
			return fmt.Errorf("unit %s can't be named in an action of type %s: %s; %s", unit, t, r.why, r.instead)
		}
	}
	if types, ok := actedOn[t]; ok && unit != UnitOfPath && !slices.Contains(types, path.Ext(name)) {
		return fmt.Errorf("unit %s can't be named in an action of type %s: that is done to units of the types %s only, since what uses others is "+
			"stopped with them; for new settings of it, use an action of type DaemonReload or Reboot", unit, t, strings.Join(types, " "))
	}
	return nil
}

// ReservedUnits returns the names of all units that an action of the type may not name, sorted. Those of refit's own are not
// among them.
func ReservedUnits(t ActionType) []string {
	var all []string
	for _, r := range reservedUnits {
		if r.only == "" || r.only == t {
			all = append(all, r.units...)
		}
	}
	slices.Sort(all)
	return all
}

package disruption

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckUnit(t *testing.T) {
	for name, tc := range map[string]struct {
		action ActionType
		unit   string
		want   string
	}{
		"a service":                         {Restart, "kubelet.service", ""},
		"a container runtime":               {Restart, "crio.service", ""},
		"a program of systemd's":            {Restart, "systemd-sysctl.service", ""},
		"a socket":                          {Restart, "app.socket", ""},
		"a timer":                           {Restart, "app.timer", ""},
		"a path":                            {Restart, "app.path", ""},
		"a target of one's own":             {Restart, "app.target", "units of the types .service .socket .timer .path only"},
		"a slice of one's own":              {Restart, "app.slice", "use an action of type DaemonReload or Reboot"},
		"a name with a reserved one in it":  {Restart, "my-reboot.service", ""},
		"the data of etcd":                  {Restart, "var-lib-etcd.mount", "what uses others is stopped with them"},
		"a mount, in capitals":              {Restart, "Var-lib-kubelet.Mount", "what uses others is stopped with them"},
		"a mount that is made when used":    {Restart, "etc.automount", "what uses others is stopped with them"},
		"the root, made when used":          {Restart, "-.automount", "what uses others is stopped with them"},
		"the session of a user":             {Restart, "session-1.scope", "what uses others is stopped with them"},
		"the slice of a user":               {Restart, "user-0.slice", "what uses others is stopped with them"},
		"the slice of a pod":                {Restart, "kubepods-besteffort-pod1.slice", "what uses others is stopped with them"},
		"a device":                          {Restart, "dev-sda.device", "what uses others is stopped with them"},
		"swap space":                        {Reload, "dev-sda.swap", "what uses others is stopped with them"},
		"other options of a mount":          {Reload, "var.mount", ""},
		"other options of the root":         {Reload, "-.mount", "its pods"},
		"updates while nothing else runs":   {Restart, "packagekit-offline-update.service", "the node is not drained before"},
		"nothing":                           {Drain, "", ""},
		"the end of the system":             {Restart, "poweroff.target", "use an action of type Reboot"},
		"an alias of it":                    {Reload, "ctrl-alt-del.target", "use an action of type Reboot"},
		"the service behind it":             {Restart, "systemd-reboot.service", "the node is not drained before"},
		"in capitals":                       {Restart, "Reboot.Target", "unit Reboot.Target can't be named"},
		"what everything runs in":           {Restart, "system.slice", "use an action of type DaemonReload or Reboot"},
		"the mount of the root":             {Restart, "-.mount", "use an action of type DaemonReload or Reboot"},
		"the pods of a node":                {Restart, "kubepods.slice", "its pods"},
		"the message bus, to be restarted":  {Restart, "dbus.service", "use an action of type Reload or Reboot"},
		"the message bus, to be reloaded":   {Reload, "dbus.service", ""},
		"a run of refit's":                  {Restart, "refit-0a1b2c-7.service", "those of refit's own units"},
		"a unit that is named like a run":   {Reload, "refit-helper.service", "give the unit another name"},
		"one that only begins like refit's": {Reload, "refitting.service", ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckUnit(tc.action, tc.unit)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestReservedUnitsAreValidAndNotBuiltIn(t *testing.T) {
	all := ReservedUnits(Restart)
	for i, unit := range all {
		require.True(t, ValidUnit(unit), unit)
		require.True(t, i == 0 || all[i-1] < unit, "%s is there twice", unit)
		require.Equal(t, strings.ToLower(unit), unit)
	}
	require.NoError(t, BuiltinRules().Check())
}

func TestRulesAreChecked(t *testing.T) {
	bad := []Action{{Type: Drain}, {Type: Restart, Unit: "halt.target"}}
	for name, rules := range map[string]Rules{
		"a file":   {Files: Table{{Path: "/etc/app", Actions: bad}}},
		"a unit":   {Units: []UnitRule{{Name: "app.service", Actions: bad}}},
		"a domain": {Domains: map[Domain][]Action{NTP: bad}},
	} {
		t.Run(name, func(t *testing.T) { require.ErrorContains(t, rules.Check(), "halt.target") })
	}
}

func TestADropInOfAReservedUnitIsNotMadeInPlace(t *testing.T) {
	_, err := BuiltinRules().Actions("/etc/systemd/system/system.slice.d/memory.conf")
	require.ErrorContains(t, err, "unit system.slice can't be named in an action of type Restart")
	rules := Override(BuiltinRules(), PolicyRules{Name: "p", Rules: Rules{Units: []UnitRule{{Name: "system.slice", Actions: []Action{{Type: DaemonReload}}}}}})
	actions, err := rules.Actions("/etc/systemd/system/system.slice.d/memory.conf")
	require.NoError(t, err)
	require.Equal(t, []Action{{Type: DaemonReload}}, actions)
}

func TestReservedUnitsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/node-disruption.md")
	require.NoError(t, err)
	for _, unit := range ReservedUnits(Restart) {
		require.Contains(t, string(page), "`"+unit+"`")
	}
}

package disruption

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNamesOfInterfacesAreSeenToWork has an interface get another name at the next boot, and not before.
func TestNamesOfInterfacesAreSeenToWork(t *testing.T) {
	const (
		rules   = "/etc/udev/rules.d/70-net.rules"
		network = "[Drain NetworkReload]"
		udev    = "[Reload systemd-udevd.service]"
	)
	for name, tc := range map[string]struct{ path, before, after, want string }{
		"a link":                  {"/etc/systemd/network/10-lan.link", "", "[Link]\n", "[Drain NetworkReload Reboot]"},
		"a drop-in of one":        {"/etc/systemd/network/10-lan.link.d/a.conf", "", "[Link]\n", "[Drain NetworkReload Reboot]"},
		"a network":               {"/etc/systemd/network/10-lan.network", "", "[Network]\n", network},
		"a rule that names":       {rules, "", "SUBSYSTEM==\"net\", NAME=\"lan0\"\n", "[Reload systemd-udevd.service Reboot]"},
		"one that no longer does": {rules, "SUBSYSTEM==\"net\", \\\n NAME:=\"lan0\"\n", "", "[Reload systemd-udevd.service Reboot]"},
		"one that still does":     {rules, "NAME=\"lan0\"\n", "# ours\nNAME=\"lan0\"\n", udev},
		"one that matches a name": {rules, "", "NAME==\"lan0\", ENV{ID_NET_NAME}=\"a\", MODE=\"0600\"\n", udev},
		"one that is a comment":   {rules, "", "# NAME=\"lan0\"\n", udev},
	} {
		t.Run(name, func(t *testing.T) {
			actions, err := BuiltinRules().ActionsFor(tc.path, []byte(tc.before), []byte(tc.after))
			require.NoError(t, err)
			require.Equal(t, tc.want, fmt.Sprint(actions))
			r := BuiltinRules()
			r.Files = append(r.Files, Rule{Path: tc.path, Actions: []Action{{Type: Drain}}, From: "p", Unsafe: true})
			actions, err = r.ActionsFor(tc.path, []byte(tc.before), []byte(tc.after))
			require.NoError(t, err)
			require.Equal(t, "[Drain]", fmt.Sprint(actions))
		})
	}
}

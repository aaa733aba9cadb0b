package disruption

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func action(t ActionType, unit ...string) Action {
	a := Action{Type: t}
	if len(unit) > 0 {
		a.Unit = unit[0]
	}
	return a
}

func TestMerge(t *testing.T) {
	for name, tc := range map[string]struct{ in, want []Action }{
		"nothing":                              {nil, nil},
		"two Nones are one":                    {[]Action{action(None), action(None)}, []Action{action(None)}},
		"None vanishes beside Drain":           {[]Action{action(None), action(Drain)}, []Action{action(Drain)}},
		"equal actions are done once":          {[]Action{action(Reload, "a.service"), action(Reload, "a.service")}, []Action{action(Reload, "a.service")}},
		"unit files are read before a restart": {[]Action{action(Restart, "a.service"), action(DaemonReload)}, []Action{action(DaemonReload), action(Restart, "a.service")}},
		"reloads come before restarts":         {[]Action{action(Restart, "a.service"), action(Reload, "b.service")}, []Action{action(Reload, "b.service"), action(Restart, "a.service")}},
		"restart beats reload of the same unit": {
			[]Action{action(Reload, "crio.service"), action(Restart, "crio.service")}, []Action{action(Restart, "crio.service")},
		},
		"reboot swallows the rest":   {[]Action{action(Restart, "a.service"), action(Reboot), action(Drain)}, []Action{action(Reboot)}},
		"replace swallows even that": {[]Action{action(Reboot), action(Replace)}, []Action{action(Replace)}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, Merge(tc.in)) })
	}
}

func TestMergeTakesTheLongestTimeout(t *testing.T) {
	restart := func(timeout time.Duration) Action {
		return Action{Type: Restart, Unit: "a.service", Timeout: timeout}
	}
	for name, tc := range map[string]struct{ in, want []Action }{
		"of equal actions":                      {[]Action{restart(time.Minute), restart(2 * time.Minute)}, []Action{restart(2 * time.Minute)}},
		"one that nobody has said gives way":    {[]Action{restart(0), restart(time.Second)}, []Action{restart(time.Second)}},
		"that of a reload goes with the reload": {[]Action{{Type: Reload, Unit: "a.service", Timeout: time.Hour}, restart(time.Second)}, []Action{restart(time.Second)}},
		"that of a reboot stays":                {[]Action{restart(time.Hour), {Type: Reboot, Timeout: time.Minute}, {Type: Reboot}}, []Action{{Type: Reboot, Timeout: time.Minute}}},
		"None takes no time":                    {[]Action{{Type: None, Timeout: time.Second}}, []Action{{Type: None}}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, Merge(tc.in)) })
	}
}

// someActions draws lists of actions.
func someActions(least int) *rapid.Generator[[]Action] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Action {
		a := Action{
			Type:    rapid.SampledFrom(severity).Draw(t, "type"),
			Timeout: time.Duration(rapid.IntRange(0, 3).Draw(t, "minutes")) * time.Minute,
		}
		if a.Type == Reload || a.Type == Restart {
			a.Unit = rapid.SampledFrom([]string{"a.service", "b.service"}).Draw(t, "unit")
		}
		return a
	}), least, 6)
}

func TestMergeLaws(t *testing.T) {
	actions := someActions(0)
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := actions.Draw(t, "a"), actions.Draw(t, "b"), actions.Draw(t, "c")
		merged := Merge(a, b)
		require.Equal(t, merged, Merge(b, a), "the order of the arguments does not matter")
		require.Equal(t, Merge(merged, c), Merge(a, Merge(b, c)), "nor in which order they are merged")
		require.Equal(t, merged, Merge(merged, merged), "merging once more changes nothing")
		require.Equal(t, Worst(types(slices.Concat(a, b))...), Worst(types(merged)...), "it is as disruptive as the worst")
		for _, in := range slices.Concat(a, b) {
			require.True(t, slices.ContainsFunc(merged, func(out Action) bool { return out.includes(in) }), "%s is done", in)
		}
	})
}

// includes reports whether nothing is left of another action to do when this one is done.
func (a Action) includes(other Action) bool {
	switch {
	case other.Type == None || a.Type == Replace || a.Type == Reboot && other.Type != Replace && !slices.Contains(beforeBoot, other.Type):
		return true
	case a.Type == Restart && other.Type == Reload:
		return a.Unit == other.Unit
	}
	return a.Type == other.Type && a.Unit == other.Unit && a.Timeout >= other.Timeout
}

func TestHas(t *testing.T) {
	actions := []Action{{Type: Reboot, Timeout: time.Minute}, action(Restart, "a.service")}
	require.True(t, Has(actions, Reboot))
	require.True(t, Has(actions, Restart))
	require.False(t, Has(actions, Drain))
	require.False(t, Has(nil, None))
}

func TestBuiltin(t *testing.T) {
	for path, want := range map[string]string{
		"/var/lib/kubelet/config.json":                          "[None]",
		"/etc/containers/policy.json":                           "[Reload crio.service]",
		"/etc/containers/registries.d/a.yaml":                   "[Reload crio.service]",
		"/etc/containerd/certs.d/docker.io/hosts.toml":          "[None]",
		"/etc/kubernetes/credential-providers/config":           "[Restart kubelet.service]",
		"/etc/sysctl.d/90-k8s.conf":                             "[Restart systemd-sysctl.service]",
		"/etc/modules-load.d/k8s.conf":                          "[Restart systemd-modules-load.service]",
		"/etc/ssh/sshd_config.d/a.conf":                         "[Reload ssh.service]",
		"/etc/systemd/system/a.service":                         "[DaemonReload Restart a.service]",
		"/etc/systemd/system/kubelet.service.d/x.conf":          "[DaemonReload Restart kubelet.service]",
		"/etc/systemd/system/kubelet.service":                   "[DaemonReload Restart kubelet.service]",
		"/etc/systemd/system/containerd.service":                "[Drain DaemonReload Restart containerd.service]",
		"/etc/systemd/system/containerd.service.d/10.conf":      "[Drain DaemonReload Restart containerd.service]",
		"/etc/systemd/system/containerd.service.d/10.txt":       "/etc/systemd/system/containerd.service.d/10.txt is neither a unit nor a drop-in of one",
		"/etc/systemd/system/crio.service":                      "[Drain DaemonReload Restart crio.service]",
		"/etc/systemd/system/crio.service.d/10.conf":            "[Drain DaemonReload Restart crio.service]",
		"/etc/default/grub":                                     "[RebuildBootloader Reboot]",
		"/etc/default/grub.d/50-audit.cfg":                      "[RebuildBootloader Reboot]",
		"/etc/grub.d/40_custom":                                 "[RebuildBootloader Reboot]",
		"/etc/kernel/cmdline":                                   "[RebuildBootloader Reboot]",
		"/etc/kernelstub/configuration":                         "[RebuildBootloader Reboot]",
		"/etc/dracut.conf":                                      "[RebuildInitramfs Reboot]",
		"/etc/mkinitcpio.conf":                                  "[RebuildInitramfs Reboot]",
		"/etc/mkinitcpio.conf.d/a.conf":                         "[RebuildInitramfs Reboot]",
		"/etc/dracut.conf.d/a.conf":                             "[RebuildInitramfs Reboot]",
		"/etc/modprobe.d/a.conf":                                "[RebuildInitramfs Reboot]",
		"/etc/netplan/50.yaml":                                  "[Drain NetworkReload]",
		"/etc/network/interfaces":                               "[Drain NetworkReload]",
		"/etc/systemd/network/10.network":                       "[Drain NetworkReload]",
		"/etc/udev/rules.d/70.rules":                            "[Reload systemd-udevd.service]",
		"/etc/tmpfiles.d/a.conf":                                "[None]",
		"/etc/systemd/journald.conf.d/a.conf":                   "[Restart systemd-journald.service]",
		"/etc/motd":                                             "[None]",
		"/etc/containers/registries.conf":                       "[Drain Reload crio.service]",
		"/etc/containerd/config.toml":                           "[Drain Restart containerd.service]",
		"/etc/containerd/conf.d/a.toml":                         "[Drain Restart containerd.service]",
		"/etc/kubernetes/manifests/a.yaml":                      "[StaticPodRefresh]",
		"/etc/pki/ca-trust/source/anchors/ca.pem":               "[TrustStoreUpdate Restart containerd.service Restart crio.service]",
		"/usr/local/share/ca-certificates/ca.crt":               "[TrustStoreUpdate Restart containerd.service Restart crio.service]",
		"/etc/systemd/system/multi-user.target.wants/a.service": "/etc/systemd/system/multi-user.target.wants/a.service is neither a unit nor a drop-in of one",
		"/etc/systemd/system/a@.service":                        "/etc/systemd/system/a@.service is neither a unit nor a drop-in of one",
		"/etc/systemd/system/a.service.d/x/y.conf":              "/etc/systemd/system/a.service.d/x/y.conf is neither a unit nor a drop-in of one",
		"/etc/systemd/system/.service":                          "/etc/systemd/system/.service is neither a unit nor a drop-in of one",
		"/etc/systemd/system/notes.txt":                         "/etc/systemd/system/notes.txt is neither a unit nor a drop-in of one",
		"/etc/issuefoo":                                         "no rule says what a change of /etc/issuefoo takes on a node; say it in a NodeDisruptionPolicy, or name its directory with --allow-paths if it takes nothing",
		"etc/motd":                                              `path "etc/motd" is not absolute`,
		"/etc/cron.d/../shadow":                                 `path "/etc/cron.d/../shadow" is not clean; write it as "/etc/shadow"`,
	} {
		t.Run(path, func(t *testing.T) {
			actions, err := Builtin().Actions(path)
			if err != nil {
				require.Equal(t, want, err.Error())
				return
			}
			require.Equal(t, want, fmt.Sprint(actions))
			require.Equal(t, Merge(actions), actions, "they are in the order in which they are run")
		})
	}
}

func TestLongestPathWins(t *testing.T) {
	rule := func(p, unit string) Rule { return Rule{Path: p, Actions: []Action{action(Restart, unit)}} }
	table := Table{rule("/f1/f2", "two.service"), rule("/f1", "one.service"), rule("/f1/f2/f3", "three.service")}
	for path, want := range map[string]string{
		"/f1/f2/example": "two.service",
		"/f1/f2":         "two.service",
		"/f1/f2/f3/x":    "three.service",
		"/f1/f2f3":       "one.service",
	} {
		got, err := table.Actions(path)
		require.NoError(t, err)
		require.Equal(t, want, got[0].Unit, path)
	}
	_, err := Table{rule("/f1/f2", "two.service")}.Actions("/f1/sibling")
	require.Error(t, err)
	got, err := append(table, rule("/f1/f2", "later.service")).Actions("/f1/f2/x")
	require.NoError(t, err)
	require.Equal(t, "later.service", got[0].Unit, "between equal paths the later rule wins")
}

func TestWhatIsNotDoneInPlace(t *testing.T) {
	table := func(a ActionType) Table { return Table{{Path: "/etc/app", Actions: []Action{{Type: a}}}} }
	for _, done := range []ActionType{None, DaemonReload, TrustStoreUpdate, RebuildInitramfs, RebuildBootloader, NetworkReload, StaticPodRefresh, Drain, Reboot} {
		got, err := table(done).Actions("/etc/app/a")
		require.NoError(t, err)
		require.Equal(t, []Action{action(done)}, got)
	}
	for refused, why := range map[ActionType]string{
		Replace:   "a change of /etc/app/a is not made in place: the rule for it says Replace",
		"Explode": `rule for /etc/app: unknown action "Explode"`,
	} {
		_, err := table(refused).Actions("/etc/app/a")
		require.EqualError(t, err, why)
	}
}

func TestAllowPaths(t *testing.T) {
	table, err := AllowPaths([]string{"/etc/app/", "/opt/x"})
	require.NoError(t, err)
	for _, p := range []string{"/etc/app/a", "/etc/app", "/opt/x/y/z"} {
		actions, err := table.Actions(p)
		require.NoError(t, err)
		require.Equal(t, []Action{action(None)}, actions)
	}
	table, err = AllowPaths([]string{"/etc/boot.d/=Reboot", "/opt/x=Drain"})
	require.NoError(t, err)
	require.Equal(t, Table{{Path: "/etc/boot.d", Actions: []Action{action(Reboot)}}, {Path: "/opt/x", Actions: []Action{action(Drain)}}}, table)
	for _, bad := range []string{"/", "etc", "/etc/../x", "", "/opt/x=", "/opt/x=Rebot", "/opt/x=Replace"} {
		_, err := AllowPaths([]string{bad})
		require.Error(t, err, bad)
	}
}

func TestValidate(t *testing.T) {
	for _, bad := range []Action{
		action(Reload), action(Restart, ".service"), action(Restart, "a.unknown"), action(Restart, "a b.service"),
		action(None, "a.service"), action("Explode"), action(Restart, UnitOfPath), action(TrustStoreUpdate, "a.service"),
		{Type: Drain, Timeout: -1},
	} {
		require.Error(t, bad.Validate(), "%v", bad)
	}
	for _, good := range []Action{action(None), action(DaemonReload), action(Reload, "crio.service"), action(Restart, "app.socket")} {
		require.NoError(t, good.Validate(), "%v", good)
	}
}

// TestBuiltinIsDocumented holds the table of the page to the rules.
func TestBuiltinIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/node-disruption.md")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(page), "\n## What is built in\n")
	table, _, _ := strings.Cut(strings.TrimSpace(rest), "\n\n")
	lines := strings.Split(table, "\n")
	require.Equal(t, []string{"| what | actions | probe | undo |", "|---|---|---|---|"}, lines[:2])
	lines = lines[2:]
	rules := BuiltinRules().Describe()
	require.Len(t, lines, len(rules), "one row for each rule")
	for i, d := range rules {
		what := d.Kind
		if d.Name != "" {
			what = "`" + d.Name + "`"
		}
		row := strings.Split(strings.Trim(lines[i], "| "), " | ")
		require.Len(t, row, 4, lines[i])
		require.Equal(t, []string{what, strings.Join(d.Actions, ", ")}, row[:2])
		for _, cell := range row[2:] {
			require.NotEmpty(t, strings.TrimSpace(cell), "%s: how it is seen to be in effect, and how it is taken back", what)
		}
	}
}

package disruption

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// take returns what a change of several files takes, as the agent finds it.
func (r Rules) take(paths ...string) (string, error) {
	var lists [][]Action
	var errs []error
	for _, p := range paths {
		actions, err := r.Actions(p)
		lists, errs = append(lists, actions), append(errs, err)
	}
	return fmt.Sprint(Merge(lists...)), errors.Join(errs...)
}

// TestFacts has what the tests of OpenShift's machine-config-operator pin about files. What they say of registries.conf is in
// TestRegistriesByMeaning.
func TestFacts(t *testing.T) {
	builtin := BuiltinRules()
	over := func(files map[string][]Action) Rules { return Override(builtin, policy("p", files)) }
	restart := func(unit string) []Action { return []Action{action(Restart, unit)} }
	f1 := over(map[string][]Action{"/f1": restart("one.service"), "/f1/f2": restart("two.service"), "/f1/f2/f3": restart("three.service")})
	for name, tc := range map[string]struct {
		rules Rules
		paths []string
		want  string // "": not in place
	}{
		"an unknown file is not changed in place":   {builtin, []string{"/etc/unknown"}, ""},
		"a pull secret takes nothing":               {builtin, []string{"/var/lib/kubelet/config.json"}, "[None]"},
		"policy.json takes a reload":                {builtin, []string{"/etc/containers/policy.json"}, "[Reload crio.service]"},
		"a CA bundle beside policy.json restarts":   {builtin, []string{"/etc/pki/ca-trust/source/anchors/ca.crt", "/etc/containers/policy.json"}, "[TrustStoreUpdate Restart containerd.service Restart crio.service]"},
		"one unknown file among harmless ones":      {builtin, []string{"/etc/motd", "/var/lib/kubelet/config.json", "/etc/unknown"}, ""},
		"the longest of several paths":              {f1, []string{"/f1/f2/example"}, "[Restart two.service]"},
		"an exact path beats its parents":           {f1, []string{"/f1/f2/f3"}, "[Restart three.service]"},
		"siblings say nothing":                      {over(map[string][]Action{"/f1/f2": {action(None)}, "/f1/f3": {action(None)}}), []string{"/f1/f4"}, ""},
		"a path is not the beginning of a name":     {over(map[string][]Action{"/etc/foo": {action(None)}}), []string{"/etc/foobar"}, ""},
		"there are no wildcards":                    {over(map[string][]Action{"/etc/foo/*": {action(None)}}), []string{"/etc/foo/bar"}, ""},
		"None and Drain is Drain":                   {over(map[string][]Action{"/a": {action(None)}, "/b": {action(Drain)}}), []string{"/a", "/b"}, "[Drain]"},
		"two Nones are one":                         {builtin, []string{"/etc/motd", "/etc/issue"}, "[None]"},
		"reloads of one unit are one":               {builtin, []string{"/etc/containers/policy.json", "/etc/crio/policies/a"}, "[Reload crio.service]"},
		"a reboot swallows the rest":                {over(map[string][]Action{"/boot": {action(Reboot)}}), []string{"/boot/x", "/etc/containerd/config.toml"}, "[Reboot]"},
		"a reboot does not make what it reads":      {builtin, []string{"/etc/default/grub.d/a.cfg", "/etc/modprobe.d/a.conf", "/usr/local/share/ca-certificates/a.crt", "/etc/netplan/a.yaml"}, "[TrustStoreUpdate RebuildInitramfs RebuildBootloader Reboot]"},
		"the network is there before units restart": {builtin, []string{"/etc/systemd/resolved.conf", "/etc/netplan/a.yaml"}, "[Drain NetworkReload Restart systemd-resolved.service]"},
		"unit files are read before units restart":  {builtin, []string{"/etc/sysctl.d/a.conf", "/etc/systemd/system/z.service"}, "[DaemonReload Restart systemd-sysctl.service Restart z.service]"},
		"Replace is not in place beside a reboot":   {over(map[string][]Action{"/boot": {action(Reboot)}, "/x": {action(Replace)}}), []string{"/boot/x", "/x"}, ""},
		"an operator's entry replaces the built-in": {over(map[string][]Action{"/etc/unknown": {action(None)}, "/etc/motd": {action(Drain)}}), []string{"/etc/unknown", "/etc/motd"}, "[Drain]"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.rules.take(tc.paths...)
			if tc.want == "" {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
	t.Run("a key takes nothing", func(t *testing.T) {
		actions, err := builtin.Domain(SSHKeys)
		require.NoError(t, err)
		require.Equal(t, []Action{action(None)}, actions)
	})
	t.Run("a pull secret beside a harmless registries.conf reloads only", func(t *testing.T) {
		secret, err := builtin.ActionsFor("/var/lib/kubelet/config.json", nil, nil)
		require.NoError(t, err)
		mirrors, err := builtin.ActionsFor(RegistriesConf, []byte{}, []byte("[[registry]]\nlocation = \"x.io\"\nmirror-by-digest-only = true\n"))
		require.NoError(t, err)
		require.Equal(t, "[Reload crio.service]", fmt.Sprint(Merge(secret, mirrors)))
	})
	t.Run("registries.conf that is removed reloads", func(t *testing.T) {
		actions, err := builtin.ActionsFor(RegistriesConf, []byte("# nothing that is looked up\n"), []byte{})
		require.NoError(t, err)
		require.Equal(t, "[Reload crio.service]", fmt.Sprint(actions))
	})
}

// TestTheFirstUpdateIsOneInPlace: whoever follows docs/tutorial.md does not have the machine replaced.
func TestTheFirstUpdateIsOneInPlace(t *testing.T) {
	page, err := os.ReadFile("../../docs/tutorial.md")
	require.NoError(t, err)
	files := regexp.MustCompile(`path: (/[^,}]+)`).FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, files)
	for _, file := range files {
		got, err := BuiltinRules().take(file[1])
		require.NoError(t, err)
		require.Equal(t, "[None]", got, "%s", file[1])
	}
}

package disruption

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestContainersAreNotLeftBehind: a containerd that is restarted with another root, or state, knows of none of its containers.
func TestContainersAreNotLeftBehind(t *testing.T) {
	const (
		restart = "[Drain Restart containerd.service]"
		reboot  = "[Drain Restart containerd.service Reboot]"
		plugin  = "[plugins.'io.containerd.snapshotter.v1.overlayfs']\n"
	)
	for name, tc := range map[string]struct{ path, before, after, want string }{
		"another root":                   {ContainerdConfig, "version = 2\n", "version = 2\nroot = \"/data/containerd\"\n", reboot},
		"another state":                  {ContainerdConfig, "state = \"/run/a\"\n", "state = \"/run/b\"\n", reboot},
		"the root of before":             {ContainerdConfig, "root = \"/data/containerd\"\n", "", reboot},
		"the default, said aloud":        {ContainerdConfig, "", "root = \"/var/lib/containerd\"\nstate = \"/run/containerd\"\n", restart},
		"with a slash at its end":        {ContainerdConfig, "root = \"/data\"\n", "root = \"/data/\"\n", restart},
		"beside a plugin that is none":   {ContainerdConfig, "", "root = \"/data\"\n[plugins]\nx = 1\n", reboot},
		"snapshots elsewhere":            {ContainerdConfig, "", plugin + "root_path = \"/data\"\n", reboot},
		"something else of a plugin":     {ContainerdConfig, "", plugin + "upperdir_label = true\n", restart},
		"by a file that is imported":     {"/etc/containerd/conf.d/root.toml", "", "root = \"/data/containerd\"\n", reboot},
		"an import that is about others": {"/etc/containerd/conf.d/root.toml", "", "oom_score = -999\n", restart},
		"no TOML":                        {ContainerdConfig, "", "root = \n", restart},
	} {
		t.Run(name, func(t *testing.T) {
			actions, err := BuiltinRules().ActionsFor(tc.path, []byte(tc.before), []byte(tc.after))
			require.NoError(t, err)
			require.Equal(t, tc.want, fmt.Sprint(actions))
		})
	}
	t.Run("what is not known the node knows", func(t *testing.T) {
		actions, err := BuiltinRules().ActionsFor(ContainerdConfig, nil, []byte("root = \"/data\""))
		require.NoError(t, err)
		require.Equal(t, restart, fmt.Sprint(actions))
	})
	t.Run("a policy's own rule is no way around", func(t *testing.T) {
		rules := BuiltinRules()
		rules.Files = append(Table{{Path: ContainerdConfig, From: "p", Actions: []Action{{Type: Restart, Unit: "containerd.service"}}}}, rules.Files...)
		actions, err := rules.ActionsFor(ContainerdConfig, []byte{}, []byte("root = \"/data\""))
		require.NoError(t, err)
		require.Equal(t, "Reboot", actions[len(actions)-1].String())
	})
}

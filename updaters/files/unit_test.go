package files_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/node"
)

func TestDesireEnablesUnitsWithTheirFiles(t *testing.T) {
	const installed = "[Service]\nExecStart=/bin/app\n\n[Install]\nWantedBy=multi-user.target\n"
	for name, tc := range map[string]struct {
		path, content string
		want          string // the unit; empty: none is enabled
	}{
		"a service":                        {"/etc/systemd/system/app.service", installed, "app.service"},
		"a timer":                          {"/etc/systemd/system/app.timer", "[Install]\nRequiredBy=timers.target", "app.timer"},
		"a mount":                          {"/etc/systemd/system/srv-data.mount", installed, "srv-data.mount"},
		"another name":                     {"/etc/systemd/system/app.service", "[Install]\nAlias=other.service\n", "app.service"},
		"blanks, and a line that goes on":  {"/etc/systemd/system/app.service", "[Install]\n  WantedBy = \\\n  a.target\n", "app.service"},
		"an empty value, and one after it": {"/etc/systemd/system/app.service", "[Install]\nWantedBy=\nWantedBy=a.target\n", "app.service"},
		"a value that is taken back":       {"/etc/systemd/system/app.service", "[Install]\nWantedBy=a.target\nWantedBy=\n", ""},
		"no section for it":                {"/etc/systemd/system/app.service", "[Service]\nExecStart=/bin/app\n", ""},
		"a setting of another section":     {"/etc/systemd/system/app.service", "[Install]\n[Unit]\nWantedBy=a.target\n", ""},
		"a comment":                        {"/etc/systemd/system/app.service", "[Install]\n#WantedBy=a.target\n; WantedBy=a.target\n", ""},
		"others are enabled with it":       {"/etc/systemd/system/app.service", installed + "Also=ssh.service\n", ""},
		"a template":                       {"/etc/systemd/system/app@.service", installed, ""},
		"an instance":                      {"/etc/systemd/system/app@a.service", installed, ""},
		"a drop-in":                        {"/etc/systemd/system/app.service.d/a.conf", installed, ""},
		"a link that enables":              {"/etc/systemd/system/multi-user.target.wants/app.service", installed, ""},
		"no unit":                          {"/etc/systemd/system/notes.txt", installed, ""},
		"a unit elsewhere":                 {"/usr/lib/systemd/system/app.service", installed, ""},
		"one of refit's":                   {"/etc/systemd/system/refit-resume.service", installed, ""},
		"one that ends the system":         {"/etc/systemd/system/reboot.target", installed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := updater(t).Desire(desired(t, fmt.Sprintf(`{"files":[{"path":%q,"content":%q}]}`, tc.path, tc.content)))
			require.NoError(t, err)
			require.Equal(t, tc.path, got[0].File.Path)
			if tc.want == "" {
				require.Len(t, got, 1)
				return
			}
			require.Equal(t, []node.Resource{{Unit: &node.Unit{Name: tc.want, Enabled: new(true), File: tc.path}}}, got[1:])
		})
	}
	t.Run("not with a file that is left alone", func(t *testing.T) {
		got, err := updater(t).Desire(desired(t, fmt.Sprintf(`{"files":[{"path":"/etc/systemd/system/app.service","content":%q,"append":true}]}`, installed)))
		require.NoError(t, err)
		require.Equal(t, []node.Resource{{File: &node.File{Path: "/etc/systemd/system/app.service", Unmanaged: true}}}, got)
	})
}

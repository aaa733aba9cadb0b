//go:build e2e

package updates

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
)

// rowPackages are what reads the files of the rows, for all machines in one image: Debian has them beside one another.
var rowPackages = []string{
	"containerd", "systemd-resolved", "logrotate", "cron", "udev", "grub2-common", "initramfs-tools", "dracut-core",
	"netplan.io", "network-manager", "libpam-systemd", "ifupdown", "curl",
	"skopeo", "netavark", // one of those that skopeo's files need
}

// TestBuiltinRowsInEffect has the files of the rows come by the built-in rules, looks for each at what the machine does with it, has them go,
// and looks again.
func TestBuiltinRowsInEffect(t *testing.T) {
	t.Parallel()
	show := func(batches []batch) func(*testing.T) {
		return func(t *testing.T) {
			m := newMachineWith(t, rowPackages...)
			m.rules = disruption.BuiltinRules()
			for _, b := range batches {
				m.run(b.name, func(*testing.T) { m.showRows(b) })
			}
		}
	}
	t.Run("while it runs", show(whileRunning))
	t.Run("by booting", show(byBooting))
}

// showRows has the files of a batch come, and go.
func (m *machine) showRows(b batch) {
	m.t.Helper()
	m.agent = m.again() // the connection of the batch before may have ended with it
	for _, command := range b.prepare {
		m.sh(command)
	}
	var files []string
	for _, path := range slices.Sorted(maps.Keys(b.rows)) {
		for _, f := range b.rows[path].files {
			files = append(files, f.entry())
		}
	}
	m.update(spec(files...))
	for _, path := range slices.Sorted(maps.Keys(b.rows)) {
		m.run(path, func(t *testing.T) {
			require.Contains(t, m.sh(b.rows[path].shows), b.rows[path].want, "the files are there")
		})
	}
	m.update(spec())
	for _, path := range slices.Sorted(maps.Keys(b.rows)) {
		m.run(path+" is gone", func(t *testing.T) {
			require.NotContains(t, m.sh(b.rows[path].shows), b.rows[path].want, "the files are gone")
		})
	}
}

// entry returns the file as spec.files has it.
func (f rowFile) entry() string {
	entry := file(f.path, f.content)
	if f.mode == "" {
		return entry
	}
	return strings.TrimSuffix(entry, "}") + `,"permissions":"` + f.mode + `"}`
}

//go:build e2e

package updates

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSudoersThroughFiles has the genuine visudo read rules before they are written.
func TestSudoersThroughFiles(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	rules := func(path, content string) string {
		return fmt.Sprintf(`{"path":%q,"content":%q,"permissions":"0440"}`, path, content)
	}
	const app = "/etc/sudoers.d/app"

	m.run("rules come, and go", func(t *testing.T) {
		m.update(spec(rules(app, "nobody ALL=(root) NOPASSWD: /usr/bin/whoami\n")))
		m.sh("visudo -c -q")
		require.Equal(t, "root", m.sh("su -s /bin/sh nobody -c 'sudo -n /usr/bin/whoami'"))
		m.update(spec())
		m.sh("! su -s /bin/sh nobody -c 'sudo -n /usr/bin/whoami' 2>/dev/null")
	})
	m.run("rules that sudo does not parse change nothing", func(t *testing.T) {
		require.Contains(t, m.blocked(spec(rules(app, "nobody ALL=(root NOPASSWD\n"))), "visudo does not accept "+app)
		require.Contains(t, m.blocked(spec(rules("/etc/sudoers", "@includedir /etc/sudoers.d\nroot\n"))), "visudo does not accept /etc/sudoers")
		m.sh("visudo -c -q && test ! -e " + app)
	})
	m.run("an alias that is there twice changes nothing", func(t *testing.T) {
		reason := m.blocked(spec(rules(app, "Cmnd_Alias APP = /bin/true\n"), rules(app+"2", "Cmnd_Alias APP = /bin/false\n")))
		require.Contains(t, reason, "an alias may be there twice")
	})
	m.run("rules that others could write change nothing", func(t *testing.T) {
		reason := m.blocked(`{"files":[{"path":"` + app + `","content":"nobody ALL=(root) /bin/true\n","permissions":"0666"}]}`)
		require.Contains(t, reason, "give it the mode 0440")
	})
	m.run("the main file of sshd is tested", func(t *testing.T) {
		status := m.fail(spec(file("/etc/ssh/sshd_config", "NoSuchOption yes\n")))
		require.Contains(t, status.Message, "sshd -t does not accept")
		m.sh("sshd -t")
	})
}

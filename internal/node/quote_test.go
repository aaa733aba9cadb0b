package node

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "plain", "it's", `'\''`, "$(reboot) `reboot` ${x} \\", "a\nb", "-n", "\xff", "!x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.ContainsRune(s, 0) {
			t.Skip("no argument has a NUL")
		}
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+quote(s)).Output()
		require.NoError(t, err)
		assert.Equal(t, s, string(out))
	})
}

func TestShell(t *testing.T) {
	agents := &Agents{binaries: []AgentBinary{{Arch: "amd64", SHA256: strings.Repeat("a", 64)}, {Arch: "arm64", SHA256: strings.Repeat("b", 64)}}}
	for name, test := range map[string]struct {
		opts ClientOptions
		want string
	}{
		"as it is": {
			opts: ClientOptions{Agents: agents},
			want: `sh -c 'case $(uname -m) in x86_64|amd64) a=refit-node-aaaaaaaaaaaaaaaa;; aarch64|arm64) a=refit-node-bbbbbbbbbbbbbbbb;; *) exit 127;; esac; ` +
				`exec '\''/var/lib/refit/bin'\''/$a plan'`,
		},
		"with sudo, in a directory of its own": {
			opts: ClientOptions{Agents: agents, Dir: "-it's", Sudo: true},
			want: `sudo -n -- sh -c 'case $(uname -m) in x86_64|amd64) a=refit-node-aaaaaaaaaaaaaaaa;; aarch64|arm64) a=refit-node-bbbbbbbbbbbbbbbb;; *) exit 127;; esac; ` +
				`exec '\''./-it'\''\'\'''\''s'\''/$a plan'`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := NewClient(nil, test.opts)
			require.NoError(t, err)
			assert.Equal(t, test.want, c.shell(c.opts.Agents.script(c.opts.Dir, "plan")))
		})
	}
}

func TestTail(t *testing.T) {
	var end tail
	for range 1000 {
		_, err := end.Write([]byte("0123456789\n"))
		require.NoError(t, err)
	}
	_, err := end.Write([]byte("the end"))
	require.NoError(t, err)
	assert.LessOrEqual(t, len(end.String()), maxStderr)
	assert.True(t, strings.HasSuffix(end.String(), "the end"))
}

func TestBegin(t *testing.T) {
	assert.Equal(t, "a b", begin("\x1b a\n\tb\x00", 80))
	assert.Equal(t, "ab…", begin("abc", 2))
}

package remote

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
	a, b := strings.Repeat("a", 64), strings.Repeat("b", 64)
	agents := &Agents{binaries: []AgentBinary{{Arch: "amd64", SHA256: a}, {Arch: "arm64", SHA256: b}}}
	for name, test := range map[string]struct {
		opts ClientOptions
		// want is asked as long as it is not known what machine the node is, known from then on.
		want, known string
	}{
		"as it is": {
			opts: ClientOptions{Agents: agents},
			want: "sh -c " + quote(`m=$(uname -m); case $m in x86_64|amd64) set -- '/var/lib/refit/bin/refit-node-aaaaaaaaaaaaaaaa' `+a+` plan;; `+
				`aarch64|arm64) set -- '/var/lib/refit/bin/refit-node-bbbbbbbbbbbbbbbb' `+b+` plan;; *) exit 127;; esac; echo "refit-node runs on $m"`+"\n"+runScript),
			known: "sh -c " + quote(runScript) + ` refit '/var/lib/refit/bin/refit-node-aaaaaaaaaaaaaaaa' '` + a + `' 'plan'`,
		},
		"with sudo, in a directory of its own": {
			opts: ClientOptions{Agents: agents, Dir: "-it's", Sudo: true},
			want: "sudo -n -- sh -c " + quote(`m=$(uname -m); case $m in x86_64|amd64) set -- './-it'\''s/refit-node-aaaaaaaaaaaaaaaa' `+a+` plan;; `+
				`aarch64|arm64) set -- './-it'\''s/refit-node-bbbbbbbbbbbbbbbb' `+b+` plan;; *) exit 127;; esac; echo "refit-node runs on $m"`+"\n"+runScript),
			known: "sudo -n -- sh -c " + quote(runScript) + ` refit './-it'\''s/refit-node-aaaaaaaaaaaaaaaa' '` + a + `' 'plan'`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := NewClient(nil, test.opts)
			require.NoError(t, err)
			assert.Equal(t, test.want, c.command(c.agent.Load(), "plan"))
			assert.Equal(t, "{}", string(c.learn([]byte("refit-node runs on x86_64\n{}"))))
			assert.Equal(t, test.known, c.command(c.agent.Load(), "plan"))
		})
	}
}

func TestLearn(t *testing.T) {
	for name, test := range map[string]struct{ out, answer, agent string }{
		"what it is, and an answer":         {"refit-node runs on aarch64\n{}\n", "{}\n", "refit-node-bbbbbbbbbbbbbbbb"},
		"what it is, and nothing else":      {"refit-node runs on x86_64\n", "", "refit-node-aaaaaaaaaaaaaaaa"},
		"what no agent is for":              {"refit-node runs on riscv64\n{}", "{}", ""},
		"what it is, but in the second one": {"Welcome\nrefit-node runs on x86_64\n{}", "Welcome\nrefit-node runs on x86_64\n{}", ""},
		"half a line":                       {"refit-node runs on x86_64", "refit-node runs on x86_64", ""},
		"an answer only":                    {"{}\n", "{}\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := &Client{opts: ClientOptions{Agents: &Agents{binaries: []AgentBinary{
				{Arch: "amd64", SHA256: strings.Repeat("a", 64)}, {Arch: "arm64", SHA256: strings.Repeat("b", 64)},
			}}}}
			assert.Equal(t, test.answer, string(c.learn([]byte(test.out))))
			known := ""
			if agent := c.agent.Load(); agent != nil {
				known = agent.Name()
			}
			assert.Equal(t, test.agent, known)
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

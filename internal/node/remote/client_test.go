package remote_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/nodetest"
	"github.com/capi-refit/refit/internal/node/remote"
)

// scriptAgent is an agent as far as the client can tell. The verb "plan" gives back its stdin as the digest.
const scriptAgent = `#!/bin/sh
case $1 in
version) printf '{"identity":{"protocol":%s,"version":"test","sha256":"%s"}}\n' "${PROTOCOL:-3}" "$(sha256sum "$0" | cut -d' ' -f1)" ;;
plan) printf '{"plan":{"digest":"%s"}}' "$(cat | tr -cd '[:alnum:]{}:,')" ;;
apply) echo '{"error":{"reason":"Stale","message":"a higher token was seen"}}'; exit 1 ;;
status) cat >/dev/null; echo '{"status":{"state":"Running","done":3,"total":5}}' ;;
esac
`

// agents makes an agent directory with the script under both names.
func agents(t *testing.T, script string) *remote.Agents {
	t.Helper()
	dir := t.TempDir()
	for _, arch := range []string{"amd64", "arm64"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "refit-node-linux-"+arch), []byte(script), 0o600))
	}
	a, err := remote.LoadAgents(dir)
	require.NoError(t, err)
	return a
}

func client(t *testing.T, n *nodetest.Node, script string) *remote.Client {
	t.Helper()
	c, err := remote.NewClient(dial(t, target(t, n)), remote.ClientOptions{Agents: agents(t, script), Dir: "bin-refit"})
	require.NoError(t, err)
	return c
}

// inDir lists the agent directory.
func inDir(t *testing.T, n *nodetest.Node) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(n.Root(), "bin-refit"))
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func nameOf(script string) string {
	sum := sha256.Sum256([]byte(script))
	return "refit-node-" + hex.EncodeToString(sum[:])[:16]
}

func TestClient(t *testing.T) {
	n := start(t, nodetest.Options{})
	c := client(t, n, scriptAgent)

	id, err := c.Identity(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "test", id.Version)
	assert.Equal(t, []string{nameOf(scriptAgent)}, inDir(t, n))
	brought := len(n.Commands())
	assert.Equal(t, 4, brought, "it is not there, what machine is it, bring it, run it")

	plan, err := c.Plan(t.Context(), node.Request{Digest: "abc"})
	require.NoError(t, err)
	assert.Contains(t, plan.Digest, "protocol:3")
	assert.Contains(t, plan.Digest, "digest:abc")

	status, err := c.Status(t.Context(), node.StatusRequest{})
	require.NoError(t, err)
	assert.Equal(t, node.Status{State: node.Running, Done: 3, Total: 5}, status)

	_, err = c.Apply(t.Context(), node.Request{})
	var refused *node.AgentError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, node.ReasonStale, refused.Reason)

	assert.Len(t, n.Commands(), brought+3, "an agent that is there takes one round trip a call")
	for _, command := range n.Commands()[brought:] {
		assert.Contains(t, command, "./bin-refit/"+nameOf(scriptAgent), "what machine the node is, is asked once")
		assert.NotContains(t, command, "uname")
	}
}

func TestBringTheAgentAgain(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"it was removed":                   os.Remove,
		"it can't be run":                  func(path string) error { return os.Chmod(path, 0o600) },
		"a power failure has emptied it":   func(path string) error { return os.Truncate(path, 0) },
		"it is another one under the name": func(path string) error { return os.WriteFile(path, []byte(scriptAgent+"# another\n"), 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t, nodetest.Options{})
			c := client(t, n, scriptAgent)
			_, err := c.Identity(t.Context())
			require.NoError(t, err)

			path := filepath.Join(n.Root(), "bin-refit", nameOf(scriptAgent))
			require.NoError(t, spoil(path))
			_, err = c.Identity(t.Context())
			require.NoError(t, err)
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.Equal(t, scriptAgent, string(data))
		})
	}
}

// TestRestrictedShell: a shell that takes no names with a slash, as rbash, is no reason not to come in.
func TestRestrictedShell(t *testing.T) {
	n := start(t, nodetest.Options{})
	c, err := remote.NewClient(restricted{dial(t, target(t, n))}, remote.ClientOptions{Agents: agents(t, scriptAgent), Dir: "bin-refit"})
	require.NoError(t, err)
	for range 3 {
		_, err := c.Plan(t.Context(), node.Request{Digest: "abc"})
		require.NoError(t, err)
	}
	assert.Len(t, n.Commands(), 3+3, "the first three bring the agent")
}

type restricted struct{ remote.Conn }

func (r restricted) Run(ctx context.Context, command string, stdin io.Reader, stdout io.Writer) error {
	if strings.HasPrefix(command, "'./") {
		return &remote.CommandError{Status: 1, Stderr: "restricted: cannot specify `/' in command names"}
	}
	return r.Conn.Run(ctx, command, stdin, stdout)
}

func TestOldAgentsArePruned(t *testing.T) {
	n := start(t, nodetest.Options{})
	var last []string
	for i := range 4 {
		script := scriptAgent + fmt.Sprintf("# version %d\n", i)
		_, err := client(t, n, script).Identity(t.Context())
		require.NoError(t, err)
		last = append(last, nameOf(script))
		past := time.Now().Add(time.Duration(i-10) * time.Minute)
		require.NoError(t, os.Chtimes(filepath.Join(n.Root(), "bin-refit", nameOf(script)), past, past))
	}
	assert.ElementsMatch(t, last[2:], inDir(t, n))
}

func TestManyClientsBringTheAgentAtOnce(t *testing.T) {
	n := start(t, nodetest.Options{})
	c := client(t, n, scriptAgent)
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			_, err := c.Plan(t.Context(), node.Request{})
			assert.NoError(t, err)
		})
	}
	all.Wait()
	assert.Equal(t, []string{nameOf(scriptAgent)}, inDir(t, n))
}

func TestTransferEndsEarly(t *testing.T) {
	large := scriptAgent + "exit\n" + strings.Repeat("# padding\n", 400_000)
	t.Run("the connection is cut", func(t *testing.T) {
		n := start(t, nodetest.Options{})
		n.DropAfter(1 << 20)
		_, err := client(t, n, large).Identity(t.Context())
		require.ErrorIs(t, err, remote.ErrConnectionLost)
		assertNothingToRun(t, n)
	})
	t.Run("the caller leaves", func(t *testing.T) {
		n := start(t, nodetest.Options{})
		slow := strings.Replace(large, "version)", "version) sleep 60;", 1)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := client(t, n, slow).Identity(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		for _, name := range inDir(t, n) {
			assert.NotContains(t, name, "refit-node-", "its name comes last")
		}
	})
}

// assertNothingToRun waits until the node has noticed.
func assertNothingToRun(t *testing.T, n *nodetest.Node) {
	t.Helper()
	assert.Eventually(t, func() bool { return len(inDir(t, n)) == 0 }, soon, 10*time.Millisecond)
}

func TestPushFails(t *testing.T) {
	for name, test := range map[string]struct {
		agent string
		spoil func(t *testing.T, root string)
		want  string
	}{
		"no space": {agent: scriptAgent, want: "no space is left",
			spoil: func(t *testing.T, root string) {
				tool(t, root, "mktemp", "echo 'mktemp: No space left on device' >&2; exit 1")
			}},
		"a read-only file system": {agent: scriptAgent, want: "read-only",
			spoil: func(t *testing.T, root string) {
				tool(t, root, "mkdir", "echo 'mkdir: Read-only file system' >&2; exit 1")
			}},
		"a directory of somebody else": {agent: scriptAgent, want: "use sudo",
			spoil: func(t *testing.T, root string) { tool(t, root, "mkdir", "echo 'mkdir: Permission denied' >&2; exit 1") }},
		"a transfer that is short": {agent: scriptAgent, want: "ended early",
			spoil: func(t *testing.T, root string) { tool(t, root, "cat", "head -c 10") }},
		"a transfer that is damaged": {agent: scriptAgent, want: "not what was sent",
			spoil: func(t *testing.T, root string) { tool(t, root, "cat", "tr v w") }},
		"a damaged transfer on a node without sha256sum": {agent: "#!/bin/sh\necho another", want: "not what was sent"},
		"programs can't be run there":                    {agent: scriptAgent, want: "noexec", spoil: func(t *testing.T, root string) { tool(t, root, "chmod", "exit 0") }},
		"an agent that does not run":                     {agent: "#!/bin/sh\nexit 9", want: "does not run on this node"},
		"a machine that we have no agent for":            {agent: scriptAgent, want: `architecture is "riscv64"`, spoil: func(t *testing.T, root string) { tool(t, root, "uname", "echo riscv64") }},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t, nodetest.Options{})
			if test.spoil != nil {
				test.spoil(t, n.Root())
			}
			_, err := client(t, n, test.agent).Plan(t.Context(), node.Request{})
			var failed *remote.PushError
			require.ErrorAs(t, err, &failed)
			require.ErrorContains(t, err, test.want)
			assert.Empty(t, inDir(t, n))
		})
	}
}

// tool puts a program before the node's own.
func tool(t *testing.T, root, name, script string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(root, "usr/bin", name), []byte("#!/bin/sh\n"+script+"\n"), 0o700))
}

func TestAnswersThatAreNone(t *testing.T) {
	for name, test := range map[string]struct {
		noise, answer string
		want          string
	}{
		"a talkative profile": {noise: "Welcome \033[1mhome\n", answer: `echo '{"plan":{}}'`, want: `~/.bashrc or the like must print nothing when there is no terminal: it begins with "Welcome`},
		"half an answer":      {answer: `echo '{"plan":{"dig'`, want: "not all of it came"},
		"two answers":         {answer: `echo '{"plan":{}}{"plan":{}}'`, want: "something else was written after it"},
		"another answer":      {answer: `echo '{"status":{}}'`, want: "there is no plan in it"},
		"an endless one":      {answer: `yes '{"plan":{}}'`, want: "longer than 4 MiB"},
		"none":                {answer: `exit 0`, want: "there is none"},
		"none, and a failure": {answer: `echo broken >&2; exit 5`, want: "status 5: broken"},
		"one, and a failure":  {answer: `echo '{"plan":{}}'; echo broken >&2; exit 5`, want: "status 5: broken"},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t, nodetest.Options{Noise: test.noise})
			_, err := client(t, n, answering(test.answer)).Plan(t.Context(), node.Request{})
			require.ErrorContains(t, err, test.want)
		})
	}
}

// answering makes an agent that plans with a piece of shell.
func answering(plan string) string {
	return "#!/bin/sh\nif [ $1 = plan ]; then\n" + plan + "\nexit\nfi\n" + scriptAgent
}

func TestSudo(t *testing.T) {
	n := start(t, nodetest.Options{})
	withSudo := func() *remote.Client {
		c, err := remote.NewClient(dial(t, target(t, n)), remote.ClientOptions{Agents: agents(t, scriptAgent), Dir: "bin-refit", Sudo: true})
		require.NoError(t, err)
		return c
	}
	tool(t, n.Root(), "sudo", `[ "$1 $2" = "-n --" ] || exit 1; shift 2; echo ran >>"$REFIT_ROOT/sudo.log"; exec "$@"`)
	_, err := withSudo().Plan(t.Context(), node.Request{})
	require.NoError(t, err)
	log, err := os.ReadFile(filepath.Join(n.Root(), "sudo.log"))
	require.NoError(t, err)
	assert.Equal(t, 3, strings.Count(string(log), "ran"))

	tool(t, n.Root(), "sudo", `echo 'sudo: a password is required' >&2; exit 1`)
	_, err = withSudo().Plan(t.Context(), node.Request{})
	require.ErrorIs(t, err, remote.ErrUnauthorized)
	require.ErrorContains(t, err, "a password is required")
}

func TestAgents(t *testing.T) {
	dir := t.TempDir()
	_, err := remote.LoadAgents(dir)
	require.ErrorContains(t, err, dir)
	require.ErrorContains(t, err, "make build")

	require.NoError(t, os.WriteFile(filepath.Join(dir, "refit-node-linux-arm64"), []byte("x"), 0o600))
	a, err := remote.LoadAgents(dir)
	require.NoError(t, err)
	b, err := a.For("aarch64")
	require.NoError(t, err)
	assert.Equal(t, "arm64", b.Arch)
	assert.Equal(t, nameOf("x"), b.Name())
	_, err = a.For("x86_64")
	require.ErrorContains(t, err, "refit-node-linux-amd64")
	_, err = a.For("mips")
	require.ErrorContains(t, err, `"mips"`)

	_, err = remote.NewClient(nil, remote.ClientOptions{})
	require.ErrorContains(t, err, "no agents")
	_, err = remote.NewClient(nil, remote.ClientOptions{Agents: a, Dir: "a\nb"})
	require.ErrorContains(t, err, "no path should have")
}

// TestAnAgentWhoseFileChanges while the server runs: what nodes are brought is what was hashed, or nothing, and who is to blame is said.
func TestAnAgentWhoseFileChanges(t *testing.T) {
	const over = "was written over while refit ran; restart refit"
	for name, tc := range map[string]struct {
		spoil func(string) error
		err   string
	}{
		"another one is put in its place": {func(f string) error {
			return errors.Join(os.Rename(f, f+".old"), os.WriteFile(f, []byte("other"), 0o600))
		}, ""},
		"it is taken away":               {os.Remove, ""},
		"more is written to it":          {func(f string) error { return os.WriteFile(f, []byte(scriptAgent+"# more\n"), 0o600) }, ""},
		"it is truncated":                {func(f string) error { return os.Truncate(f, 0) }, over},
		"another one is written over it": {func(f string) error { return os.WriteFile(f, []byte(strings.Repeat("x", len(scriptAgent))), 0o600) }, over},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, arch := range []string{"amd64", "arm64"} {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "refit-node-linux-"+arch), []byte(scriptAgent), 0o600))
			}
			a, err := remote.LoadAgents(dir)
			require.NoError(t, err)
			for _, arch := range []string{"amd64", "arm64"} {
				require.NoError(t, tc.spoil(filepath.Join(dir, "refit-node-linux-"+arch)))
			}
			c, err := remote.NewClient(dial(t, target(t, start(t, nodetest.Options{}))), remote.ClientOptions{Agents: a, Dir: "bin-refit"})
			require.NoError(t, err)
			_, err = c.Plan(t.Context(), node.Request{})
			if tc.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.err)
			var pushed *remote.PushError
			require.ErrorAs(t, err, &pushed)
		})
	}
}

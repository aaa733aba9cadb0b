package attack_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/nodetest"
	"github.com/capi-refit/refit/internal/node/remote"
)

// brought is a node with the agent on it.
type brought struct {
	*nodetest.Node
	client *remote.Client
	// agent is where the agent is on the node, marker what a program of an attacker's makes there when it is run.
	agent, marker string
}

// honest is an agent as far as a client can tell.
const honest = `#!/bin/sh
case $1 in
version) printf '{"identity":{"protocol":3,"version":"test","sha256":"%s"}}\n' "$(sha256sum "$0" | cut -d' ' -f1)" ;;
plan) cat >/dev/null; echo '{"plan":{"digest":"honest"}}' ;;
esac
`

func bring(t *testing.T) *brought {
	t.Helper()
	n, err := nodetest.Start(nodetest.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = n.Close() })
	dir := t.TempDir()
	for _, arch := range []string{"amd64", "arm64"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "refit-node-linux-"+arch), []byte(honest), 0o600))
	}
	agents, err := remote.LoadAgents(dir)
	require.NoError(t, err)
	to, err := n.Target()
	require.NoError(t, err)
	c, err := remote.SSHDialer{}.Dial(t.Context(), to)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	b := &brought{Node: n, marker: filepath.Join(n.Root(), "the-attacker-was-here")}
	b.client, err = remote.NewClient(c, remote.ClientOptions{Agents: agents, Dir: "lib/bin"})
	require.NoError(t, err)
	require.NoError(t, b.plan(t))
	name := fmt.Sprintf("refit-node-%x", sha256.Sum256([]byte(honest)))[:len("refit-node-")+16]
	b.agent = filepath.Join(n.Root(), "lib/bin", name)
	require.FileExists(t, b.agent)
	return b
}

func (b *brought) plan(t *testing.T) error {
	t.Helper()
	_, err := b.client.Plan(t.Context(), node.Request{})
	return err
}

// evil is a program that does what an attacker wants, and then what the agent does, its digest included.
func (b *brought) evil() []byte {
	return fmt.Appendf(nil, "#!/bin/sh\n: >%s\ncase $1 in\nversion) echo '{\"identity\":{\"protocol\":3,\"sha256\":\"%x\"}}' ;;\n*) echo '{\"plan\":{}}' ;;\nesac\n",
		b.marker, sha256.Sum256([]byte(honest)))
}

func TestWhatStandsInTheAgentsPlaceIsNotRun(t *testing.T) {
	exchange := func(b *brought) error { return os.WriteFile(b.agent, b.evil(), 0o755) }
	for name, attack := range map[string]func(b *brought) error{
		"another program under its name":             exchange,
		"a link to another program":                  link,
		"the agent, in a file that others may write": func(b *brought) error { return os.Chmod(b.agent, 0o757) },
	} {
		t.Run(name+" is replaced", func(t *testing.T) {
			b := bring(t)
			require.NoError(t, attack(b))
			require.NoError(t, b.plan(t), "the agent is brought again")
			require.NoFileExists(t, b.marker)
			data, err := os.ReadFile(b.agent)
			require.NoError(t, err)
			require.Equal(t, honest, string(data))
			info, err := os.Lstat(b.agent)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o755), info.Mode())
		})
	}
}

func link(b *brought) error {
	other := b.agent + ".other"
	if err := os.WriteFile(other, b.evil(), 0o755); err != nil {
		return err
	}
	if err := os.Remove(b.agent); err != nil {
		return err
	}
	return os.Symlink(other, b.agent)
}

func TestADirectoryThatOthersCanChangeIsRefused(t *testing.T) {
	for name, attack := range map[string]func(t *testing.T, b *brought) error{
		"the agent's own": func(_ *testing.T, b *brought) error { return os.Chmod(filepath.Dir(b.agent), 0o777) },
		"one above it":    func(_ *testing.T, b *brought) error { return os.Chmod(filepath.Dir(filepath.Dir(b.agent)), 0o775) },
		"one behind a link of another user's": func(_ *testing.T, b *brought) error {
			moved := filepath.Join(b.Root(), "open", "bin")
			if err := os.MkdirAll(filepath.Dir(moved), 0o755); err != nil {
				return err
			}
			if err := os.Rename(filepath.Dir(b.agent), moved); err != nil {
				return err
			}
			if err := os.Chmod(filepath.Dir(moved), 0o777); err != nil {
				return err
			}
			return os.Symlink(moved, filepath.Dir(b.agent))
		},
		"one in which another user's link leads to where it is safe": func(_ *testing.T, b *brought) error {
			dir, moved := filepath.Dir(b.agent), filepath.Join(b.Root(), "safe")
			return errors.Join(os.Rename(dir, moved), os.Symlink(moved, dir), os.Chmod(filepath.Dir(dir), 0o777))
		},
		"one that belongs to another user": func(t *testing.T, b *brought) error {
			if os.Getuid() != 0 {
				t.Skip("only root can give a directory away; TestTheAgentsDirectory of test/updates does")
			}
			return os.Chown(filepath.Dir(b.agent), 4711, 4711)
		},
	} {
		for when, agent := range map[string]func(b *brought) error{
			"with the agent in it":        func(*brought) error { return nil },
			"with another program in it":  func(b *brought) error { return os.WriteFile(b.agent, b.evil(), 0o755) },
			"with nothing of refit's yet": func(b *brought) error { return os.Remove(b.agent) },
		} {
			t.Run(name+", "+when, func(t *testing.T) {
				b := bring(t)
				require.NoError(t, agent(b))
				require.NoError(t, attack(t, b))
				before, _ := os.ReadDir(filepath.Dir(b.agent))
				err := b.plan(t)
				require.ErrorContains(t, err, "belong to root")
				require.ErrorContains(t, err, b.Root(), "it says which directory")
				require.NoFileExists(t, b.marker)
				after, _ := os.ReadDir(filepath.Dir(b.agent))
				require.Len(t, after, len(before), "nothing is brought there")
			})
		}
	}
}

package attack

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

const ownDirectory = "/var/lib/refit"

// newState returns a directory that stands for a node whose agent has worked before.
func newState(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	for _, dir := range []string{"", "/etc", "/var", "/var/lib", ownDirectory} {
		require.NoError(t, os.MkdirAll(root+dir, 0o755))
		require.NoError(t, os.Chmod(root+dir, 0o755))
	}
	require.NoError(t, os.WriteFile(root+"/etc/passwd", fmt.Appendf(nil, "root:x:%d:0::/root:/bin/sh\n", os.Getuid()), 0o644))
	require.NoError(t, os.WriteFile(root+"/etc/group", fmt.Appendf(nil, "root:x:%d:\n", os.Getgid()), 0o644))
	require.Empty(t, askAgent(t, root, "apply", 1), "the directory is right")
	return root
}

func configOf(root string) agent.Config {
	return agent.Config{Root: root, Clock: stoppedClock{}, NoSync: true, Settle: -1, Executable: "/proc/self/exe"}
}

// askAgent has the agent do something, and returns why it did not.
func askAgent(t *testing.T, root, verb string, token int64) string {
	t.Helper()
	machine := node.MachineID{Namespace: "default", Name: "m", UID: "u"}
	var request any
	switch verb {
	case "plan", "apply":
		request = node.Request{
			Protocol: node.Protocol, Machine: machine, Token: token, Digest: strings.Repeat("a", 64), OnConflict: node.Overwrite,
		}
	case "drift":
		request = node.DriftRequest{Protocol: node.Protocol, Machine: machine}
	default:
		request = node.StatusRequest{Protocol: node.Protocol, Machine: machine, Digest: strings.Repeat("a", 64)}
	}
	in, err := json.Marshal(request)
	require.NoError(t, err)
	var out bytes.Buffer
	if agent.Main(t.Context(), configOf(root), []string{verb}, bytes.NewReader(in), &out) == 0 {
		return ""
	}
	var said node.Answer
	require.NoError(t, json.Unmarshal(out.Bytes(), &said))
	require.NotNil(t, said.Error)
	return said.Error.Error()
}

// spoiled are directories that others than root can change, and what is said of them.
var spoiled = map[string]struct {
	spoil func(root string) error
	want  []string
	// asRoot reports that it takes root to do that.
	asRoot bool
}{
	"one that everybody can write to": {
		spoil: func(root string) error { return os.Chmod(root+ownDirectory, 0o777) },
		want:  []string{ownDirectory + " belongs to user", "mode 0777", "chmod go-w"},
	},
	"one that everybody can write to, though it is sticky": {
		spoil: func(root string) error { return syscall.Chmod(root+ownDirectory, 0o1777) },
		want:  []string{ownDirectory + " belongs to user", "mode 1777"},
	},
	"one of a user": {
		spoil:  func(root string) error { return os.Chown(root+ownDirectory, mallory, mallory) },
		want:   []string{ownDirectory + " belongs to user 4711", "mode 0700", "chown root:root"},
		asRoot: true,
	},
	"one that a group can write to": {
		spoil: func(root string) error {
			return errors.Join(os.Chown(root+ownDirectory, 0, mallory), os.Chmod(root+ownDirectory, 0o770))
		},
		want:   []string{ownDirectory + " belongs to user 0", "mode 0770"},
		asRoot: true,
	},
	"one with a directory of a user in it": {
		spoil: func(root string) error {
			return errors.Join(os.Mkdir(root+ownDirectory+"/bin", 0o755), os.Chown(root+ownDirectory+"/bin", mallory, mallory))
		},
		want:   []string{ownDirectory + "/bin belongs to user 4711", "move " + ownDirectory + " away"},
		asRoot: true,
	},
	"one below a directory that everybody can write to": {
		spoil: func(root string) error { return os.Chmod(root+"/var", 0o777) },
		want:  []string{"/var belongs to user", "mode 0777"},
	},
	"one below a directory of a user": {
		spoil:  func(root string) error { return os.Chown(root+"/var/lib", mallory, mallory) },
		want:   []string{"/var/lib belongs to user 4711"},
		asRoot: true,
	},
	"one that a user has put into a sticky directory": {
		spoil: func(root string) error {
			return errors.Join(syscall.Chmod(root+"/var/lib", 0o1777), os.Chown(root+ownDirectory, mallory, mallory))
		},
		want:   []string{ownDirectory + " belongs to user 4711"},
		asRoot: true,
	},
	"one that a link of a user leads to": {
		spoil: func(root string) error {
			return errors.Join(os.Rename(root+"/var/lib", root+"/var/real"), os.Symlink("real", root+"/var/lib"), os.Lchown(root+"/var/lib", mallory, mallory))
		},
		want:   []string{"/var/lib is a symbolic link of user 4711"},
		asRoot: true,
	},
}

func TestTheAgentDoesNotUseADirectoryThatOthersCanChange(t *testing.T) {
	for name, tc := range spoiled {
		t.Run(name, func(t *testing.T) {
			if tc.asRoot && os.Geteuid() != 0 {
				t.Skip("only root can give files away; make e2e-updates runs this in a container, as root")
			}
			root := newState(t)
			require.NoError(t, tc.spoil(root))
			before := tree(t, root)
			for i, verb := range []string{"version", "plan", "apply", "status", "drift", "journal", "run"} {
				said := askAgent(t, root, verb, int64(10+i))
				for _, want := range tc.want {
					require.Contains(t, said, want, verb)
				}
			}
			require.Equal(t, before, tree(t, root), "nothing was used, and nothing repaired in silence")
		})
	}
}

func TestASharedDirectoryAboveIsFineIfItIsSticky(t *testing.T) {
	root := newState(t)
	require.NoError(t, syscall.Chmod(root+"/var/lib", 0o1777)) // others can't give the name of what is root's to anything else
	require.Empty(t, askAgent(t, root, "apply", 2))
}

func TestAStateThatOthersHaveWrittenIsNotRead(t *testing.T) {
	for name, spoil := range map[string]func(p string) error{
		"a link":                             func(p string) error { return errors.Join(os.Rename(p, p+".old"), os.Symlink(p+".old", p)) },
		"a pipe":                             func(p string) error { return errors.Join(os.Remove(p), syscall.Mkfifo(p, 0o600)) },
		"a file that everybody can write to": func(p string) error { return os.Chmod(p, 0o666) },
		"a file of a user":                   func(p string) error { return os.Chown(p, mallory, mallory) },
	} {
		for file, verb := range map[string]string{"record.json": "drift", "status.json": "status", "token": "apply", "claim.lock": "apply", "journal.jsonl": "journal"} {
			t.Run(name+" by the name of "+file, func(t *testing.T) {
				if name == "a file of a user" && os.Geteuid() != 0 {
					t.Skip("only root can give files away; make e2e-updates runs this in a container, as root")
				}
				root := newState(t)
				require.NoError(t, spoil(filepath.Join(root, ownDirectory, file)))
				require.Contains(t, askAgent(t, root, verb, 2), filepath.Join(ownDirectory, file))
			})
		}
	}
}

func TestAnAgentThatOthersCanExchangeIsNotRunAgain(t *testing.T) {
	root := newState(t)
	dir := filepath.Join(root, "opt")
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.WriteFile(dir+"/refit-node", []byte("#!/bin/sh\n>"+root+"/ran\n"), 0o755))
	require.NoError(t, os.Chmod(dir, 0o777))
	cfg := configOf(root)
	cfg.Executable = dir + "/refit-node"
	a, err := agent.New(cfg)
	if err == nil {
		_, err = a.Apply(t.Context(), node.Request{
			Protocol: node.Protocol, Machine: node.MachineID{Namespace: "default", Name: "m", UID: "u"}, Token: 2, Digest: strings.Repeat("b", 64),
			OnConflict: node.Overwrite, Rules: disruption.Rules{Files: disruption.Table{{Path: "/etc", Actions: []disruption.Action{{Type: disruption.None}}}}},
			Resources: []node.Resource{{File: &node.File{Path: "/etc/x", Content: []byte("x")}}},
		})
	}
	require.ErrorContains(t, err, "opt belongs to user")
	require.NoFileExists(t, root+"/ran")
}

// tree tells names, modes and owners of all that is below a directory.
func tree(t *testing.T, root string) string {
	t.Helper()
	var all strings.Builder
	require.NoError(t, filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		require.True(t, ok)
		fmt.Fprintln(&all, strings.TrimPrefix(p, root), info.Mode(), stat.Uid, stat.Gid, info.ModTime())
		return nil
	}))
	return all.String()
}

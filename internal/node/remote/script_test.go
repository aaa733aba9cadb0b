package remote

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// brought is an agent as far as push.sh can tell.
const brought = "#!/bin/sh\n[ \"$1\" = version ] || echo it ran\nsha256sum <\"$0\"\n"

// stranger is a user who is neither root nor who runs the tests.
const stranger = 4711

// inEachShell runs a test with each shell that nodes may have as sh. The test gets what is in front of a script's arguments.
func inEachShell(t *testing.T, test func(t *testing.T, shell []string)) {
	t.Helper()
	for _, shell := range [][]string{{"sh", "-c"}, {"busybox", "ash", "-c"}, {"bash", "--posix", "-c"}} {
		t.Run(shell[0], func(t *testing.T) {
			program, err := exec.LookPath(shell[0])
			if err != nil {
				t.Skipf("there is no %s here; another subtest runs the scripts with sh", shell[0])
			}
			test(t, append([]string{program}, shell[1:]...))
		})
	}
}

// ends runs a script, and returns its exit status and its stdout. The last part of it is how its streams are opened.
func ends(t *testing.T, shell []string, environment []string, redirect, script string, args ...string) (int, string) {
	t.Helper()
	words := append(append([]string{}, shell...), "exec "+redirect+"\n"+script, "refit")
	cmd := exec.CommandContext(t.Context(), words[0], append(words[1:], args...)...)
	cmd.Env = append(os.Environ(), environment...)
	cmd.Stdin = strings.NewReader(brought)
	var out bytes.Buffer
	cmd.Stdout = &out
	err := cmd.Run()
	var failed *exec.ExitError
	if err != nil {
		require.ErrorAs(t, err, &failed)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

func pushed(dir string) []string {
	return []string{dir, "refit-node-x", digest([]byte(brought)), strconv.Itoa(len(brought))}
}

// agentDir returns a directory that nobody else can write to.
func agentDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "bin")
	require.NoError(t, os.Mkdir(dir, 0o755))
	return dir
}

// TestNothingIsRunWhereTheReasonCantBeWritten has the scripts refuse where nothing takes their message.
func TestNothingIsRunWhereTheReasonCantBeWritten(t *testing.T) {
	inEachShell(t, func(t *testing.T, shell []string) {
		for _, redirect := range []string{"2>&1", "2>&-", "2>/dev/full"} {
			t.Run(redirect, func(t *testing.T) {
				dir := agentDir(t)
				file := filepath.Join(dir, "refit-node-x")
				require.NoError(t, os.WriteFile(file, []byte(brought), 0o700))
				status, out := ends(t, shell, nil, redirect, runScript, file, strings.Repeat("0", 64), "plan")
				require.Equal(t, statusDamaged, status)
				require.NotContains(t, out, "it ran")

				require.NoError(t, os.Chmod(file, 0o722))
				status, out = ends(t, shell, nil, redirect, runScript, file, digest([]byte(brought)), "plan")
				require.Equal(t, statusDamaged, status)
				require.NotContains(t, out, "it ran")
				require.NoError(t, os.Chmod(file, 0o700))

				status, out = ends(t, shell, []string{"PATH=" + without(t, "sha256sum", "shasum", "openssl")}, redirect, runScript, file, digest([]byte(brought)), "plan")
				require.Equal(t, statusNoDigest, status, out)

				require.NoError(t, os.Chmod(dir, 0o777))
				status, out = ends(t, shell, nil, redirect, runScript, file, digest([]byte(brought)), "plan")
				require.Equal(t, statusUnsafe, status)
				require.NotContains(t, out, "it ran")
				status, _ = ends(t, shell, nil, redirect, pushScript, pushed(dir)...)
				require.Equal(t, statusUnsafe, status)
			})
		}
	})
}

// without returns a PATH of the programs that the scripts use, but for some.
func without(t *testing.T, missing ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"id", "ls", "readlink", "mkdir", "cat", "rm", "find", "mktemp", "wc", "sync", "chmod", "mv"} {
		program, err := exec.LookPath(name)
		require.NoError(t, err)
		for _, m := range missing {
			if m == name {
				program = "/bin/false"
			}
		}
		require.NoError(t, os.Symlink(program, filepath.Join(dir, name)))
	}
	return dir
}

// TestWhatCantBeCheckedIsRefused has each program on which a check rests say nothing, with and without an error.
func TestWhatCantBeCheckedIsRefused(t *testing.T) {
	inEachShell(t, func(t *testing.T, shell []string) {
		for _, program := range []string{"ls", "id", "sha256sum"} {
			for _, status := range []int{0, 1} {
				t.Run(fmt.Sprintf("%s ends with %d", program, status), func(t *testing.T) {
					fakes, dir := t.TempDir(), agentDir(t)
					require.NoError(t, os.WriteFile(filepath.Join(fakes, program), fmt.Appendf(nil, "#!/bin/sh\nexit %d\n", status), 0o755))
					file := filepath.Join(dir, "refit-node-x")
					require.NoError(t, os.WriteFile(file, []byte(brought), 0o700))
					environment := []string{"PATH=" + fakes + ":" + os.Getenv("PATH")}
					got, out := ends(t, shell, environment, "2>&1", runScript, file, digest([]byte(brought)), "plan")
					if got == 0 && program != "ls" && shell[1] == "ash" {
						t.Skip("this busybox has the program in itself")
					}
					require.NotZero(t, got)
					require.NotContains(t, out, "it ran")
					require.NoError(t, os.Remove(file))
					got, _ = ends(t, shell, environment, "2>&1", pushScript, pushed(dir)...)
					require.NotZero(t, got)
					require.NoFileExists(t, file)
				})
			}
		}
	})
}

// TestTheWayToTheAgent is of links and directories that lead to the agent.
func TestTheWayToTheAgent(t *testing.T) {
	link := func(target, name string, owner int) error {
		return errors.Join(os.Symlink(target, name), os.Lchown(name, owner, -1))
	}
	for name, test := range map[string]struct {
		// prepare makes things in a directory, and returns the one for the agent.
		prepare func(at string) (dir string, err error)
		want    int
		asRoot  bool
	}{
		"a directory that is not there yet": {
			prepare: func(at string) (string, error) { return at + "/not/there/yet", nil },
		},
		"links of one's own, relative and absolute, behind each other": {
			prepare: func(at string) (string, error) {
				return at + "/first/bin", errors.Join(os.MkdirAll(at+"/real/deep", 0o755), link("real/../second", at+"/first", os.Getuid()), link(at+"/real/deep", at+"/second", os.Getuid()))
			},
		},
		"links in a circle": {
			prepare: func(at string) (string, error) {
				return at + "/one/bin", errors.Join(os.Symlink("two", at+"/one"), os.Symlink("one", at+"/two"))
			},
			want: statusUnsafe,
		},
		"a file on the way": {
			prepare: func(at string) (string, error) { return at + "/file/bin", os.WriteFile(at+"/file", nil, 0o600) },
			want:    statusNotWritten,
		},
		"a link of one's own to the link of a stranger": {
			prepare: func(at string) (string, error) {
				return at + "/first/bin", errors.Join(os.Mkdir(at+"/real", 0o755), link("second", at+"/first", 0), link("real", at+"/second", stranger))
			},
			want: statusUnsafe, asRoot: true,
		},
		"a link of one's own through a directory of a stranger": {
			prepare: func(at string) (string, error) {
				return at + "/first/bin", errors.Join(os.MkdirAll(at+"/theirs", 0o755), link(at, at+"/theirs/link", 0), os.Chown(at+"/theirs", stranger, -1),
					link("theirs/link", at+"/first", 0))
			},
			want: statusUnsafe, asRoot: true,
		},
		"a directory of one's own that others can write to": {
			prepare: func(at string) (string, error) {
				return at + "/open/bin", errors.Join(os.Mkdir(at+"/open", 0o755), os.Chmod(at+"/open", 0o777))
			},
			want: statusUnsafe,
		},
		"a sticky directory above": {
			prepare: func(at string) (string, error) {
				return at + "/sticky/bin", errors.Join(os.Mkdir(at+"/sticky", 0o755), syscall.Chmod(at+"/sticky", 0o1777))
			},
		},
		"a sticky directory": {
			prepare: func(at string) (string, error) {
				return at + "/sticky", errors.Join(os.Mkdir(at+"/sticky", 0o755), syscall.Chmod(at+"/sticky", 0o1777))
			},
			want: statusUnsafe,
		},
		"a directory with the agent's name": {
			prepare: func(at string) (string, error) { return at + "/bin", os.MkdirAll(at+"/bin/refit-node-x", 0o755) },
			want:    statusNotWritten,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if test.asRoot && os.Geteuid() != 0 {
				t.Skip("only root can give links away; make e2e-updates runs tests as root")
			}
			inEachShell(t, func(t *testing.T, shell []string) {
				at := t.TempDir()
				dir, err := test.prepare(at)
				require.NoError(t, err)
				before := names(t, at)
				status, out := ends(t, shell, nil, "2>&1", pushScript, pushed(dir)...)
				require.Equal(t, test.want, status, out)
				if test.want != 0 {
					require.Equal(t, before, names(t, at), "nothing was made")
					return
				}
				status, out = ends(t, shell, nil, "2>&1", runScript, dir+"/refit-node-x", digest([]byte(brought)), "plan")
				require.Zero(t, status, out)
				require.Contains(t, out, "it ran")
			})
		})
	}
}

// names returns all names below a directory.
func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error {
		all = append(all, p)
		return err
	}))
	return all
}

package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/node"
)

const tmpfile = "/etc/tmpfiles.d/app.conf"

// tmpfilesNode is a node whose systemd-tmpfiles makes directories, files and links as the real one does.
func tmpfilesNode(t *testing.T) *testNode {
	t.Helper()
	n := newTestNode(t)
	n.program("systemd-tmpfiles", `while read -r kind path mode user group age value; do case $kind in
d) mkdir -p "$REFIT_ROOT$path"; [ "${mode:--}" = - ] || chmod "$mode" "$REFIT_ROOT$path";;
f) [ -e "$REFIT_ROOT$path" ] || printf "$value" >"$REFIT_ROOT$path";;
L) ln -s "$value" "$REFIT_ROOT$path";;
p) mkfifo "$REFIT_ROOT$path";;
L+) ln -sfn "$value" "$REFIT_ROOT$path";;
esac; done <"$REFIT_ROOT$2"; exit 0`)
	return n
}

func TestLinesOfTmpfilesWithoutAnUndoAreRefused(t *testing.T) {
	const unit = "; have a unit do that, or a NodeDisruptionPolicy say Replace for the file"
	for line, why := range map[string]string{
		"L+ /run/containerd/containerd.sock - - - - /run/other.sock": "it puts something else in the place of what is there",
		"f+ /run/new - - - - x":               "it puts something else in the place of what is there",
		"d= /run/new":                         "it puts something else in the place of what is there",
		"z /etc/kubernetes/pki 0000":          `what "z" does to what is there can't be undone`,
		"R! /var/lib/app":                     `what "R" does to what is there can't be undone`,
		"F /run/new":                          `what "F" does to what is there can't be undone`,
		"w /proc/sys/vm/swappiness - - - - 1": `what "w" does to what is there can't be undone`,
		"C /run/new - - - - /etc":             `what "C" does to what is there can't be undone`,
		"e /run/there - - - 1d":               `what "e" does to what is there can't be undone`,
		"d /run/%m":                           "by its specifiers it is not known what it makes; write the path out",
		"f /run/new - - - - %m":               "it is not known what it writes; write the content out",
		"d /run/there 0700":                   "the path is there already",
		"D /run/there":                        "the path is there already",
		"d /run/there - - - 1d":               "the path is there already",
		"f /run/there":                        "the path is there already",
		"L /run/there - - - - /run/x":         "the path is there already",
		"d! /run/there 0700":                  "the path is there already",
		"\"L+\" \"/run/a b\" - - - - /x":      "it puts something else in the place of what is there",
		"d /run/there":                        "",
		"d /run/new 0700 root - 1d":           "",
		"f /run/new/file 0600 - - - a\\nb":    "",
		"D /run/new":                          "",
		"x /run/there/*":                      "",
	} {
		t.Run(line, func(t *testing.T) {
			n := tmpfilesNode(t)
			n.put("/run/there/data", "x")
			for _, letter := range "mtaThH" {
				require.Len(t, n.plan(builtin(1, tmpfile, string(letter)+" /run/there")).Blocked, 1, string(letter))
			}
			blocked := n.plan(builtin(1, tmpfile, "# it\n"+line+"\n")).Blocked
			if why == "" {
				require.Empty(t, blocked)
				return
			}
			require.Len(t, blocked, 1)
			require.Contains(t, blocked[0].Reason, "systemd-tmpfiles would do what refit can't undo by line 2 of "+tmpfile+" (")
			require.Contains(t, blocked[0].Reason, "): "+why+unit)
			n.refuse(builtin(1, tmpfile, line+"\n"), node.ReasonBlocked)
		})
	}
}

func TestWhatALineHasMadeCanGetAnotherMode(t *testing.T) {
	n := tmpfilesNode(t)
	mode := func() os.FileMode {
		info, err := os.Stat(filepath.Join(n.root, "/run/app"))
		require.NoError(t, err)
		return info.Mode().Perm()
	}
	n.succeed(builtin(1, tmpfile, "d /run/app 0755\n"))
	n.put("/run/app/data", "x")
	require.Equal(t, os.FileMode(0o755), mode())
	status := n.fail(builtin(2, tmpfile, "d /run/app 0700\n", "/etc/sysctl.d/90.conf", "vm.nothing = 1\n"))
	require.True(t, status.RolledBack)
	require.Equal(t, os.FileMode(0o755), mode())
	n.succeed(builtin(3, tmpfile, "d /run/app 0700\n"))
	require.Equal(t, os.FileMode(0o700), mode())
}

func TestWhatLinesMakeIsUndone(t *testing.T) {
	const lines = "d /run/app 0755\nf /run/app/file - - - - a\\nb\nL /run/app/link - - - - /etc/passwd\np /run/app/pipe\n"
	n := tmpfilesNode(t)
	status := n.fail(builtin(1, tmpfile, lines, "/etc/sysctl.d/90.conf", "vm.nothing = 1\n"))
	require.True(t, status.RolledBack, status.Message)
	require.NoDirExists(t, filepath.Join(n.root, "/run/app"))
	n.succeed(builtin(2, tmpfile, lines))
	require.Equal(t, "a\nb", n.content("/run/app/file"))
	require.Empty(t, n.succeed(builtin(3)).Notes)
	require.NoDirExists(t, filepath.Join(n.root, "/run/app"))
}

// TestLinesFromBeforeAreLeftToABoot: they were not refit's to judge, and are not done once more.
func TestLinesFromBeforeAreLeftToABoot(t *testing.T) {
	n := tmpfilesNode(t)
	n.put("/usr/lib/tmpfiles.d/app.conf", "L+ /run/link - - - - /run/other\n")
	n.succeed(builtin(1, tmpfile, "d /run/app\n"))
	status := n.succeed(builtin(2))
	require.Equal(t, "(missing)", n.content("/run/link"))
	require.Contains(t, status.Notes, "systemd-tmpfiles was not run for /usr/lib/tmpfiles.d/app.conf, since what line 1 of it does can't be undone; a boot does it")
}

// TestWhatTheAgentItselfDoesIsProbed: tmpfiles.d takes no action, and the agent acts as root.
func TestWhatTheAgentItselfDoesIsProbed(t *testing.T) {
	n := tmpfilesNode(t)
	f := &fakeProbe{asked: map[string]int{}, broken: func(string, int) bool {
		_, err := os.Stat(filepath.Join(n.root, "/run/app"))
		return err == nil
	}}
	n.agent.probes = f.all(f.named("it"))
	status := n.fail(builtin(1, tmpfile, "d /run/app\n"))
	require.Contains(t, status.Message, "it worked before and does not now")
	require.True(t, status.RolledBack)
	require.NoDirExists(t, filepath.Join(n.root, "/run/app"))
}

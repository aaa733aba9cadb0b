package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestForeignProgramsAreNotRemembered(t *testing.T) {
	r := Root{Dir: t.TempDir()}
	at := filepath.Join(r.Dir, "/opt/talks")
	require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o750))
	require.NoError(t, os.WriteFile(at, []byte("#!/bin/sh\nyes line | head -n 100000 >&2\necho the end >&2\nexit 1\n"), 0o700))
	_, err := r.RunTelling(t.Context(), Command{Name: "/opt/talks", Foreign: true})
	var said *SaidError
	require.ErrorAs(t, err, &said)
	require.Len(t, said.Said, maxTail)
	require.EqualError(t, err, "/opt/talks: exit status 1: "+strings.Repeat("line; ", 2)+"the end")
	_, err = r.RunTelling(t.Context(), Command{Name: "/opt/none"})
	require.ErrorIs(t, err, ErrNoProgram)
}

// TestAProgramThatLeavesSomethingBehind has one succeed whose child keeps its output open for longer than is waited for.
func TestAProgramThatLeavesSomethingBehind(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes as long as is waited for")
	}
	t.Parallel()
	r := Root{Dir: t.TempDir()}
	at := filepath.Join(r.Dir, "/opt/starts")
	require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o750))
	for script, want := range map[string]string{"exit 0": "", "exit 3": "/opt/starts: exit status 3"} {
		require.NoError(t, os.WriteFile(at, []byte("#!/bin/sh\necho started\nsleep 12 &\n"+script+"\n"), 0o700))
		out, err := r.Run(t.Context(), Command{Name: "/opt/starts"})
		require.Equal(t, "started\n", string(out))
		if want == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, want)
		}
	}
}

// TestAProgramIsCalledByItsName: ifdown is a link to ifup, modprobe one to kmod, and which of them it is they see by the name.
func TestAProgramIsCalledByItsName(t *testing.T) {
	r := Root{Dir: t.TempDir()}
	shell, err := os.ReadFile("/bin/sh")
	require.NoError(t, err)
	for _, dir := range []string{"/usr/bin", "/usr/sbin"} {
		require.NoError(t, os.MkdirAll(filepath.Join(r.Dir, dir), 0o750))
	}
	require.NoError(t, os.WriteFile(filepath.Join(r.Dir, "/usr/bin/many"), shell, 0o700))
	require.NoError(t, os.Symlink("../bin/many", filepath.Join(r.Dir, "/usr/sbin/one")))
	for _, name := range []string{"one", "many", "/usr/sbin/one"} {
		out, err := r.Run(t.Context(), Command{Name: name, Args: []string{"-c", `echo "$0"`}})
		require.NoError(t, err)
		require.Equal(t, filepath.Join(r.Dir, "/usr/bin", filepath.Base(name)), strings.TrimSpace(string(out)))
	}
}

func TestTail(t *testing.T) {
	var tail tail
	for _, part := range []string{strings.Repeat("a", maxTail-1), "bc", "", strings.Repeat("d", 3*maxTail) + "e"} {
		n, err := tail.Write([]byte(part))
		require.NoError(t, err)
		require.Equal(t, len(part), n)
		require.LessOrEqual(t, len(tail.Bytes()), maxTail)
	}
	require.Equal(t, strings.Repeat("d", maxTail-1)+"e", string(tail.Bytes()))
}

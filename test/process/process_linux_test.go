package process

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// startShell starts a shell that runs script, whose last line of output tells the pid of a child of it.
func startShell(t *testing.T, script string) (shell *Process, child int) {
	t.Helper()
	launcher := NewLauncher()
	t.Cleanup(launcher.Close)
	shell, err := launcher.Start("shell", filepath.Join(t.TempDir(), "log"), "/bin/sh", []string{"-c", script}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, shell.Stop(0)) })
	require.Eventually(t, func() bool {
		child, err = strconv.Atoi(strings.TrimSpace(Tail(shell.Log, 1)))
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	return shell, child
}

func TestProcessStop(t *testing.T) {
	for name, script := range map[string]string{
		"ends a process and its children":              "sleep 60 & echo $!; wait",
		"kills those that will not hear it":            "trap '' TERM; (trap '' TERM; exec sleep 60) & echo $!; wait",
		"is content with one that has ended by itself": "sh -c 'echo $$'",
	} {
		t.Run(name, func(t *testing.T) {
			shell, child := startShell(t, script)
			require.NoError(t, shell.Stop(200*time.Millisecond))
			assert.ErrorIs(t, syscall.Kill(shell.PID, 0), syscall.ESRCH)
			assert.Eventually(t, func() bool { return !Alive(child) }, 30*time.Second, 10*time.Millisecond)
			assert.NoError(t, shell.Stop(0), "twice is once")
		})
	}
}

func TestProcessDied(t *testing.T) {
	shell, _ := startShell(t, "echo disk on fire; sh -c 'echo $$'; exit 7")
	<-shell.done
	assert.ErrorContains(t, shell.Died(), "shell ended unexpectedly (exit status 7)")
	assert.ErrorContains(t, shell.Died(), shell.Log)
	assert.ErrorContains(t, shell.Died(), "disk on fire")
}

func TestAStandInHasFurtherEnvironment(t *testing.T) {
	dir := t.TempDir()
	for name, env := range map[string][]string{"none": nil, "one": {"LEASHED=it's here"}} {
		path, err := Leashed("/bin/sh", filepath.Join(dir, name), env...)
		require.NoError(t, err)
		out, err := exec.CommandContext(t.Context(), path, "-c", `printf %s "$LEASHED"`).Output()
		require.NoError(t, err)
		require.Equal(t, map[string]string{"none": "", "one": "it's here"}[name], string(out))
	}
}

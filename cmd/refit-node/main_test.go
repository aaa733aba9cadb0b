package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// asAgent, in the environment, has the test's own binary be the agent, so that real processes are started and killed.
const asAgent = "REFIT_TEST_AS_AGENT"

func TestMain(m *testing.M) {
	if os.Getenv(asAgent) != "" {
		main()
	}
	os.Exit(m.Run())
}

// makeRoot lays out a directory that stands for a node. Its systemctl writes down who has called it and, until the file
// "go" is there, does not come back from a restart.
func makeRoot(t *testing.T) string {
	root, err := os.MkdirTemp("", "refit-node-")
	require.NoError(t, err)
	// Runs are processes of their own, of which one that finds nothing left to do may end after it was answered for.
	t.Cleanup(func() {
		pids, _ := os.ReadFile(filepath.Join(root, "pids"))
		for _, field := range strings.Fields(string(pids)) {
			if pid, err := strconv.Atoi(field); t.Failed() && err == nil && pid > 1 {
				_ = syscall.Kill(pid, syscall.SIGKILL) // nobody else will
			}
		}
		assert.Eventually(t, func() bool { return os.RemoveAll(root) == nil }, time.Minute, 10*time.Millisecond)
	})
	for name, content := range map[string]string{
		"etc/passwd": fmt.Sprintf("root:x:%d:0::/:/bin/sh\n", os.Getuid()),
		"etc/group":  fmt.Sprintf("root:x:%d:\n", os.Getgid()),
		"usr/bin/systemctl": `#!/bin/sh
case $1 in
show) printf 'LoadState=loaded\nActiveState=active\nType=simple\n' ;;
restart)
	echo restart >>"$REFIT_ROOT/calls"
	[ -e "$REFIT_ROOT/go" ] && exit 0
	echo $PPID $$ >"$REFIT_ROOT/pids.new" && mv "$REFIT_ROOT/pids.new" "$REFIT_ROOT/pids"
	exec sleep 1800
	;;
esac
`,
	} {
		host := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(host), 0o755))
		require.NoError(t, os.WriteFile(host, []byte(content), 0o755))
	}
	return root
}

func request(token int64, digest string) node.Request {
	return node.Request{
		Protocol: node.Protocol, Machine: node.MachineID{Namespace: "default", Name: "worker-1", UID: "uid-1"},
		Digest: digest, Token: token, OnConflict: node.Refuse, Baseline: &node.Baseline{},
		Resources: []node.Resource{{File: &node.File{
			Path: "/etc/kubelet/a", Content: []byte("a secret"), Owner: "root:root", Mode: "0600",
		}}},
		Rules: disruption.Rules{Files: disruption.Table{{
			Path: "/etc/kubelet", Actions: []disruption.Action{{Type: disruption.Restart, Unit: "kubelet.service", Timeout: 30 * time.Minute}},
		}}},
	}
}

// call runs the agent as the server does, and returns what it answers.
func call(t *testing.T, root, command string, req any) node.Answer {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	stdin, err := json.Marshal(req)
	require.NoError(t, err)
	var out bytes.Buffer
	cmd := exec.Command(self, command)
	cmd.Env = append(os.Environ(), asAgent+"=1", "REFIT_ROOT="+root)
	cmd.Stdin, cmd.Stdout = bytes.NewReader(stdin), &out
	failed := cmd.Run()
	assert.NotContains(t, out.String(), "secret")
	var ans node.Answer
	require.NoError(t, json.Unmarshal(out.Bytes(), &ans), out.String())
	assert.Equal(t, ans.Error != nil, failed != nil)
	return ans
}

// hanging waits until the runner hangs in systemctl, and returns the process ids of both.
func hanging(t *testing.T, root string) (runner, systemctl int) {
	t.Helper()
	require.Eventually(t, func() bool {
		pids, err := os.ReadFile(filepath.Join(root, "pids"))
		if err != nil {
			return false
		}
		_, err = fmt.Sscan(string(pids), &runner, &systemctl)
		return err == nil
	}, time.Minute, 5*time.Millisecond)
	return runner, systemctl
}

func TestARunOutlivesWhoStartedItAndItsOwnDeath(t *testing.T) {
	root := makeRoot(t)
	ans := call(t, root, "apply", request(1, "digest-1"))
	require.NotNil(t, ans.Status, ans.Error)
	assert.Equal(t, node.Running, ans.Status.State)
	assert.False(t, ans.Status.Interrupted)

	runner, systemctl := hanging(t, root)
	session, _, errno := syscall.Syscall(syscall.SYS_GETSID, uintptr(runner), 0, 0)
	require.Zero(t, errno)
	assert.Equal(t, runner, int(session), "the runner has a session of its own")

	ans = call(t, root, "apply", request(2, "digest-2"))
	require.NotNil(t, ans.Error)
	assert.Equal(t, node.ReasonBusy, ans.Error.Reason)
	ans = call(t, root, "apply", request(1, "digest-1"))
	require.NotNil(t, ans.Error)
	assert.Equal(t, node.ReasonStale, ans.Error.Reason)
	ans = call(t, root, "apply", request(2, "digest-1"))
	require.NotNil(t, ans.Status, ans.Error)
	assert.Equal(t, "restart kubelet.service", ans.Status.Step)
	assert.False(t, ans.Status.Interrupted)

	require.NoError(t, syscall.Kill(runner, syscall.SIGKILL))
	require.NoError(t, syscall.Kill(systemctl, syscall.SIGKILL))
	ask := node.StatusRequest{Protocol: node.Protocol, Machine: request(1, "").Machine, Digest: "digest-1"}
	require.Eventually(t, func() bool { return call(t, root, "status", ask).Status.Interrupted }, time.Minute, 5*time.Millisecond)

	require.NoError(t, os.WriteFile(filepath.Join(root, "go"), nil, 0o600))
	again := request(3, "digest-1")
	again.WaitSeconds = 60
	ans = call(t, root, "apply", again)
	for ans.Status != nil && ans.Status.State == node.Running {
		if ans.Status.AwaitsLogin {
			confirm := ask
			confirm.Token, confirm.Confirm = ans.Status.Token, true
			require.Nil(t, call(t, root, "status", confirm).Error)
		}
		ans = call(t, root, "apply", again) // on a slow machine the runner may not be there yet
	}
	require.NotNil(t, ans.Status, ans.Error)
	assert.Equal(t, node.Succeeded, ans.Status.State, ans.Status.Message)

	calls, err := os.ReadFile(filepath.Join(root, "calls"))
	require.NoError(t, err)
	assert.Equal(t, 2, strings.Count(string(calls), "restart"), "the one that was begun is repeated")
	assert.Equal(t, map[string]int{
		"arm the way back": 1, "keep copies": 1, "write /etc/kubelet/a": 1, "restart kubelet.service": 1, "verify": 1, "confirm the way in": 1, "record": 1,
	}, stepsDone(t, root))
}

// stepsDone counts how often each step was done, as the journal shows it.
func stepsDone(t *testing.T, root string) map[string]int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "var/lib/refit/journal.jsonl"))
	require.NoError(t, err)
	assert.NotContains(t, string(data), "secret")
	done := map[string]int{}
	for line := range strings.Lines(string(data)) {
		var e node.JournalEntry
		require.NoError(t, json.Unmarshal([]byte(line), &e))
		if e.Event == "step-done" {
			done[e.Step]++
		}
	}
	return done
}

func TestManyAtOnceRunOnce(t *testing.T) {
	root := makeRoot(t)
	require.NoError(t, os.WriteFile(filepath.Join(root, "go"), nil, 0o600))
	answers := make(chan node.Answer)
	for range 8 {
		go func() {
			req := request(1, "digest-1")
			req.WaitSeconds = 60
			ans := call(t, root, "apply", req)
			for ans.Status != nil && ans.Status.Interrupted { // a run on a busy machine may begin late
				ans = call(t, root, "apply", req)
			}
			answers <- ans
		}()
	}
	for i := range 8 {
		ans := <-answers
		assert.NotNil(t, ans.Status, strconv.Itoa(i))
	}
	calls, err := os.ReadFile(filepath.Join(root, "calls"))
	require.NoError(t, err)
	assert.Equal(t, 1, strings.Count(string(calls), "restart"))
	assert.Equal(t, 1, stepsDone(t, root)["write /etc/kubelet/a"])
}

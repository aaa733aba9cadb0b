package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// builtin is a request under the built-in rules.
func builtin(token int64, pathsAndContents ...string) node.Request {
	req := request(token, pathsAndContents...)
	req.Rules = disruption.BuiltinRules()
	return req
}

// sysctlNode is a node whose systemd-sysctl is a fake: it sets what files say, in no order that matters, and like the real one it does nothing
// about what they no longer say.
func sysctlNode(t *testing.T, root string) *testNode {
	t.Helper()
	n := layOut(t, root)
	n.put("/proc/sys/vm/swappiness", "60\n")
	n.put("/proc/sys/vm/max_map_count", "65530\n")
	n.units.hook = func(_ context.Context, call string) error {
		if call != "restart systemd-sysctl.service" {
			return nil
		}
		files, err := filepath.Glob(filepath.Join(n.root, "/etc/sysctl.d/*.conf"))
		for _, file := range files {
			text, _ := os.ReadFile(file)
			for line := range strings.Lines(string(text)) {
				key, value, _ := strings.Cut(strings.TrimSpace(line), " = ")
				at := filepath.Join(n.root, "/proc/sys", strings.ReplaceAll(key, ".", "/"))
				if _, err := os.Stat(at); err == nil {
					n.put("/proc/sys/"+strings.ReplaceAll(key, ".", "/"), value+"\n")
				}
			}
		}
		return err
	}
	return n
}

const (
	swapFile   = "/etc/sysctl.d/90-vm.conf"
	swappiness = "/proc/sys/vm/swappiness"
)

func TestASysctlComesAndGoes(t *testing.T) {
	n := sysctlNode(t, t.TempDir())
	n.succeed(builtin(1, swapFile, "vm.swappiness = 10\n"))
	require.Equal(t, "10\n", n.content(swappiness))
	n.succeed(builtin(2, swapFile, "vm.swappiness = 20\n"))
	require.Equal(t, "20\n", n.content(swappiness))
	status := n.succeed(builtin(3))
	require.Equal(t, "60\n", n.content(swappiness), "what it was before refit named it")
	require.Empty(t, status.Notes)

	n.put(swappiness, "33\n") // by hand
	n.succeed(builtin(4, swapFile, "vm.swappiness = 10\n"))
	n.succeed(builtin(5))
	require.Equal(t, "33\n", n.content(swappiness), "before it named it again")
}

func TestASysctlThatAnotherFileNamesStaysThat(t *testing.T) {
	n := sysctlNode(t, t.TempDir())
	n.put("/etc/sysctl.d/10-node.conf", "vm.swappiness = 40\n")
	n.put(swappiness, "40\n")
	n.succeed(builtin(1, swapFile, "vm.swappiness = 10\n"))
	n.succeed(builtin(2))
	require.Equal(t, "40\n", n.content(swappiness))
}

func TestASysctlOfBeforeRefitTakesAReboot(t *testing.T) {
	n := sysctlNode(t, t.TempDir())
	n.put(swapFile, "vm.swappiness = 10\n")
	n.put(swappiness, "10\n")
	req := builtin(1)
	req.Baseline = &node.Baseline{Files: []node.BaselineFile{laidDown(swapFile, "vm.swappiness = 10\n")}}
	status := n.succeed(req)
	require.Equal(t, "(missing)", n.content(swapFile))
	require.Equal(t, []string{`no file names vm.swappiness any more, and what it was before one did is not known: it stays at "10", and has the kernel's own value after a reboot`}, status.Notes)
}

func TestASysctlThatHasNoEffectFails(t *testing.T) {
	for name, tc := range map[string]struct{ other, content, message string }{
		"a later file says otherwise": {"vm.swappiness = 50\n", "vm.swappiness = 10\n", ""},
		"the kernel has none":         {"", "vm.swappiness = 10\nvm.nothing = 1\n", "the kernel has no vm.nothing, which /etc/sysctl.d/90-vm.conf sets: is a module missing?"},
	} {
		t.Run(name, func(t *testing.T) {
			n := sysctlNode(t, t.TempDir())
			if tc.other != "" { // which counts, so that what the run brings is as if it were not there
				n.put("/etc/sysctl.d/99-other.conf", tc.other)
				status := n.succeed(builtin(1, swapFile, tc.content))
				require.Equal(t, []string{`/etc/sysctl.d/90-vm.conf has no say in vm.swappiness: /etc/sysctl.d/99-other.conf counts, which says "50"`}, status.Notes)
				require.Equal(t, "50\n", n.content(swappiness))
				return
			}
			status := n.fail(builtin(1, swapFile, tc.content))
			require.True(t, status.RolledBack, status.Message)
			require.Contains(t, status.Message, tc.message)
			require.Equal(t, "60\n", n.content(swappiness), "rolled back is the value, too")
			require.Equal(t, "(missing)", n.content(swapFile))
		})
	}
	t.Run("nobody has set it", func(t *testing.T) {
		n := sysctlNode(t, t.TempDir())
		n.units.hook = nil
		status := n.fail(builtin(1, swapFile, "vm.swappiness = 10\n"))
		require.Contains(t, status.Message, `verify failed: vm.swappiness is "60" in the kernel, and /etc/sysctl.d/90-vm.conf says "10"`)
	})
}

// TestSysctlsSurviveAnyDeathWalk kills the agent at each boundary of a run that sets a value, of one that takes it back, and of one that fails.
func TestSysctlsSurviveAnyDeathWalk(t *testing.T) {
	set := builtin(1, swapFile, "vm.swappiness = 10\n")
	for name, tc := range map[string]struct {
		was   []node.Request
		req   node.Request
		state node.RunState
		want  string
	}{
		"set":       {nil, set, node.Succeeded, "10\n"},
		"removed":   {[]node.Request{set}, builtin(2), node.Succeeded, "60\n"},
		"back":      {nil, builtin(1, swapFile, "vm.swappiness = 10\nvm.nothing = 1\n"), node.Failed, "60\n"},
		"back to 1": {[]node.Request{set}, builtin(2, swapFile, "vm.swappiness = 20\nvm.nothing = 1\n"), node.Failed, "10\n"},
	} {
		t.Run(name, func(t *testing.T) {
			for nth := 0; ; nth += stride() {
				n := sysctlNode(t, memoryDir(t))
				for _, req := range tc.was {
					n.succeed(req)
				}
				died := n.dieAt(nth)
				_, _ = n.agent.Apply(context.Background(), tc.req)
				if *died == "" {
					require.Greater(t, nth, 10)
					return
				}
				n.resumeUntil(tc.req, tc.state, *died)
				require.Equal(t, tc.want, n.content(swappiness), *died)
				n.succeed(builtin(9))
				require.Equal(t, "60\n", n.content(swappiness), "after death at %q, and the removal", *died)
			}
		})
	}
}

// resumeUntil has other processes go on until a run has ended.
func (n *testNode) resumeUntil(req node.Request, want node.RunState, where string) {
	n.t.Helper()
	var status node.Status
	for range 5 {
		n.newProcess()
		var err error
		if status, err = n.agent.Apply(context.Background(), req); err == nil && status.State != node.Running {
			break
		}
	}
	require.Equal(n.t, want, status.State, "after death at %q: %s", where, status.Message)
}

func TestModules(t *testing.T) {
	const file = "/etc/modules-load.d/k8s.conf"
	n := newTestNode(t)
	status := n.fail(builtin(1, file, "br-netfilter\n"))
	require.Contains(t, status.Message, "the module br_netfilter is not loaded, which "+file+" names")
	n.put("/sys/module/br_netfilter/refcnt", "0\n")
	n.succeed(builtin(2, file, "br-netfilter\n"))
	status = n.succeed(builtin(3))
	require.Equal(t, []string{"no file names the module br_netfilter any more; it stays loaded until the node reboots"}, status.Notes)
}

func TestTmpfiles(t *testing.T) {
	const file = "/etc/tmpfiles.d/app.conf"
	n := newTestNode(t)
	n.program("systemd-tmpfiles", `while read -r kind path rest; do [ "$kind" = d ] && mkdir -p "$REFIT_ROOT$path"; done <"$REFIT_ROOT$2"; exit 0 # a fake`)
	n.succeed(builtin(1, file, "d /run/app 0755 root "+"root -\nd /run/full 0755\n"))
	require.DirExists(t, filepath.Join(n.root, "/run/app"))
	n.put("/run/full/data", "x")
	status := n.succeed(builtin(2))
	require.NoDirExists(t, filepath.Join(n.root, "/run/app"))
	require.Equal(t, "x", n.content("/run/full/data"))
	require.Equal(t, []string{"/run/full stays, which no file in tmpfiles.d names any more, since something is in it; remove it if nothing needs it"}, status.Notes)

	n.program("systemd-tmpfiles", "exit 0 # a fake that makes nothing")
	require.Contains(t, n.fail(builtin(3, file, "d /run/app 0755\n")).Message, "systemd-tmpfiles has not made /run/app")
}

func TestUnitsReadTheirFiles(t *testing.T) {
	const journald, file = "systemd-journald.service", "/etc/systemd/journald.conf.d/size.conf"
	n := newTestNode(t)
	n.units.states[journald] = host.UnitState{LoadState: "loaded", ActiveState: "active", Type: "notify", InvocationID: "before"}
	require.Contains(t, n.fail(builtin(1, file, "[Journal]\nSystemMaxUse=1G\n")).Message, journald+" was not started since its files were written")
	n.units.hook = func(_ context.Context, call string) error {
		if call == "restart "+journald {
			n.units.states[journald] = host.UnitState{LoadState: "loaded", ActiveState: "active", Type: "notify", InvocationID: fmt.Sprint(len(n.units.calls))}
		}
		return nil
	}
	n.succeed(builtin(2, file, "[Journal]\nSystemMaxUse=1G\n"))
}

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// assertNothingLeft demands that nothing is left of what a system makes on a machine, all of which has a name of its own.
func assertNothingLeft(t *testing.T) {
	t.Helper()
	for what, script := range map[string]string{
		"links":           `! command -v ip >/dev/null || ip -o link | grep -o ' refit-[a-z]*'`,
		"mounts":          `! test -e /proc/self/mountinfo || awk '{ print $5 }' /proc/self/mountinfo | grep -E '^/run/refit-engine|/refit/engine'`,
		"rules":           `! command -v iptables >/dev/null || iptables -S | grep refit-`,
		"control groups":  `find /sys/fs/cgroup -maxdepth 2 -name 'refit-*' 2>/dev/null`,
		"state":           `ls -d /run/refit-engine 2>/dev/null`,
		"processes":       `ps -eo args | grep -E '^([^ ]*/)?(dockerd|containerd(-shim[^ ]*)?) .*/run/refit-engine/'`,
		"machines":        `docker ps --all --format '{{.Image}} {{.Names}}' 2>/dev/null | grep '^refit-kubeadm/'`,
		"nodes":           fmt.Sprintf(`docker ps --all --format '{{.Label "dev.capi-refit.test.owner"}} {{.Names}}' 2>/dev/null | grep '/%d/'`, os.Getpid()),
		"networks":        `docker network ls --quiet --filter label=dev.capi-refit.lab 2>/dev/null`,
		"child processes": fmt.Sprintf(`! test -e /proc/self/stat || ps -o pid=,args= --ppid %d | grep -vE ' (sh|ps|grep) '`, os.Getpid()),
	} {
		out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "sh", "-c", script+"; true").Output()
		require.NoError(t, err, what)
		assert.Empty(t, string(out), "%s are left", what)
	}
}

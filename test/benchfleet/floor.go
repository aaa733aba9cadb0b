package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/capi-refit/refit/test/bench/floor"
	"github.com/capi-refit/refit/test/lab"
)

// floorAgain is when the server that does nothing has itself be asked again, as refit does about what has waited for long.
const floorAgain = 60 * time.Second

// floor measures what the same calls take of a server that reads each and answers, beside a refit that nobody calls: no server takes less.
func (b *bench) floor(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ports, err := lab.FreePorts(2)
	if err != nil {
		return err
	}
	health := net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[1]))
	cmd := exec.CommandContext(ctx, self, floor.Name, "--webhook-port="+strconv.Itoa(ports[0]), "--webhook-cert-dir="+filepath.Join(b.m.dir, "certs"), "--health-addr="+health,
		fmt.Sprintf(`--answer={"status":"Success","retryAfterSeconds":%.0f}`, floorAgain.Seconds()))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // how it ends is not what is measured
	}()
	for !(&server{health: health}).isReady(ctx) {
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	calls := b.m.call(ctx, []string{"https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0])) + updatePath}, b.f, b.o.connections, floorAgain)
	defer calls.stop()
	if err := pause(ctx, time.Second); err != nil { // until the connections are made
		return err
	}
	calls.take()
	pid := strconv.Itoa(cmd.Process.Pid)
	before, began := cpuSeconds(pid), time.Now()
	if err := pause(ctx, b.o.steady/2); err != nil {
		return err
	}
	cpu := 100 * (cpuSeconds(pid) - before) / time.Since(began).Seconds()
	say(b.out, "| the same calls, of a server that does nothing else | | %.0f | | %s |", cpu, calls.take())
	return calls.err()
}

package nodes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Boot tells one boot of the node from another. Stand-ins have none: errors.ErrUnsupported.
func (n *Node) Boot(ctx context.Context) (string, error) {
	if _, ok := n.machine.(standIn); ok {
		return "", fmt.Errorf("node %s: tell its boots apart: %w", n.name, errors.ErrUnsupported)
	}
	out, err := n.Exec(ctx, "cat", "/proc/sys/kernel/random/boot_id", "/proc/1/stat")
	if err != nil {
		return "", fmt.Errorf("node %s: tell its boots apart: %w", n.name, err)
	}
	id, stat, _ := strings.Cut(string(out), "\n")
	// A container has the kernel's id of its host, so what counts is when the first process began. The 22nd field is the 20th
	// after the name, which is in parentheses.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return "", fmt.Errorf("node %s: its /proc/1/stat is not as proc(5) has it", n.name)
	}
	return id + "/" + fields[19], nil
}

// AwaitBoot waits until the node has left the boot that Boot gave before, and lets us in again.
func (n *Node) AwaitBoot(ctx context.Context, before string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, errors.New("not within two minutes"))
	defer cancel()
	for {
		boot, err := n.Boot(ctx)
		if err == nil && boot != before {
			return n.await(ctx)
		}
		if errors.Is(err, errors.ErrUnsupported) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("node %s does not reboot: %w", n.name, errors.Join(context.Cause(ctx), err))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

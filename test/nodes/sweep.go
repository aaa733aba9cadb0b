package nodes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// ownerLabel says which process has started a container: host, pid, and when that process began, because pids come again.
const ownerLabel = label + ".owner"

func owner() string {
	host, _ := os.Hostname() // an empty one is as good as any, as long as it is the same next time
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), beginning(os.Getpid()))
}

// beginning is when a process began, in ticks since the boot, as far as the system tells.
func beginning(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The name, in brackets, may have anything in it. The 22nd field is the 20th after it.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return ""
	}
	return fields[19]
}

// isGone reports whether the owner was a process of this host that is no more. When in doubt it is not.
func isGone(who string) bool {
	parts := strings.Split(who, "/")
	host, err := os.Hostname()
	if err != nil || len(parts) != 3 || parts[0] != host {
		return false
	}
	pid, err := strconv.Atoi(parts[1])
	if err != nil || pid <= 0 {
		return false
	}
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	began := beginning(pid)
	return began != "" && began != parts[2]
}

// sweep removes the containers and networks of processes that were killed before they could.
func sweep(ctx context.Context, progress io.Writer) error {
	for _, of := range []struct {
		list, remove []string
		name         string
	}{
		{[]string{"ps", "--all"}, []string{"rm", "--force", "--volumes"}, "{{.Names}}"},
		{[]string{"network", "ls"}, []string{"network", "rm"}, "{{.Name}}"},
	} {
		out, err := docker(ctx, nil, append(of.list, "--filter", "label="+ownerLabel, "--format", of.name+` {{.Label "`+ownerLabel+`"}}`)...)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(out)) {
			name, who, _ := strings.Cut(strings.TrimSpace(line), " ")
			if !isGone(who) {
				continue
			}
			say(progress, "removing %s, left by a process that is gone", name)
			if _, err := docker(ctx, nil, append(of.remove, name)...); err != nil && !byAnother(err) {
				return err
			}
		}
	}
	return nil
}

// byAnother reports whether something could not be removed because somebody else sweeps, too.
func byAnother(err error) bool {
	return strings.Contains(err.Error(), "already in progress") || strings.Contains(err.Error(), "not found")
}

package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// stat returns the state of a process, as in proc_pid_stat(5), and its parent.
func stat(pid int) (state string, parent int, ok bool) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, false
	}
	// The name in the second field may have anything in it, but ends with the last parenthesis.
	_, rest, _ := strings.Cut(string(content[strings.LastIndexByte(string(content), ')'):]), " ")
	fields := strings.Fields(rest)
	parent, err = strconv.Atoi(fields[1])
	return fields[0], parent, err == nil
}

// Alive reports whether a process is there and not just waiting to be reaped.
func Alive(pid int) bool {
	state, _, ok := stat(pid)
	return ok && state != "Z"
}

// Children returns the processes that this one has started and that are still alive.
func Children() []int {
	var pids []int
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, entry := range entries {
		pid, err := strconv.Atoi(filepath.Base(entry))
		if err != nil || !Alive(pid) {
			continue
		}
		if _, parent, ok := stat(pid); ok && parent == os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

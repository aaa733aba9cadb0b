package host

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// LockHolder returns, for people, who keeps others from locking the file at p as by fcntl(2), or "". It takes no lock itself, and a file that is
// not there has none.
func (r Root) LockHolder(p string) (string, error) {
	at, err := r.find(p, true)
	if err != nil {
		return "", err
	}
	defer at.close()
	f, _, err := at.read(p)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock); err != nil {
		return "", fmt.Errorf("ask who has locked %s: %w", p, err)
	}
	if lock.Type == unix.F_UNLCK {
		return "", nil
	}
	return r.Process(int(lock.Pid)), nil
}

// Process returns what people call a process. One outside of the agent's sight has no number.
func (r Root) Process(pid int) string {
	if pid <= 0 {
		return "a process of which the number is not known"
	}
	number := strconv.Itoa(pid)
	name, _, err := r.ReadFile(path.Join("/proc", number, "comm"))
	if err != nil || len(name) == 0 {
		return "process " + number
	}
	return "process " + number + " (" + strings.TrimSpace(string(name)) + ")"
}

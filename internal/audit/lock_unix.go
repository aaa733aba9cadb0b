//go:build unix

package audit

import (
	"os"
	"syscall"
)

// lock locks a file until it is closed, or fails.
func lock(file *os.File) error {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

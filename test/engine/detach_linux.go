package engine

import "syscall"

// detach unmounts path even while something uses it.
func detach(path string) error { return syscall.Unmount(path, syscall.MNT_DETACH) }

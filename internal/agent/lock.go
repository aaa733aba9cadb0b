package agent

import (
	"errors"
	"os"
	"syscall"
)

const (
	// runLock is held by whoever works on the run. The kernel releases it when that process dies.
	runLock = "lock"
	// claimLock is apart from it so that a token can be claimed while a run is under way.
	claimLock = "claim.lock"
)

// lock waits for a lock and returns what releases it.
func (s stateDir) lock(name string) (release func(), err error) {
	f, err := s.disk.OpenFile(s.path(name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f, syscall.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// locked reports whether somebody holds a lock. Asking takes it for a moment, so whoever wants it must wait and not give up.
func (s stateDir) locked(name string) (bool, error) {
	f, err := s.disk.OpenFile(s.path(name), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = flock(f, syscall.LOCK_SH|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

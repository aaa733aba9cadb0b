package release

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"
)

const (
	// heldFile is where the node's own locks of packages are remembered while they are taken off.
	heldFile = "held.json"
	// lockPatience is how long it may take to put locks back, which is done even when the work has been called off. Within it others of the
	// package manager are waited for.
	lockPatience = patience + 5*time.Minute
)

// locks keep packages from being changed by accident: apt's holds, and dnf's versionlock.
type locks interface {
	// locked returns which of the packages are locked.
	locked(ctx context.Context, names []string) ([]string, error)
	// lock locks packages at the versions that they have now.
	lock(ctx context.Context, names []string) error
	unlock(ctx context.Context, names []string) error
}

// held are packages whose locks are off.
type held struct {
	Manager  form     `json:"manager"`
	Packages []string `json:"packages"`
}

// LocksError says that what was asked for is done, and that locks of packages which were taken off for it did not come back. Which these
// are stays written down, and the next call of the store puts them back.
type LocksError struct{ Err error }

// Error implements error.
func (e *LocksError) Error() string { return e.Err.Error() }

// Unwrap returns why they did not come back.
func (e *LocksError) Unwrap() error { return e.Err }

// lacksLocks reports whether nothing else is wrong than that locks did not come back.
func lacksLocks(err error) bool {
	var locks *LocksError
	return errors.As(err, &locks)
}

// locks returns those of a form of packages.
func (s *Store) locks(f form) (locks, error) {
	switch f {
	case debs:
		return holds{s}, nil
	case rpms:
		return versionLocks{s}, nil
	default:
		return nil, fmt.Errorf("%s in %s is of an unknown package manager", heldFile, s.top())
	}
}

// unlocked does something while those of the packages that are locked are not, and locks exactly these again. What it died over is mended
// by the next call of the store. A LocksError says that it is done nevertheless.
func (s *Store) unlocked(ctx context.Context, f form, names []string, do func() error) error {
	l, err := s.locks(f)
	if err != nil {
		return err
	}
	locked, err := l.locked(ctx, names)
	if err != nil {
		return err
	}
	if len(locked) == 0 {
		return do()
	}
	off := slices.Clone(locked)
	if before, err := s.held(); err != nil {
		return err
	} else if before != nil && before.Manager == f { // what could not be put back yet
		off = append(off, before.Packages...)
	}
	slices.Sort(off)
	data, err := json.Marshal(held{Manager: f, Packages: slices.Compact(off)})
	if err != nil {
		return err
	}
	// Before the locks go, so that nothing can happen to them unnoticed.
	if err := s.host.Disk.Write(filepath.Join(s.top(), heldFile), bytes.NewReader(append(data, '\n')), private(0o600)); err != nil {
		return err
	}
	if err = l.unlock(ctx, locked); err == nil {
		err = do()
	}
	return s.lockAgain(ctx, err)
}

// lockAgain puts locks back after something was done, of which err has come.
func (s *Store) lockAgain(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockPatience)
	defer cancel()
	unmended := s.mend(ctx)
	if err == nil && unmended != nil {
		return &LocksError{unmended}
	}
	return errors.Join(err, unmended)
}

// held returns the locks that were off when the agent died, or nil.
func (s *Store) held() (*held, error) {
	name := filepath.Join(s.top(), heldFile)
	data, err := s.host.Disk.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	h := &held{}
	if err := json.Unmarshal(data, h); err != nil {
		return nil, fmt.Errorf("%s can't be read: lock the packages of Kubernetes that were locked, and remove it", name)
	}
	return h, nil
}

// mend puts back the locks that were off when the agent died.
func (s *Store) mend(ctx context.Context) error {
	h, err := s.held()
	if err != nil || h == nil {
		return err
	}
	l, err := s.locks(h.Manager)
	if err != nil {
		return err
	}
	if err := l.lock(ctx, h.Packages); err != nil {
		return fmt.Errorf("the locks of %v could not be put back: %w", h.Packages, err)
	}
	return s.host.Disk.Remove(filepath.Join(s.top(), heldFile))
}

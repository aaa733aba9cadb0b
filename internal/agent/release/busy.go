package release

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/capi-refit/refit/internal/agent/host"
)

const (
	// patience is how long others of the package manager, as unattended-upgrades, are waited for. Nobody is stopped.
	patience = 5 * time.Minute
	// pause is how long it takes until it is tried again.
	pause = 5 * time.Second
	// listsLock is what asking the node's own repositories takes.
	listsLock = "/var/lib/apt/lists/lock"
)

// lockFiles are what programs lock, as by fcntl(2), that use a package manager. apt-get waits by itself for the first of its own only
// (DPkg::Lock::Timeout), and fails at the others, such as that of apt-daily, which downloads.
var lockFiles = map[form][]string{
	debs: {"/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", listsLock, "/var/cache/apt/archives/lock"},
	rpms: {"/run/dnf/rpmtransaction.lock", "/var/lib/rpm/.rpm.lock", "/usr/lib/sysimage/rpm/.rpm.lock"},
}

// numberFiles are those in which version 4 of dnf writes the number of its process while it works (dnf/lock.py).
var numberFiles = []string{"/var/cache/dnf/metadata_lock.pid", "/var/cache/dnf/download_lock.pid", "/var/lib/dnf/rpmdb_lock.pid"}

// inUse is what dpkg says when somebody else has it, with the number of the process, and apt for its own locks, and rpm. Older ones say "is
// locked", of the frontend or of the status database. That a lock can't be taken for another reason does not pass by itself.
var inUse = regexp.MustCompile(`(?i)[^\n]*(?:(?:frontend|database|database area)(?: lock)? (?:is|was) locked by another process|` +
	`could not get lock|unable to acquire [^\n]*is another process using it|can't create transaction lock[^\n]*temporarily unavailable)[^\n]*`)

// busy returns who has the package manager that a form of releases is installed by, or "".
func (s *Store) busy(f form) string {
	who := s.locker(lockFiles[f]...)
	if f != rpms {
		return who
	}
	for _, p := range numberFiles {
		if who == "" {
			who = s.works(p)
		}
	}
	return who
}

// locker returns who has locked one of the files, or "". Of one that can't be asked about the package manager itself tells.
func (s *Store) locker(files ...string) string {
	for _, p := range files {
		if who, err := s.host.LockHolder(p); err == nil && who != "" {
			return fmt.Sprintf("%s is held by %s", p, who)
		}
	}
	return ""
}

// works returns which process has written its number into a file and is still there, or "". One that was killed leaves its file.
func (s *Store) works(p string) string {
	data, _, err := s.host.ReadFile(p)
	if err != nil {
		return ""
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || pid <= 0 {
		return ""
	}
	if _, err := s.host.Stat("/proc/" + strconv.Itoa(pid)); err != nil {
		return ""
	}
	return fmt.Sprintf("%s is held by %s", p, s.host.Process(pid))
}

// alone does something when nobody else has the package manager of a form, and again when somebody was quicker.
func (s *Store) alone(ctx context.Context, f form, do func() error) error {
	return s.patient(ctx, func() string { return s.busy(f) }, do)
}

// patient is alone with what held says about who is in the way.
func (s *Store) patient(ctx context.Context, held func() string, do func() error) error {
	for waited := time.Duration(0); ; waited += pause {
		who, failure := attempt(held, do)
		if who == "" {
			return failure
		}
		if waited >= patience {
			return errors.Join(fmt.Errorf("somebody else has had the package manager for %s: %s: wait for its end, or stop it, and try again",
				patience, who), failure)
		}
		if err := s.host.Clock.Wait(ctx, pause); err != nil {
			return fmt.Errorf("%s: %w", who, err)
		}
	}
}

// attempt does something unless somebody has the package manager, and says who has it.
func attempt(held func() string, do func() error) (who string, failure error) {
	if who = held(); who != "" {
		return who, nil
	}
	err := do()
	var failed *host.SaidError
	if !errors.As(err, &failed) {
		return "", err
	}
	if who = strings.TrimSpace(inUse.FindString(failed.Said)); who == "" { // not all that people are shown of it has that line
		return "", err
	}
	return who, failed.Err
}

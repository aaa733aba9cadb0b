package release

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/capi-refit/refit/internal/agent/host"
)

const (
	// dpkgPatience is how long others of dpkg, as unattended-upgrades, are waited for.
	dpkgPatience = 5 * time.Minute
	// dpkgPause is how long it takes until dpkg is tried again.
	dpkgPause = 5 * time.Second
)

// inUse is what dpkg says when somebody else has it, with the number of the process, and apt for its own locks. Older ones say "is locked",
// of the frontend or of the status database. That a lock can't be taken for another reason does not pass by itself.
var inUse = regexp.MustCompile(`(?i)[^\n]*(?:(?:frontend|database|database area)(?: lock)? (?:is|was) locked by another process|` +
	`could not get lock|unable to acquire [^\n]*is another process using it)[^\n]*`)

// patient does something again while somebody else has dpkg. Of all calls only those of apt-get wait by themselves (DPkg::Lock::Timeout).
func (s *Store) patient(ctx context.Context, do func() error) error {
	for waited := time.Duration(0); ; waited += dpkgPause {
		err := do()
		var failed *host.SaidError
		if !errors.As(err, &failed) {
			return err
		}
		who := strings.TrimSpace(inUse.FindString(failed.Said)) // not all that people are shown of it has that line
		if who == "" {
			return err
		}
		if waited >= dpkgPatience {
			return fmt.Errorf("somebody else has had dpkg for %s: %s: wait for its end, or stop it, and try again: %w", dpkgPatience, who, failed.Err)
		}
		if err := s.host.Clock.Wait(ctx, dpkgPause); err != nil {
			return fmt.Errorf("%s: %w", who, err)
		}
	}
}

// holds are apt's locks.
type holds struct{ *Store }

// locked implements locks.
func (h holds) locked(ctx context.Context, names []string) ([]string, error) {
	out, err := h.host.RunTelling(ctx, host.Command{Name: "apt-mark", Args: []string{"showhold"}})
	if err != nil {
		return nil, err
	}
	var all []string
	for _, name := range strings.Fields(string(out)) {
		if slices.Contains(names, name) {
			all = append(all, name)
		}
	}
	return all, nil
}

// lock implements locks.
func (h holds) lock(ctx context.Context, names []string) error { return h.mark(ctx, "hold", names) }

// unlock implements locks.
func (h holds) unlock(ctx context.Context, names []string) error { return h.mark(ctx, "unhold", names) }

func (h holds) mark(ctx context.Context, verb string, names []string) error {
	return h.patient(ctx, func() error {
		_, err := h.host.RunTelling(ctx, host.Command{Name: "apt-mark", Args: append([]string{verb}, names...)})
		return err
	})
}

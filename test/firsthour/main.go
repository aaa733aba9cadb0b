// Firsthour goes a new user's way, from a management cluster without refit to a first machine that was updated in place, by the commands of
// docs/install.md and docs/tutorial.md, and says how long each took. It ends all that it starts.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// What a new user is to need at most: for all of it, and for refit's part.
const (
	goal      = 10 * time.Minute
	refitGoal = 2 * time.Minute
)

func main() {
	ctrl.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "first-hour:", err)
		os.Exit(1) //nolint:gocritic // there is nothing left for the deferred stop to do
	}
}

func run(ctx context.Context, out io.Writer) (err error) {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(root, "bin", "refit")); err != nil {
		return fmt.Errorf("%w; run it with `make first-hour`", err)
	}
	u := &user{root: root, out: out}
	defer func() { err = errors.Join(err, u.stop()) }()
	if err := u.prepare(ctx); err != nil {
		return err
	}
	var all, ofRefit time.Duration
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "\nSTEP\tWHOSE\tTOOK")
	for _, s := range u.steps() {
		_, _ = fmt.Fprintf(out, "== %s\n", s.name)
		began := time.Now()
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		took := time.Since(began)
		all += took
		if s.whose == refits {
			ofRefit += took
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%.1fs\n", s.name, s.whose, took.Seconds())
	}
	_, _ = fmt.Fprintf(table, "all of it\t\t%.1fs\nof it refit's\t\t%.1fs\n", all.Seconds(), ofRefit.Seconds())
	if err := table.Flush(); err != nil {
		return err
	}
	if all > goal || ofRefit > refitGoal {
		return fmt.Errorf("it is to take %s at most, and refit's part %s", goal, refitGoal)
	}
	return nil
}

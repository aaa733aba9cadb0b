package version

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/release"
	"github.com/capi-refit/refit/internal/agent/staticpod/staticpodtest"
	"github.com/capi-refit/refit/internal/node"
)

// clock tells the time with a distance to the true one, by which certificates are issued, and is impatient if it is told so.
type clock struct {
	staticpodtest.Clock
	ahead     time.Duration
	impatient *staticpodtest.Impatient
}

func (c *clock) Now() time.Time { return time.Now().Add(c.ahead) }

func (c *clock) Wait(ctx context.Context, d time.Duration) error {
	if c.impatient != nil {
		return c.impatient.Wait(ctx, d)
	}
	return c.Clock.Wait(ctx, d)
}

// releases stands in for the store: releases are directories of the node.
type releases struct {
	w       *world
	missing []string
	unfit   error
	calls   []string
	// note is what is told of each installation.
	note string
	// packages reports that releases are packages of the system.
	packages bool
	// lockless are the calls after which locks of packages do not come back.
	lockless []string
	// busy is how often somebody has the package manager yet when a release is looked for.
	busy int
}

func (r *releases) Find(version string) (*release.Release, error) {
	dir := r.w.Path("/releases/" + version)
	if _, err := os.Stat(dir); err != nil {
		return nil, nil //nolint:nilerr,nilnil // as Store.Find has it
	}
	found := &release.Release{Version: version, Packages: r.packages}
	if _, err := os.Stat(path.Join(dir, "kubeadm")); err == nil {
		found.Kubeadm = path.Join(dir, "kubeadm")
	}
	if r.busy > 0 {
		r.busy--
		found.Busy = "/var/cache/apt/archives/lock is held by process 7 (apt-get)"
	}
	return found, nil
}

func (r *releases) Missing(node.Source) ([]string, error) { return r.missing, r.unfit }

func (r *releases) Install(_ context.Context, version string, programs ...string) (string, error) {
	r.calls = append(r.calls, version+" "+strings.Join(programs, " "))
	for _, p := range programs {
		if err := r.w.step(); err != nil {
			return "", err
		}
		script := r.w.Get("/releases/" + version + "/" + p)
		if script == "(missing)" {
			return "", errors.New("the release is not there")
		}
		r.w.Program(p, strings.TrimPrefix(script, "#!/bin/sh\n"))
	}
	if slices.Contains(r.lockless, r.calls[len(r.calls)-1]) {
		return "", fmt.Errorf("%s: %w", programs[0], &release.LocksError{Err: errors.New("the locks of " + programs[0] + " could not be put back")})
	}
	return r.note, r.w.step()
}

// Show implements host.Units.
func (w *world) Show(context.Context, string) (host.UnitState, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return host.UnitState{InvocationID: strconv.Itoa(w.invocation)}, nil
}

// System implements host.Units.
func (w *world) System(context.Context) (string, error) { return "running", nil }

// Do implements host.Units. A restart runs the kubelet that is installed.
func (w *world) Do(ctx context.Context, verb, unit string) error {
	if err := w.step(); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, strings.TrimSpace(verb+" "+unit))
	if verb != "restart" {
		return nil
	}
	version := w.kind.installedKubelet(ctx)
	w.invocation++
	if w.up = !w.broken[version]; w.up {
		w.reported, w.ready = version, true
	}
	return nil
}

// step counts down to the death of the process.
func (w *world) step() error {
	text := w.Get("/steps")
	if text == "(missing)" {
		return nil
	}
	n, err := strconv.Atoi(strings.TrimSpace(text))
	require.NoError(w, err)
	w.Put("/steps", strconv.Itoa(n-1))
	if n <= 0 {
		return errors.New("the process has died")
	}
	return nil
}

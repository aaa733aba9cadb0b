package engine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cgroupParent is the cgroup that all containers are in, so that their processes are found even when nobody else knows them.
const cgroupParent = "refit-engine"

// clean removes what an engine has made outside of its own data: processes, mounts, bridges, rules, state. The engine itself
// has ended.
func (p *Private) clean(ctx context.Context) error {
	if err := endProcesses(ctx); err != nil {
		return err
	}
	return errors.Join(removeCgroups(), open(ctx, networkBridge), removeBridge(ctx, networkBridge),
		removeBridge(ctx, defaultBridge), unmount(stateDir, p.dir), os.RemoveAll(stateDir))
}

// endProcesses kills what is left of an engine that was killed: its containerd, the shims, and what runs in containers.
func endProcesses(ctx context.Context) error {
	for {
		pids, err := engineProcesses()
		if err != nil {
			return err
		}
		contained, err := containedProcesses()
		if err != nil {
			return err
		}
		if pids = append(pids, contained...); len(pids) == 0 {
			return nil
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("killing process %d: %w", pid, err)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the end of processes %v: %w", pids, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// engineProcesses returns the programs of an engine that have a path of this one's among their arguments.
func engineProcesses() ([]int, error) {
	entries, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, entry := range entries {
		content, err := os.ReadFile(entry)
		if err != nil {
			continue // it has ended
		}
		arguments := strings.Split(string(content), "\x00")
		// A person's editor is not an engine.
		name := filepath.Base(arguments[0])
		if name != "dockerd" && name != "containerd" && !strings.HasPrefix(name, "containerd-shim") {
			continue
		}
		if !slices.ContainsFunc(arguments, func(a string) bool { return strings.HasPrefix(a, stateDir+"/") }) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(entry)))
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// cgroups returns cgroupParent with all below it, in every hierarchy: parents before children.
func cgroups() ([]string, error) {
	var roots []string
	for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} { // version 2, version 1
		found, err := filepath.Glob(pattern + cgroupParent)
		if err != nil {
			return nil, err
		}
		roots = append(roots, found...)
	}
	var all []string
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // it ends while we look
			}
			if err == nil && entry.IsDir() {
				all = append(all, path)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("looking for cgroups: %w", err)
		}
	}
	return all, nil
}

// containedProcesses returns the processes of containers.
func containedProcesses() ([]int, error) {
	all, err := cgroups()
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, dir := range all {
		content, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			continue // it has ended, or has threads only
		}
		for _, field := range strings.Fields(string(content)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return nil, err
			}
			if pid > 0 {
				pids = append(pids, pid)
			}
		}
	}
	return pids, nil
}

// removeCgroups removes the cgroups of containers, which have no processes anymore.
func removeCgroups() error {
	all, err := cgroups()
	errs := []error{err}
	for i := len(all) - 1; i >= 0; i-- {
		if err := os.Remove(all[i]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// unmount unmounts what is mounted at directories and below, last first.
func unmount(dirs ...string) error {
	file, err := os.Open("/proc/self/mountinfo")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading mounts: %w", err)
	}
	defer file.Close()
	var mounts []string
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		for _, dir := range dirs {
			if len(fields) > 4 && strings.HasPrefix(fields[4]+"/", dir+"/") {
				mounts = append(mounts, fields[4])
			}
		}
	}
	errs := []error{lines.Err()}
	for i := len(mounts) - 1; i >= 0; i-- {
		if err := detach(mounts[i]); err != nil && !errors.Is(err, syscall.EINVAL) {
			errs = append(errs, fmt.Errorf("unmounting %s: %w", mounts[i], err))
		}
	}
	return errors.Join(errs...)
}

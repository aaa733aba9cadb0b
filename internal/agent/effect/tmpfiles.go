package effect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
)

// making are the types of lines by which systemd-tmpfiles makes something, and what.
var making = map[byte]fs.FileMode{
	'f': 0, 'F': 0, 'd': fs.ModeDir, 'D': fs.ModeDir, 'v': fs.ModeDir, 'q': fs.ModeDir, 'Q': fs.ModeDir, 'p': fs.ModeNamedPipe, 'L': fs.ModeSymlink,
}

// made returns the paths that a file of systemd-tmpfiles has it make while the system runs, with what they are. Those with specifiers are
// left out, and those that are for a boot only.
func made(text []byte) map[string]fs.FileMode {
	out := map[string]fs.FileMode{}
	for _, line := range lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kind, ok := making[fields[0][0]]
		p := strings.Trim(fields[1], `"'`)
		if ok && !strings.Contains(fields[0], "!") && path.IsAbs(p) && !strings.Contains(p, "%") {
			out[path.Clean(p)] = kind
		}
	}
	return out
}

// allMade returns what all files have it make.
func (e Effects) allMade() (map[string]fs.FileMode, error) {
	files, err := e.dropIns(tmpfilesDirs)
	if err != nil {
		return nil, err
	}
	all := map[string]fs.FileMode{}
	for _, file := range slices.Backward(files) { // of lines for one path the first counts
		text, _, err := e.Host.ReadFile(file)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, made(text))
	}
	return all, nil
}

func (e Effects) noteMade(changes []Change, n *Noted, base *Base) error {
	all, err := e.allMade()
	if err != nil {
		return err
	}
	maps.DeleteFunc(base.Made, func(p string, _ bool) bool { _, named := all[p]; return !named })
	for _, c := range of(changes, tmpfilesDirs...) {
		paths := made(c.Before)
		maps.Copy(paths, made(c.After))
		for p := range paths {
			_, missing := e.Host.Lstat(p)
			if n.Made == nil {
				n.Made = map[string]bool{}
			}
			n.Made[p] = missing == nil
			if _, named := all[p]; !named && errors.Is(missing, fs.ErrNotExist) {
				if base.Made == nil {
					base.Made = map[string]bool{}
				}
				base.Made[p] = true
			}
		}
	}
	return nil
}

// bringMade has systemd-tmpfiles make what the files name, and removes what it has made for files that no longer do, unless something is in it.
func (e Effects) bringMade(ctx context.Context, n Noted, base Base) ([]string, error) {
	notes, err := e.create(ctx, n)
	if err != nil {
		return notes, err
	}
	all, err := e.allMade()
	if err != nil {
		return notes, err
	}
	for _, p := range slices.Sorted(maps.Keys(n.Made)) {
		if _, named := all[p]; named {
			continue
		}
		if note := e.unmake(p, base.Made[p]); note != "" {
			notes = append(notes, note)
		}
	}
	return notes, nil
}

// create runs systemd-tmpfiles for the changed files, or for those that they no longer hide. It is never run for all of them, nor to
// remove: that would empty directories which are in use.
func (e Effects) create(ctx context.Context, n Noted) ([]string, error) {
	files, err := e.dropIns(tmpfilesDirs)
	if err != nil {
		return nil, err
	}
	for _, changed := range n.Files {
		i := slices.IndexFunc(files, func(f string) bool { return path.Base(f) == path.Base(changed) })
		if !within(changed, tmpfilesDirs...) || i < 0 {
			continue
		}
		_, err := e.Host.RunTelling(ctx, host.Command{Name: "systemd-tmpfiles", Args: []string{"--create", files[i]}})
		if errors.Is(err, host.ErrNoProgram) {
			return []string{"the node has no systemd-tmpfiles, so what " + files[i] + " names is not made"}, nil
		}
		if err != nil {
			return nil, fmt.Errorf("systemd-tmpfiles --create %s: %w", files[i], err)
		}
	}
	return nil, nil
}

// unmake removes an empty directory, an empty file or a link, if systemd-tmpfiles has made it, and returns a note if it stays.
func (e Effects) unmake(p string, ours bool) string {
	info, err := e.Host.Lstat(p)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err != nil || !ours || info.Mode().IsRegular() && info.Size() > 0 {
		return p + " stays, which no file in tmpfiles.d names any more; remove it if nothing needs it"
	}
	dir, err := e.Host.OpenDir(path.Dir(p))
	if err == nil && dir != nil {
		defer func() { _ = dir.Close() }()
		err = dir.Remove(path.Base(p)) // a directory with something in it is not removed
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return p + " stays, which no file in tmpfiles.d names any more, since something is in it; remove it if nothing needs it"
	}
	return ""
}

func (e Effects) verifyMade(n Noted) error {
	if e.Host.Program("systemd-tmpfiles") == "" {
		return nil // which was noted
	}
	all, err := e.allMade()
	wrong := []error{err}
	for _, p := range slices.Sorted(maps.Keys(n.Made)) {
		want, named := all[p]
		if !named {
			continue
		}
		info, err := e.Host.Lstat(p)
		switch {
		case err != nil:
			wrong = append(wrong, fmt.Errorf("systemd-tmpfiles has not made %s: %w", p, err))
		case info.Mode().Type() != want && want != fs.ModeDir:
			wrong = append(wrong, fmt.Errorf("%s is there, and is not what tmpfiles.d says", p))
		}
	}
	return errors.Join(wrong...)
}

func (e Effects) undoMade(ctx context.Context, n Noted) ([]string, error) {
	notes, err := e.create(ctx, n)
	all, unread := e.allMade()
	if err = errors.Join(err, unread); err != nil {
		return notes, err
	}
	for _, p := range slices.Sorted(maps.Keys(n.Made)) {
		if _, named := all[p]; named || n.Made[p] {
			continue
		}
		if note := e.unmake(p, true); note != "" {
			notes = append(notes, note)
		}
	}
	return notes, nil
}

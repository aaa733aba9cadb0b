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

	"github.com/capi-refit/refit/internal/agent/host"
)

// made returns the paths that a file of systemd-tmpfiles has it make while the system runs, with what they are. Those with specifiers are
// left out, and those that are for a boot only.
func made(text []byte) map[string]fs.FileMode {
	out := map[string]fs.FileMode{}
	for _, it := range items(text) {
		if kind, ok := it.makes(); ok {
			out[it.path] = kind
		}
	}
	return out
}

// written returns the digests of what a file of systemd-tmpfiles has it write to new files, by their paths.
func written(text []byte) map[string]string {
	out := map[string]string{}
	for _, it := range items(text) {
		if content, ok := it.content(); ok {
			out[it.path] = digestOf([]byte(content))
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
		for _, text := range [][]byte{c.Before, c.After} {
			for p, digest := range written(text) {
				if n.Written == nil {
					n.Written = map[string][]string{}
				}
				n.Written[p] = append(n.Written[p], digest)
			}
		}
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
	for _, p := range slices.Backward(slices.Sorted(maps.Keys(n.Made))) { // what is in a directory before it
		if _, named := all[p]; named {
			continue
		}
		if note := e.unmake(p, base.Made[p], n.Written[p]); note != "" {
			notes = append(notes, note)
		}
	}
	return notes, nil
}

// create runs systemd-tmpfiles for the changed files, or for those that they no longer hide. It is never run for all of them, nor to
// remove: that would empty directories which are in use. Nor is it run for a file from before refit that has it do what can't be undone: a
// boot has done that.
func (e Effects) create(ctx context.Context, n Noted) (notes []string, err error) {
	files, err := e.dropIns(tmpfilesDirs)
	if err != nil {
		return nil, err
	}
	for _, changed := range n.Files {
		i := slices.IndexFunc(files, func(f string) bool { return path.Base(f) == path.Base(changed) })
		if !within(changed, tmpfilesDirs...) || i < 0 {
			continue
		}
		if note, err := e.leaves(files[i]); note != "" || err != nil {
			notes = append(notes, note)
			if err != nil {
				return notes, err
			}
			continue
		}
		_, err := e.Host.RunTelling(ctx, host.Command{Name: "systemd-tmpfiles", Args: []string{"--create", files[i]}})
		if errors.Is(err, host.ErrNoProgram) {
			return append(notes, "the node has no systemd-tmpfiles, so what "+files[i]+" names is not made"), nil
		}
		if err != nil {
			return notes, fmt.Errorf("systemd-tmpfiles --create %s: %w", files[i], err)
		}
	}
	return notes, nil
}

// leaves returns a note if systemd-tmpfiles is not run for a file, since what a line of it does can't be undone.
func (e Effects) leaves(file string) (string, error) {
	text, _, err := e.Host.ReadFile(file)
	if err != nil {
		return "", err
	}
	for _, it := range items(text) {
		if it.lasting() != "" {
			return fmt.Sprintf("systemd-tmpfiles was not run for %s, since what line %d of it does can't be undone; a boot does it",
				file, it.number), nil
		}
	}
	return "", nil
}

// unmake removes what systemd-tmpfiles has made, and returns a note if it stays: a directory that is not empty, or a file with something in
// it that was not written by a line.
func (e Effects) unmake(p string, ours bool, written []string) string {
	info, err := e.Host.Lstat(p)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err != nil || !ours || info.Mode().IsRegular() && info.Size() > 0 && !e.isWritten(p, written) {
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

func (e Effects) isWritten(p string, digests []string) bool {
	content, _, err := e.Host.ReadFile(p)
	return err == nil && slices.Contains(digests, digestOf(content))
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
	for _, p := range slices.Backward(slices.Sorted(maps.Keys(n.Made))) {
		if _, named := all[p]; named || n.Made[p] {
			continue
		}
		if note := e.unmake(p, true, n.Written[p]); note != "" {
			notes = append(notes, note)
		}
	}
	return notes, nil
}

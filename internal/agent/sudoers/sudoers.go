// Package sudoers has sudo's own parser read rules before they are written to a node. By rules that it can't parse nobody becomes root any
// more, refit among them.
package sudoers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
)

// Where sudo reads rules.
const (
	Main = "/etc/sudoers"
	Dir  = "/etc/sudoers.d"
)

// File is one as it is to be. The zero value is one that is to be gone.
type File struct {
	Content []byte
	State   host.State
}

// includesDir matches the line by which the main file includes those of the directory.
var includesDir = regexp.MustCompile(`(?m)^[ \t]*[@#]includedir[ \t]+"?(/etc/)?sudoers\.d/?"?[ \t]*$`)

// Is reports whether sudo reads a file.
func Is(p string) bool { return p == Main || path.Dir(p) == Dir && read(path.Base(p)) }

// read reports whether sudo reads a file of the directory, by its name.
func read(name string) bool { return !strings.Contains(name, ".") && !strings.HasSuffix(name, "~") }

// Check returns an error unless sudo accepts all rules of the node with the files in next as they are there, by their paths. It quotes
// nothing of them.
func Check(ctx context.Context, r host.Root, next map[string]File) error {
	for _, p := range slices.Sorted(maps.Keys(next)) {
		if err := owned(p, next[p].State); err != nil {
			return err
		}
	}
	if r.Program("visudo") == "" {
		return errors.New("sudo's rules can't be checked, since the node has no visudo: install the package sudo")
	}
	whole, err := Whole(r, next)
	if err != nil {
		return err
	}
	if visudo(ctx, r, []byte(whole)) == nil {
		return nil
	}
	for _, p := range slices.Sorted(maps.Keys(next)) {
		if err := visudo(ctx, r, next[p].Content); err != nil {
			return fmt.Errorf("visudo does not accept %s (%w): correct it; nothing was changed", p, err)
		}
	}
	now, err := Whole(r, nil)
	if err != nil || visudo(ctx, r, []byte(now)) != nil {
		return err // by what is there already, which can't be read together in one piece
	}
	return errors.New("visudo accepts each of the changed files, and not all rules of the node together with them: an alias may be there " +
		"twice; correct them; nothing was changed")
}

// owned returns an error if sudo would refuse a file for its owner or mode, and with it all rules.
func owned(p string, s host.State) error {
	if !s.Exists {
		return nil
	}
	if s.Mode&0o022 != 0 {
		return fmt.Errorf("sudo reads no rules of %s, since others than root could write to it by its mode %04o: give it the mode 0440", p, s.Mode)
	}
	return nil
}

// visudo has sudo's parser read rules. It quotes what it reads, which is why that is not repeated.
func visudo(ctx context.Context, r host.Root, text []byte) error {
	_, err := r.Run(ctx, host.Command{Name: "visudo", Args: []string{"-cf", "/dev/stdin"}, Stdin: text})
	return err
}

// Whole returns all rules of the node in one text, in the order in which sudo reads them, with the files in next as they are there.
func Whole(r host.Root, next map[string]File) (string, error) {
	content := func(p string) (string, error) {
		if f, ok := next[p]; ok {
			return string(f.Content), nil
		}
		data, _, err := r.ReadFile(p)
		return string(data), err
	}
	main, err := content(Main)
	if err != nil {
		return "", err
	}
	names, err := list(r, next)
	if err != nil {
		return "", err
	}
	var parts strings.Builder
	for _, name := range names {
		text, err := content(path.Join(Dir, name))
		if err != nil {
			return "", err
		}
		parts.WriteString("\n" + text + "\n")
	}
	if !includesDir.MatchString(main) {
		return main, nil
	}
	return includesDir.ReplaceAllLiteralString(main, parts.String()), nil
}

// list returns the names of the directory's files that sudo reads, in its order.
func list(r host.Root, next map[string]File) ([]string, error) {
	entries, err := r.ReadDir(Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	names := map[string]bool{}
	for _, e := range entries {
		names[e.Name()] = !e.IsDir() && read(e.Name())
	}
	for p, f := range next {
		if path.Dir(p) == Dir {
			names[path.Base(p)] = f.State.Exists && read(path.Base(p))
		}
	}
	maps.DeleteFunc(names, func(_ string, there bool) bool { return !there })
	return slices.Sorted(maps.Keys(names)), nil
}

package user

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
)

// usualKeys is where refit writes keys, seen from the home.
const usualKeys = keysDir + "/" + keysName

// keyFiles returns the words by which sshd's configuration says where the keys of a user are: sshd is asked, and where that can't be done,
// its files are read up to the first Match. Nothing: it says nothing.
func (k *Kind) keyFiles(ctx context.Context, name string) []string {
	out, err := k.host.Run(ctx, host.Command{Name: "sshd", Args: []string{"-T", "-C", "user=" + name + ",host=localhost,addr=127.0.0.1"}})
	if err == nil {
		for line := range strings.Lines(string(out)) {
			if words := strings.Fields(line); len(words) > 0 && words[0] == "authorizedkeysfile" {
				return words[1:]
			}
		}
	}
	return k.firstKeyFiles("/etc/ssh/sshd_config", map[string]bool{})
}

// firstKeyFiles returns what a file, with those that it includes, says first for all users. Nil: nothing.
func (k *Kind) firstKeyFiles(p string, seen map[string]bool) []string {
	const most = 100
	if seen[p] || len(seen) > most {
		return nil
	}
	seen[p] = true
	data, _, err := k.host.ReadFile(p)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(data)) {
		columns := strings.Fields(strings.ReplaceAll(strings.ReplaceAll(line, "=", " "), `"`, ""))
		switch {
		case len(columns) == 0:
		case strings.EqualFold(columns[0], "Match"):
			return nil
		case strings.EqualFold(columns[0], "AuthorizedKeysFile"):
			return columns[1:]
		case strings.EqualFold(columns[0], "Include"):
			for _, file := range k.included(columns[1:]) {
				// A Match in an included file ends with it.
				if words := k.firstKeyFiles(file, seen); words != nil {
					return words
				}
			}
		}
	}
	return nil
}

// included returns the files that patterns stand for, in sshd's order.
func (k *Kind) included(patterns []string) (files []string) {
	for _, pattern := range patterns {
		if !path.IsAbs(pattern) {
			pattern = path.Join("/etc/ssh", pattern)
		}
		entries, err := k.host.ReadDir(path.Dir(pattern))
		if err != nil {
			continue
		}
		for _, e := range entries {
			p := path.Join(path.Dir(pattern), e.Name())
			if ok, err := path.Match(pattern, p); ok && err == nil {
				files = append(files, p)
			}
		}
	}
	return files
}

// keysElsewhere returns where sshd reads the keys of a user, if the usual file is not among that.
func (k *Kind) keysElsewhere(ctx context.Context, name string) string {
	words := k.keyFiles(ctx, name)
	if slices.ContainsFunc(words, func(w string) bool { return strings.TrimPrefix(w, "%h/") == usualKeys }) {
		return ""
	}
	return strings.Join(words, " ")
}

// keysStay says in which other file of sshd's a key is that the specs take away: it would still let its owner in.
func (k *Kind) keysStay(ctx context.Context, p plan) string {
	if !slices.Contains(p.scope, aspectKeys) || p.goal.removed {
		return ""
	}
	gone, kept := ids(parseKeys(p.goal.keysGone)), ids(parseKeys(p.goal.keys))
	for _, word := range k.keyFiles(ctx, p.goal.name) {
		file := strings.NewReplacer("%h", p.view.account.Home, "%u", p.goal.name, "%U", strconv.Itoa(p.view.account.UID), "%%", "%").Replace(word)
		if !path.IsAbs(file) {
			file = path.Join(p.view.account.Home, file)
		}
		if word == "none" || file == path.Join(p.view.account.Home, usualKeys) {
			continue
		}
		data, _, err := k.host.ReadFile(file)
		if err != nil {
			return fmt.Sprintf("sshd reads keys from %s, too, and whether a key that goes is in there can't be seen: %v", file, err)
		}
		for _, there := range keysOf(string(data)) {
			if gone[there.id] && !kept[there.id] {
				return fmt.Sprintf("a key that the specs take away is also in %s, where sshd reads it, and refit does not write: take it out there first", file)
			}
		}
	}
	return ""
}

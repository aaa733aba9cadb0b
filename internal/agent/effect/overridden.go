package effect

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
)

// sshdFiles are sshd's, which takes the first value that it reads of a keyword, sshd_config(5).
var sshdFiles = []string{"/etc/ssh/sshd_config", "/etc/ssh/sshd_config.d"}

// sshdLists are keywords of which each line counts.
var sshdLists = []string{"port", "hostkey"}

// sshdAliases are keywords that sshd takes for others, by whose names it tells what it has taken.
var sshdAliases = map[string]string{
	"challengeresponseauthentication": "kbdinteractiveauthentication", "skeyauthentication": "kbdinteractiveauthentication",
	"dsaauthentication": "pubkeyauthentication", "keepalive": "tcpkeepalive",
}

// readerSections are the sections that files of systemd's have their settings in, by the names of the main files.
var readerSections = map[string]string{"journald.conf": "Journal", "resolved.conf": "Resolve"}

// readerLists are settings to which each file adds, resolved.conf(5).
var readerLists = []string{"DNS", "FallbackDNS", "Domains", "DNSStubListenerExtra"}

// overridden returns notes on what changed files set, and other files set otherwise and count: it is as written, and not in effect.
func (e Effects) overridden(ctx context.Context, n Noted) []string {
	var notes []string
	for _, file := range n.Files {
		text, state, err := e.Host.ReadFile(file)
		if err != nil || !state.Exists {
			continue
		}
		if within(file, sshdFiles...) {
			notes = append(notes, e.overriddenInSSHD(ctx, file, text)...)
		}
		for _, unit := range slices.Sorted(maps.Keys(readers)) {
			if within(file, readers[unit]...) {
				notes = append(notes, e.overriddenInReader(ctx, file, readers[unit][0], text)...)
			}
		}
	}
	return notes
}

// overriddenInSSHD asks sshd what it takes of the files for logins to which no Match applies. Of the rest it has its own words, so that only
// what a file says is yes or no, or a number, is compared.
func (e Effects) overriddenInSSHD(ctx context.Context, file string, text []byte) (notes []string) {
	out, err := e.Host.Run(ctx, host.Command{Name: "sshd", Args: []string{"-T"}})
	if err != nil {
		return nil // the new login tells whether it works
	}
	counts, seen := map[string]string{}, map[string]bool{}
	for _, line := range lines(out) {
		key, value, _ := strings.Cut(line, " ")
		counts[key] = value
	}
	for _, line := range lines(text) {
		words := sshdWords(line)
		if len(words) > 0 && strings.EqualFold(words[0], "Match") {
			break
		}
		if len(words) != 2 {
			continue
		}
		key := sshdKeyword(words[0])
		is, known := counts[key]
		if known && !seen[key] && !slices.Contains(sshdLists, key) && contradicts(strings.ToLower(words[1]), is) {
			notes = append(notes, notInEffect(file, words[0], words[1], is, "sshd"))
		}
		seen[key] = true
	}
	return notes
}

// sshdKeyword returns the name by which sshd tells what it has taken of a keyword.
func sshdKeyword(word string) string {
	key := strings.ToLower(word)
	return cmp.Or(sshdAliases[key], key)
}

// sshdWords returns those of a line, up to a comment.
func sshdWords(line string) []string {
	words := strings.Fields(strings.NewReplacer("=", " ", `"`, "").Replace(line))
	if i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "#") }); i >= 0 {
		return words[:i]
	}
	return words
}

// contradicts reports whether a value is not what sshd has taken. Words but yes and no have others that mean the same, and numbers can have
// more behind them.
func contradicts(value, is string) bool {
	if value == "yes" || value == "no" {
		return value != is
	}
	want, err := strconv.Atoi(value)
	first, _, _ := strings.Cut(strings.ReplaceAll(is, ":", " "), " ")
	got, unknown := strconv.Atoi(first)
	return err == nil && unknown == nil && want != got
}

// overriddenInReader looks which of all files that systemd reads has the last value, and what of a file it does not read.
func (e Effects) overriddenInReader(ctx context.Context, file, main string, text []byte) (notes []string) {
	section := readerSections[path.Base(main)]
	ours, outside := settings(text, section)
	if len(outside) > 0 {
		notes = append(notes, fmt.Sprintf("%s sets %s outside of the section [%s], where systemd does not read it", file, strings.Join(outside, ", "), section))
	}
	out, err := e.Host.Run(ctx, host.Command{Name: "systemd-analyze", Args: []string{"cat-config", "systemd/" + path.Base(main)}})
	if err != nil {
		return notes // that it was started since is known
	}
	all, _ := settings(out, section)
	for _, key := range slices.Sorted(maps.Keys(ours)) {
		if is, ok := all[key]; ok && is != ours[key] && !slices.Contains(readerLists, key) {
			notes = append(notes, notInEffect(file, key, ours[key], is, "systemd"))
		}
	}
	return notes
}

// catFile is the line that systemd-analyze cat-config puts before each file. A file begins in no section.
var catFile = regexp.MustCompile(`^# /.*\.conf$`)

// settings returns the last value of each in a section, and which there are outside of it, sorted.
func settings(text []byte, section string) (in map[string]string, outside []string) {
	in, at := map[string]string{}, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		key, value, ok := strings.Cut(line, "=")
		key = strings.TrimSpace(key)
		switch {
		case catFile.MatchString(line):
			at = ""
		case line == "" || line[0] == '#' || line[0] == ';':
		case line[0] == '[':
			at = strings.Trim(line, "[]")
		case ok && at == section:
			in[key] = strings.TrimSpace(value)
		case ok && !strings.HasPrefix(at, "X-"):
			outside = append(outside, key)
		}
	}
	slices.Sort(outside)
	return in, slices.Compact(outside)
}

func notInEffect(file, key, value, is, who string) string {
	return fmt.Sprintf("%s sets %s to %s, and another file, which counts, to %s: that is what %s takes", file, key, value, is, who)
}

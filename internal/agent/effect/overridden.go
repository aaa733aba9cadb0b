package effect

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
)

// sshdFiles are sshd's, which takes the first value that it reads of a keyword, sshd_config(5).
var sshdFiles = []string{"/etc/ssh/sshd_config", "/etc/ssh/sshd_config.d"}

// sshdLists are keywords of which each line counts.
var sshdLists = []string{"port", "hostkey"}

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
// what is yes or no, or a number, is compared.
func (e Effects) overriddenInSSHD(ctx context.Context, file string, text []byte) (notes []string) { //nolint:cyclop // what of a line keeps it from being compared, one after the other
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
		words := strings.Fields(strings.NewReplacer("=", " ", `"`, "").Replace(line))
		key := strings.ToLower(words[0])
		if key == "match" {
			break
		}
		is, known := counts[key]
		if len(words) != 2 || !known || seen[key] || slices.Contains(sshdLists, key) {
			continue
		}
		seen[key] = true
		if value := strings.ToLower(words[1]); plain(value) && plain(is) && value != is {
			notes = append(notes, notInEffect(file, words[0], words[1], is, "sshd"))
		}
	}
	return notes
}

// plain reports whether sshd writes a value as people do.
func plain(value string) bool {
	_, err := strconv.Atoi(value)
	return err == nil || value == "yes" || value == "no"
}

// overriddenInReader looks which of all files that systemd reads has the last value.
func (e Effects) overriddenInReader(ctx context.Context, file, main string, text []byte) (notes []string) {
	out, err := e.Host.Run(ctx, host.Command{Name: "systemd-analyze", Args: []string{"cat-config", "systemd/" + path.Base(main)}})
	if err != nil {
		return nil // that it was started since is known
	}
	ours, all := settings(text), settings(out)
	for _, key := range slices.Sorted(maps.Keys(ours)) {
		if is, ok := all[key]; ok && is != ours[key] && !slices.Contains(readerLists, key) {
			notes = append(notes, notInEffect(file, key, ours[key], is, "systemd"))
		}
	}
	return notes
}

// settings returns the last value of each.
func settings(text []byte) map[string]string {
	out := map[string]string{}
	for _, line := range lines(text) {
		if key, value, ok := strings.Cut(line, "="); ok {
			out[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	return out
}

func notInEffect(file, key, value, is, who string) string {
	return fmt.Sprintf("%s sets %s to %s, and another file, which counts, to %s: that is what %s takes", file, key, value, is, who)
}

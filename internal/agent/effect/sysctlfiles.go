package effect

import (
	"path"
	"slices"
	"strings"
)

// assignment is a line of a file of kernel parameters.
type assignment struct {
	// key is the path below /proc/sys, which can be a pattern.
	key, value string
	// optional is a line that begins with a dash: it may fail.
	optional bool
	// exclude is such a line with no value: patterns leave the key out.
	exclude bool
	// file is where it is.
	file string
}

// parseSysctls returns the assignments of a file, as sysctl.d(5) has them.
func parseSysctls(text []byte) []assignment {
	var out []assignment
	for _, line := range lines(text) {
		key, value, valued := strings.Cut(line, "=")
		key, optional := strings.CutPrefix(strings.TrimSpace(key), "-")
		if !valued && !optional {
			continue // which systemd-sysctl complains about
		}
		if key = sysctlPath(strings.TrimSpace(key)); key != "" {
			out = append(out, assignment{key: key, value: words(value), optional: optional, exclude: !valued})
		}
	}
	return out
}

// sysctlPath returns the path below /proc/sys of a key. Whichever of dot and slash comes first in a key separates its parts: net.ipv4.conf.eth0/1.forwarding
// is about eth0.1.
func sysctlPath(key string) string {
	if i := strings.IndexAny(key, "./"); i >= 0 && key[i] == '.' {
		key = strings.Map(func(r rune) rune {
			switch r {
			case '.':
				return '/'
			case '/':
				return '.'
			}
			return r
		}, key)
	}
	return strings.TrimPrefix(path.Clean("/"+key), "/")
}

// words returns a value as it is compared: the kernel puts tabs between numbers.
func words(value string) string { return strings.Join(strings.Fields(value), " ") }

// sysctls returns what systemd-sysctl sets, by path below /proc/sys. Of several assignments the last counts, and what is named counts
// before what a pattern stands for. /etc/sysctl.conf counts where a link in one of the directories leads to it.
func (e Effects) sysctls() (map[string]assignment, error) {
	files, err := e.dropIns(sysctlDirs)
	if err != nil {
		return nil, err
	}
	var all []assignment
	named := map[string]bool{}
	for _, file := range files {
		text, _, err := e.Host.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, a := range parseSysctls(text) {
			a.file, named[a.key] = file, true
			all = slices.DeleteFunc(all, func(earlier assignment) bool { return earlier.key == a.key })
			all = append(all, a)
		}
	}
	out := map[string]assignment{}
	for _, a := range all {
		for _, key := range e.expand(a.key) {
			if !a.exclude && (key == a.key || !named[key]) {
				out[key] = a
			}
		}
	}
	return out, nil
}

// expand returns what a pattern stands for at the moment, and a key that is none.
func (e Effects) expand(key string) []string {
	if !strings.ContainsAny(key, "*?[") {
		return []string{key}
	}
	found := []string{""}
	for part := range strings.SplitSeq(key, "/") {
		var next []string
		for _, dir := range found {
			if !strings.ContainsAny(part, "*?[") {
				next = append(next, path.Join(dir, part))
				continue
			}
			entries, _ := e.Host.ReadDir(path.Join("/proc/sys", dir)) // what can't be read stands for nothing
			for _, entry := range entries {
				if ok, err := path.Match(part, entry.Name()); ok && err == nil {
					next = append(next, path.Join(dir, entry.Name()))
				}
			}
		}
		found = next
	}
	return slices.DeleteFunc(found, func(key string) bool { _, ok := e.readSysctl(key); return !ok })
}

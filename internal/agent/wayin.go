package agent

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/node"
)

// wayIn returns what a run touches of that by which the server comes in, or "". In doubt it does: the server then logs in once more.
func (a *Agent) wayIn(w *work) string {
	named := a.namedBySSHAndSudo()
	for _, c := range w.Plan.Changes {
		if a.onWayIn(w, c, named) {
			return c.String()
		}
	}
	for _, action := range slices.Concat(w.Plan.Actions, unitActions(w)) {
		switch {
		case isWayInUnit(action.Unit):
			return action.Unit
		case isByFiles(action.Type): // the network, or what the node boots with
			return actionName(action)
		}
	}
	return ""
}

// acts returns the first thing that a run does to the running node beside writing files, or "". What that does to the way in can't be told
// from a list: a script behind a unit, a setting of the kernel's, a mount.
func acts(w *work) string {
	for _, c := range w.Plan.Changes {
		if c.Kind != node.FileKind {
			return c.String()
		}
	}
	for _, action := range onNode(w.Plan.Actions) {
		return actionName(action)
	}
	if w.brings() {
		return stepEffect
	}
	return ""
}

// guarded reports whether the run is put back unless the server logs in after it.
func (w *work) guarded() bool { return w.WayIn != "" || w.Acts != "" }

func (a *Agent) onWayIn(w *work, c node.Change, named []string) bool {
	switch c.Kind {
	case node.UserKind:
		return true
	case node.UnitKind:
		return isWayInUnit(c.Name)
	case node.FileKind:
		has := func(words []string) bool { return a.contains(w, c, words) }
		return slices.ContainsFunc(a.names(c.Name), func(p string) bool { return isWayInFile(p, named, has) })
	default:
		return false
	}
}

// names returns a path, and where it leads on the node.
func (a *Agent) names(p string) []string {
	out := []string{p}
	if target, err := a.root.Resolve(p); err == nil {
		if below := "/" + strings.TrimPrefix(strings.TrimPrefix(target, a.root.Dir), "/"); below != p {
			out = append(out, below)
		}
	}
	return out
}

// isWayInFile reports whether a path is on the way in. Of some it depends on what the file has in it.
func isWayInFile(p string, named []string, has func(words []string) bool) bool {
	words := strings.Split(p, "/")
	switch {
	case isWithin(p, wayInPaths):
		return true
	case slices.Contains(words, ".ssh"), strings.Contains(path.Base(p), "authorized_keys"), slices.Contains(wayInDotFiles, path.Base(p)):
		return true
	case slices.ContainsFunc(named, func(pattern string) bool { return isNamed(p, pattern) }):
		return true
	case isWithin(p, sysctlDirs):
		return has(wayInSysctls)
	case isWithin(p, unitDirs):
		return slices.ContainsFunc(words, isWayInUnit) || has(wayInCommands)
	}
	return false
}

func isWithin(p string, paths []string) bool {
	return slices.ContainsFunc(paths, func(dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") })
}

// contains reports whether a file has one of some words in it, before or after a change. One that can't be read may have.
func (a *Agent) contains(w *work, c node.Change, words []string) bool {
	before, _, err := a.root.ReadFile(c.Name)
	if err != nil {
		return true
	}
	texts := [][]byte{before, w.Contents[c.Name]}
	if c.Operation == node.Restore {
		original, err := a.disk.ReadFile(a.state.originals().data(c.Name))
		if err != nil {
			return true
		}
		texts = append(texts, original)
	}
	return slices.ContainsFunc(words, func(word string) bool {
		return slices.ContainsFunc(texts, func(text []byte) bool { return bytes.Contains(text, []byte(word)) })
	})
}

func isWayInUnit(name string) bool {
	return slices.ContainsFunc(wayInUnits, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// isNamed reports whether a path is what a word of a configuration stands for: a file, a directory, a pattern of a shell's, or one with
// parts that sshd fills in for each user.
func isNamed(p, word string) bool {
	if before, _, filled := strings.Cut(word, "%"); filled {
		return len(before) > 1 && strings.HasPrefix(p, before)
	}
	ok, err := path.Match(word, p)
	return ok || err != nil || p == word || strings.HasPrefix(p, strings.TrimSuffix(word, "/")+"/")
}

// namedBySSHAndSudo returns the absolute paths that the configurations of sshd and sudo have in them, and in what they include, with
// where each leads.
func (a *Agent) namedBySSHAndSudo() []string {
	n := naming{Agent: a, seen: map[string]bool{}}
	for _, p := range []string{"/etc/ssh/sshd_config", "/usr/share/ssh/sshd_config", "/etc/sudoers"} {
		n.read(p)
	}
	return n.named
}

// naming collects paths that files name.
type naming struct {
	*Agent
	seen  map[string]bool
	named []string
}

func (n *naming) read(p string) {
	const most = 1000
	if n.seen[p] || len(n.seen) > most {
		return
	}
	n.seen[p] = true
	data, state, err := n.root.ReadFile(p)
	if err != nil || !state.Exists {
		return
	}
	for line := range strings.Lines(string(data)) {
		words := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\r\n=\",:", r) })
		if len(words) == 0 {
			continue
		}
		includes := slices.Contains(includeWords, strings.ToLower(words[0]))
		if strings.HasPrefix(words[0], "#") && !includes {
			continue
		}
		for _, word := range words[1:] {
			n.take(p, word, includes)
		}
	}
}

// includeWords have sshd or sudo read other files.
var includeWords = []string{"include", "@include", "@includedir", "#include", "#includedir"}

// take notes a word, and reads what it includes. A relative path is below /etc/ssh for sshd, and beside the file for sudo.
func (n *naming) take(p, word string, includes bool) {
	if includes && !path.IsAbs(word) {
		dir := path.Dir(p)
		if strings.Contains(p, "ssh") {
			dir = "/etc/ssh"
		}
		word = path.Join(dir, word)
	}
	if !path.IsAbs(word) || path.Clean(word) == "/" {
		return
	}
	word = path.Clean(word)
	n.named = append(n.named, n.names(word)...)
	if !includes {
		return
	}
	for _, file := range n.matches(word) {
		n.named = append(n.named, n.names(file)...)
		n.read(file)
	}
}

// matches returns the files that a pattern stands for: of a directory, those in it.
func (a *Agent) matches(pattern string) []string {
	dir := path.Dir(pattern)
	if info, err := a.root.Stat(pattern); err == nil && info.IsDir() {
		dir, pattern = pattern, path.Join(pattern, "*")
	}
	entries, err := a.root.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		p := path.Join(dir, e.Name())
		if ok, err := path.Match(pattern, p); ok && err == nil {
			out = append(out, p)
		}
	}
	return out
}

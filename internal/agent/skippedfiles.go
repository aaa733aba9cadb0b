package agent

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// including is a program that reads a directory only if its main file says so.
type including struct {
	dir, program string
	// mains are where the main file is. The first that is there counts; where none is, nothing is known.
	mains []string
	// included returns what a file includes.
	included func(text []byte) []include
	// how is what to add to the main file.
	how string
}

// include is what a line includes: the files of a pattern and, if names is set, those of them with such names.
type include struct {
	pattern string
	names   *regexp.Regexp
}

// includers are those of the built-in table's directories.
var includers = []including{
	{"/etc/ssh/sshd_config.d", "sshd", []string{"/etc/ssh/sshd_config", "/usr/etc/ssh/sshd_config", "/usr/share/ssh/sshd_config"}, sshIncludes,
		"Include /etc/ssh/sshd_config.d/*.conf"}, // sshd_config(5)
	{"/etc/containerd/conf.d", "containerd", []string{"/etc/containerd/config.toml"}, containerdImports,
		`imports = ["/etc/containerd/conf.d/*.toml"]`}, // containerd-config.toml(5)
	{"/etc/network/interfaces.d", "ifupdown", []string{"/etc/network/interfaces"}, interfacesSources,
		"source /etc/network/interfaces.d/*"}, // interfaces(5)
	{"/etc/sudoers.d", "sudo", []string{"/etc/sudoers"}, sudoIncludes, "@includedir /etc/sudoers.d"}, // sudoers(5)
}

// skipped returns an error if nothing would read a file.
func (p *planner) skipped(name string) error {
	if p.req.Rules.Unsafe(name) {
		return nil
	}
	if err := p.req.Rules.Skipped(name, func(program string) bool { return p.root.Program(program) != "" }); err != nil {
		return err
	}
	if path.Dir(name) == "/etc/grub.d" && p.work.Expect[name].Mode&0o111 == 0 {
		return errors.New("grub-mkconfig runs only what is executable below /etc/grub.d: give it the mode 0755")
	}
	if strings.HasPrefix(name, certsDir+"/") {
		return p.certsSkipped(name)
	}
	for _, i := range includers {
		if strings.HasPrefix(name, i.dir+"/") {
			return p.included(i, name)
		}
	}
	return nil
}

// included returns an error if a program does not read a file, since no file that it reads includes it.
func (p *planner) included(i including, name string) error {
	planned := p.plannedFiles()
	for _, main := range i.mains {
		text, there := p.textOf(planned, main)
		if !there {
			continue
		}
		if p.reaches(i, planned, main, text, name) {
			return nil
		}
		return fmt.Errorf("%s does not read %s, since %s includes no such file: add the line %q, or give the file a name that it includes",
			i.program, name, main, i.how)
	}
	return nil
}

// textOf returns what will be in a file, and whether it will be there. What can't be read is not known, and as if it were not there.
func (p *planner) textOf(planned map[string][]byte, name string) ([]byte, bool) {
	if text, ok := planned[name]; ok {
		return text, text != nil
	}
	text, state, err := p.root.ReadFile(name)
	return text, err == nil && state.Exists
}

// reaches reports whether a file is included by another one, or by a file that this one includes.
func (p *planner) reaches(i including, planned map[string][]byte, from string, text []byte, name string) bool {
	const most = 1000
	seen, texts := map[string]bool{from: true}, [][]byte{text}
	for len(texts) > 0 {
		found := i.included(texts[0])
		texts = texts[1:]
		if slices.ContainsFunc(found, func(in include) bool { return in.has(name) }) {
			return true
		}
		for _, file := range p.filesOf(planned, found) {
			if seen[file] || len(seen) > most {
				continue
			}
			seen[file] = true
			if text, there := p.textOf(planned, file); there {
				texts = append(texts, text)
			}
		}
	}
	return false
}

// filesOf returns the files that are included, of those that are there and those that will be.
func (p *planner) filesOf(planned map[string][]byte, all []include) (files []string) {
	for _, in := range all {
		entries, _ := p.root.ReadDir(path.Dir(in.pattern)) // one that is not there has none
		for _, e := range entries {
			if file := path.Join(path.Dir(in.pattern), e.Name()); in.has(file) {
				files = append(files, file)
			}
		}
		for file := range planned {
			if in.has(file) {
				files = append(files, file)
			}
		}
	}
	return files
}

// has reports whether a file is among what is included. A pattern's * is for no dot at the beginning of a name.
func (in include) has(file string) bool {
	ok, err := path.Match(in.pattern, file)
	hidden := strings.HasPrefix(path.Base(file), ".") && !strings.HasPrefix(path.Base(in.pattern), ".")
	return ok && err == nil && !hidden && (in.names == nil || in.names.MatchString(path.Base(file)))
}

// under returns a pattern as it is seen from a directory.
func under(dir, pattern string) include {
	if !path.IsAbs(pattern) {
		pattern = path.Join(dir, pattern)
	}
	return include{pattern: path.Clean(pattern)}
}

// wordsOf returns the words of each line of a configuration that says something, without quotes.
func wordsOf(text []byte) (all [][]string) {
	for line := range strings.Lines(string(text)) {
		words := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\r\n\"", r) })
		if len(words) > 0 {
			all = append(all, words)
		}
	}
	return all
}

func sshIncludes(text []byte) (all []include) {
	for _, words := range wordsOf([]byte(strings.ReplaceAll(string(text), "=", " "))) {
		if !strings.EqualFold(words[0], "Include") {
			continue
		}
		for _, pattern := range words[1:] {
			all = append(all, under("/etc/ssh", pattern))
		}
	}
	return all
}

func containerdImports(text []byte) (all []include) {
	var config struct {
		Imports []string `toml:"imports"`
	}
	if toml.Unmarshal(text, &config) != nil {
		return nil
	}
	for _, pattern := range config.Imports {
		all = append(all, under("/etc/containerd", pattern))
	}
	return all
}

// sourced are the names of files that source-directory takes.
var sourced = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func interfacesSources(text []byte) (all []include) {
	for _, words := range wordsOf(text) {
		for _, pattern := range words[1:] {
			switch words[0] {
			case "source":
				all = append(all, under("/etc/network", pattern))
			case "source-directory":
				all = append(all, include{pattern: path.Join(under("/etc/network", pattern).pattern, "*"), names: sourced})
			}
		}
	}
	return all
}

func sudoIncludes(text []byte) (all []include) {
	for _, words := range wordsOf(text) {
		if len(words) < 2 {
			continue
		}
		switch strings.TrimLeft(words[0], "@#") {
		case "include":
			all = append(all, under("/etc", words[1]))
		case "includedir":
			all = append(all, include{pattern: path.Join(under("/etc", words[1]).pattern, "*")})
		}
	}
	return all
}

package repository

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// aptOptions are the options of a list of apt's that weaken nothing (sources.list(5)), by the name that they have in one line. In deb822
// style some have another one.
var aptOptions = []string{"arch", "lang", "target", "pdiffs", "by-hash", "signed-by"}

// aptFields are the fields of deb822 style that weaken nothing, in small letters.
var aptFields = []string{
	"types", "uris", "suites", "components", "enabled", "architectures", "languages", "targets", "pdiffs", "by-hash", "signed-by",
	"description", "x-repolib-name",
}

// lists are the options and fields to which can be added, and from which can be taken away.
var lists = []string{"arch", "lang", "target", "architectures", "languages", "targets"}

// unsigned are the options and fields by which apt takes packages of anybody (apt-secure(8)).
var unsigned = []string{"trusted", "allow-insecure", "allow-weak", "allow-downgrade-to-insecure"}

// aptSchemes are the ways by which apt may fetch. Others run programs, or ask for media.
var aptSchemes = []string{"http", "https", "file", "copy", "mirror", "mirror+http", "mirror+https", "mirror+file"}

var (
	// deb822Style is how text begins that apt reads from a file .sources.
	deb822Style = regexp.MustCompile(`(?mi)^Types[ \t]*:`)
	// optionValue is what an option may be: apt decodes quotes and percents, and nothing here needs any.
	optionValue = regexp.MustCompile(`^[A-Za-z0-9/_.,:+~!-]+$`)
	// word is a suite or a component.
	word = regexp.MustCompile(`^[A-Za-z0-9/_.:+~-]+$`)
	// fieldName is that of a field of deb822 style.
	fieldName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]*$`)
)

// Deb822 reports whether apt has to read the text from a file .sources, and not from a .list.
func Deb822(text string) bool { return deb822Style.MatchString(text) }

// CheckAPT returns an error unless text is a list of apt's, in one-line or deb822 style, that weakens no verification.
func CheckAPT(text string) error {
	if err := printable(text); err != nil {
		return err
	}
	if Deb822(text) {
		return deb822(text)
	}
	entries := 0
	for i, line := range lines(text) {
		line = strings.Trim(line, " \t")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		entries++
		if err := oneLine(line); err != nil {
			return fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	if entries == 0 {
		return errors.New("it names no repository")
	}
	return nil
}

// oneLine checks: deb [option=value ...] URI suite [component ...].
func oneLine(line string) error {
	if strings.Contains(line, "#") {
		return errors.New("a comment has to have a line of its own")
	}
	kind, rest, _ := strings.Cut(strings.ReplaceAll(line, "\t", " "), " ")
	if kind != "deb" && kind != "deb-src" {
		return errors.New("it begins neither with deb nor with deb-src")
	}
	rest, err := afterOptions(strings.TrimLeft(rest, " "))
	if err != nil {
		return err
	}
	words := strings.Fields(rest)
	if len(words) < 2 {
		return errors.New("it lacks a URI or a suite")
	}
	if err := fetchable(words[0], aptSchemes); err != nil {
		return err
	}
	return plain(words[1:])
}

// afterOptions checks options, if there are any, and returns what is behind them.
func afterOptions(text string) (string, error) {
	inside, ok := strings.CutPrefix(text, "[")
	if !ok {
		return text, nil
	}
	options, behind, closed := strings.Cut(inside, "]")
	if !closed || behind != "" && behind[0] != ' ' {
		return "", errors.New("its options don't end with a ] that stands before a space")
	}
	for _, option := range strings.Fields(options) {
		if err := aptOption(option); err != nil {
			return "", err
		}
	}
	return behind, nil
}

// aptOption checks an option of one-line style.
func aptOption(option string) error {
	name, value, is := strings.Cut(option, "=")
	base := name
	if strings.HasSuffix(name, "+") || strings.HasSuffix(name, "-") {
		base = name[:len(name)-1]
	}
	if err := known(base, base != name, aptOptions); err != nil {
		return err
	}
	if !is || !optionValue.MatchString(value) {
		return fmt.Errorf("option %s has a value that is not understood", name)
	}
	return nil
}

// known returns an error unless an option or field is one of those that are allowed. adds: it is said to add or to take away.
func known(name string, adds bool, allowed []string) error {
	switch small := strings.ToLower(name); {
	case slices.Contains(unsigned, small):
		return fmt.Errorf("with option %s packages need no signature, and without one they are not used; leave it out", small)
	case !slices.Contains(allowed, small):
		return fmt.Errorf("option %q is not known as one that weakens nothing; these are: %s", name, strings.Join(allowed, ", "))
	case adds && !slices.Contains(lists, small):
		return fmt.Errorf("option %s is no list to which can be added", small)
	}
	return nil
}

// deb822 checks stanzas of fields.
func deb822(text string) error {
	var in stanza
	for i, line := range lines(text) {
		if err := in.line(line); err != nil {
			return fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return nil
}

// stanza is what was read of one.
type stanza struct {
	// field is the one that the next line may go on with.
	field string
	seen  map[string]bool
}

// line checks the next line.
func (s *stanza) line(line string) error {
	switch {
	case line == "":
		*s = stanza{}
		return nil
	case strings.HasPrefix(line, "#"):
		return nil
	case line[0] != ' ' && line[0] != '\t':
		return s.begin(line)
	case s.field == "":
		return errors.New("it continues nothing")
	}
	return aptField(s.field, line)
}

// begin checks a line that begins a field.
func (s *stanza) begin(line string) error {
	raw, value, is := strings.Cut(line, ":")
	raw = strings.TrimRight(raw, " \t")
	s.field = strings.ToLower(raw)
	switch {
	case !is || !fieldName.MatchString(raw):
		return errors.New("it is no field of the form Name: value")
	case s.seen[s.field]:
		return fmt.Errorf("field %s is there twice", raw)
	case s.seen == nil:
		s.seen = map[string]bool{}
	}
	s.seen[s.field] = true
	if err := field(raw); err != nil {
		return err
	}
	return aptField(s.field, value)
}

// field checks the name of a field.
func field(name string) error {
	base := strings.ToLower(name)
	for _, suffix := range []string{"-add", "-remove"} {
		if short, ok := strings.CutSuffix(base, suffix); ok {
			return known(short, true, aptFields)
		}
	}
	return known(base, false, aptFields)
}

// aptField checks a line of the value of a field.
func aptField(name, value string) error {
	words := strings.Fields(value)
	switch name {
	case "uris":
		for _, w := range words {
			if err := fetchable(w, aptSchemes); err != nil {
				return err
			}
		}
	case "types":
		for _, w := range words {
			if w != "deb" && w != "deb-src" {
				return fmt.Errorf("type %q is neither deb nor deb-src", w)
			}
		}
	case "suites", "components":
		return plain(words)
	}
	return nil
}

func plain(words []string) error {
	for _, w := range words {
		if !word.MatchString(w) {
			return fmt.Errorf("%q is neither a suite nor a component", w)
		}
	}
	return nil
}

// fetchable returns an error unless text is a URI of a scheme. It does not repeat the URI, which may have a login in it.
func fetchable(text string, schemes []string) error {
	u, err := url.Parse(text)
	if err != nil || strings.ContainsAny(text, `"'\`) {
		return errors.New("a URI is none")
	}
	if !slices.Contains(schemes, u.Scheme) {
		return fmt.Errorf("a URI has the scheme %q, and can have %s", u.Scheme, strings.Join(schemes, ", "))
	}
	if u.Host == "" && u.Path == "" && u.Opaque == "" {
		return errors.New("a URI names neither a host nor a path")
	}
	return nil
}

// printable returns an error for text that two programs could see different lines or words in.
func printable(text string) error {
	for _, r := range text {
		if r != '\n' && r != '\t' && (r < ' ' || r > '~') {
			return fmt.Errorf("it contains the character %q; it has to be plain ASCII", r)
		}
	}
	return nil
}

func lines(text string) []string { return strings.Split(strings.TrimSpace(text), "\n") }

package effect

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// making are the types of lines by which systemd-tmpfiles makes something where nothing is, and what.
var making = map[byte]fs.FileMode{
	'f': 0, 'd': fs.ModeDir, 'D': fs.ModeDir, 'v': fs.ModeDir, 'q': fs.ModeDir, 'Q': fs.ModeDir, 'p': fs.ModeNamedPipe, 'L': fs.ModeSymlink,
	'b': fs.ModeDevice, 'c': fs.ModeDevice | fs.ModeCharDevice,
}

// keeping are the types of lines that do no more than keep something from being cleaned up.
const keeping = "xX"

// item is a line of a file of systemd-tmpfiles, see tmpfiles.d(5).
type item struct {
	number int
	// kind is the letter of the type, and modifiers what follows it.
	kind                          byte
	modifiers                     string
	path                          string
	mode, user, group, age, value string
}

// field is a column of a line: empty where it has none, or a dash.
var field = regexp.MustCompile(`^\s*("[^"]*"|'[^']*'|\S+)`)

// items returns the lines of a file that say something.
func items(text []byte) []item {
	var all []item
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		rest := strings.TrimSpace(line)
		if rest == "" || rest[0] == '#' {
			continue
		}
		var columns [6]string
		for i := range columns {
			word := field.FindString(rest)
			rest = rest[len(word):]
			columns[i] = strings.Trim(word, " \t\"'")
		}
		it := item{number: number, mode: columns[2], user: columns[3], group: columns[4], age: columns[5], value: strings.TrimSpace(rest)}
		if columns[0] != "" {
			it.kind, it.modifiers = columns[0][0], columns[0][1:]
		}
		if it.path = columns[1]; path.IsAbs(it.path) {
			it.path = path.Clean(it.path)
		}
		all = append(all, it)
	}
	return all
}

// says reports whether a column is not left out.
func says(column string) bool { return column != "" && column != "-" }

// makes returns what a line makes where nothing is, unless a boot alone does, or the path is not known.
func (it item) makes() (fs.FileMode, bool) {
	kind, ok := making[it.kind]
	return kind, ok && !strings.Contains(it.modifiers, "!") && it.known()
}

// known reports whether it is known which path a line is about: specifiers are systemd's to fill in.
func (it item) known() bool { return path.IsAbs(it.path) && !strings.ContainsAny(it.path, `%\`) }

// lasting returns why what a line does can't be undone wherever it does it, or "".
func (it item) lasting() string {
	_, makes := making[it.kind]
	switch {
	case strings.ContainsRune(keeping, rune(it.kind)):
		return ""
	case !makes:
		return fmt.Sprintf("what %q does to what is there can't be undone", string(it.kind))
	case strings.ContainsAny(it.modifiers, "+="):
		return "it puts something else in the place of what is there"
	case !it.known():
		return "by its specifiers it is not known what it makes; write the path out"
	case it.kind == 'f' && says(it.value) && (strings.ContainsAny(it.modifiers, "~^") || strings.Contains(it.value, "%")):
		return "it is not known what it writes; write the content out"
	}
	return ""
}

// content returns what a line writes to a new file.
func (it item) content() (text string, ok bool) {
	if it.kind != 'f' || !says(it.value) {
		return "", false
	}
	quotes := strings.NewReplacer(`\\`, `\\`, `\"`, `\"`, `"`, `\"`)
	if s, err := strconv.Unquote(`"` + quotes.Replace(it.value) + `"`); err == nil {
		return s, true
	}
	return it.value, true
}

// restores reports whether to do an earlier line again takes back what this one does to what the earlier one has made.
func (it item) restores(earlier item) bool {
	again := func(now, then string) bool { return now == then || says(then) || !says(now) }
	return earlier.kind == it.kind && earlier.path == it.path && earlier.value == it.value && earlier.lasting() == "" &&
		again(it.mode, earlier.mode) && again(it.user, earlier.user) && again(it.group, earlier.group) && (it.age == earlier.age || !says(it.age))
}

// changesNothing reports whether a line leaves what is there as it is.
func (e Effects) changesNothing(it item, info fs.FileInfo) bool {
	if kind := making[it.kind]; info.Mode().Type() != kind || it.kind == 'D' || says(it.age) {
		return false
	}
	if it.kind == 'L' {
		target, err := e.Host.Readlink(it.path)
		return err == nil && target == it.value
	}
	return !says(it.mode) && !says(it.user) && !says(it.group) && !says(it.value)
}

// CheckLines returns an error if a file that is to be at p would have systemd-tmpfiles do, as root, what can't be undone, be it when the node
// boots. What it makes where nothing is can be removed again.
func (e Effects) CheckLines(p string, after []byte) error {
	if !within(p, tmpfilesDirs...) {
		return nil
	}
	before, err := e.counting(path.Base(p))
	if err != nil {
		return err
	}
	for _, it := range items(after) {
		why := it.lasting()
		if why == "" && !strings.ContainsRune(keeping, rune(it.kind)) {
			why = e.takes(it, before)
		}
		if why != "" {
			return fmt.Errorf("systemd-tmpfiles would do what refit can't undo by line %d of %s (%c%s %s): %s; have a unit do that, "+
				"or a NodeDisruptionPolicy say Replace for the file", it.number, p, it.kind, it.modifiers, it.path, why)
		}
	}
	return nil
}

// takes returns why what a line makes can't be undone, since something is there that is not an earlier line's.
func (e Effects) takes(it item, before []item) string {
	info, err := e.Host.Lstat(it.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ""
	case err != nil:
		return err.Error()
	case slices.ContainsFunc(before, it.restores) || e.changesNothing(it, info):
		return ""
	}
	return "the path is there already"
}

// counting returns the lines of the file that counts of those with a name.
func (e Effects) counting(name string) ([]item, error) {
	files, err := e.dropIns(tmpfilesDirs)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(files, func(f string) bool { return path.Base(f) == name })
	if i < 0 {
		return nil, nil
	}
	text, _, err := e.Host.ReadFile(files[i])
	return items(text), err
}

// digestOf returns how the content of a file is told from another one.
func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

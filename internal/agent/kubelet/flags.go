package kubelet

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/capi-refit/refit/internal/node"
)

// FlagsFile is where kubeadm keeps the kubelet's arguments. systemd reads it as an EnvironmentFile, and splits the variable at
// white space when it starts the kubelet.
const FlagsFile = "/var/lib/kubelet/kubeadm-flags.env"

// variable is the one of that file that kubeadm writes.
const variable = "KUBELET_KUBEADM_ARGS="

// argName is what an argument can be called.
var argName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]*$`)

// flag is one argument, as it is written.
type flag struct {
	// name is canonical. It is empty for what does not begin with two dashes.
	name, value string
	// raw is how the flag is written; a value in a word of its own belongs to it.
	raw string
}

// flags is a file of arguments. What is before and after the variable is kept byte by byte.
type flags struct {
	before, after []byte
	list          []flag
}

// canonical returns the name by which the kubelet knows an argument: it takes underscores for dashes.
func canonical(name string) string { return strings.ReplaceAll(name, "_", "-") }

// parseFlags reads a file of arguments. What it can't put back as it was is an error, which contains no values.
func parseFlags(data []byte) (flags, error) {
	var f flags
	var line []byte
	found := 0
	previous := ""
	for l := range bytes.Lines(data) {
		switch {
		case bytes.HasPrefix(bytes.TrimLeft(l, " \t"), []byte(variable)) && !strings.HasSuffix(previous, `\`):
			found++
			line = l
		case found == 0:
			f.before = append(f.before, l...)
		default:
			f.after = append(f.after, l...)
		}
		previous = strings.TrimRight(string(l), "\r\n")
	}
	if found != 1 {
		return flags{}, fmt.Errorf("%s does not set %s exactly once, as kubeadm does; correct it by hand", FlagsFile,
			strings.TrimSuffix(variable, "="))
	}
	text := unquoted(strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(string(line)), variable)))
	if !carried(text, " \t") {
		return flags{}, fmt.Errorf("%s holds quotes, backslashes or strange characters, which are not edited by a program; correct it by hand",
			FlagsFile)
	}
	f.list = parseWords(strings.Fields(text))
	return f, nil
}

// unquoted returns the value of a variable.
func unquoted(text string) string {
	if n := len(text); n >= 2 && text[0] == text[n-1] && (text[0] == '"' || text[0] == '\'') {
		return text[1 : n-1]
	}
	return text
}

// parseWords groups words to arguments. Of "--name value" the second word belongs to the first.
func parseWords(words []string) []flag {
	var list []flag
	for i := 0; i < len(words); i++ {
		word := words[i]
		long, ok := strings.CutPrefix(word, "--")
		if !ok || long == "" {
			list = append(list, flag{raw: word})
			continue
		}
		name, value, assigned := strings.Cut(long, "=")
		fl := flag{name: canonical(name), value: value, raw: word}
		if !assigned && i+1 < len(words) && !strings.HasPrefix(words[i+1], "-") {
			i++
			fl.value, fl.raw = words[i], word+" "+words[i]
		}
		list = append(list, fl)
	}
	return list
}

// carried reports whether a text survives systemd's reading of the file and its splitting into words, which take quotes and
// backslashes for their own.
func carried(text, separators string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		if strings.ContainsRune(separators, r) {
			return false
		}
		return r == '"' || r == '\'' || r == '\\' || r == unicode.ReplacementChar || unicode.IsSpace(r) || !unicode.IsPrint(r)
	})
}

// checkArgs returns an error if the file can't carry the arguments. It contains no values.
func checkArgs(args []node.Arg) error {
	for _, a := range args {
		if !argName.MatchString(a.Name) {
			return errors.New("an argument has a name that is none: it consists of letters, digits and dashes, and comes without the leading ones")
		}
		if !carried(a.Value, "") {
			return fmt.Errorf("the value of --%s has white space, quotes or a backslash in it, which %s can't carry; "+
				"put such a setting into the kubelet's configuration file", a.Name, FlagsFile)
		}
	}
	return nil
}

// bytes returns the file with its arguments in the form that kubeadm writes.
func (f flags) bytes() []byte {
	words := make([]string, 0, len(f.list))
	for _, fl := range f.list {
		words = append(words, fl.raw)
	}
	line := variable + `"` + strings.Join(words, " ") + "\"\n"
	before := f.before
	if len(before) > 0 && before[len(before)-1] != '\n' {
		before = append(slices.Clone(before), '\n')
	}
	return slices.Concat(before, []byte(line), f.after)
}

// values returns those of an argument, in order.
func (f flags) values(name string) []string {
	var values []string
	for _, fl := range f.list {
		if fl.name == name {
			values = append(values, fl.value)
		}
	}
	return values
}

// raws returns how an argument is written, in order.
func (f flags) raws(name string) []string {
	var raws []string
	for _, fl := range f.list {
		if fl.name == name {
			raws = append(raws, fl.raw)
		}
	}
	return raws
}

// differs returns the arguments that are not there with the values that are wanted, in the order of the specs.
func (f flags) differs(want wanted) []string {
	var what []string
	for _, name := range want.names {
		if !slices.Equal(f.values(name), want.values[name]) {
			what = append(what, name)
		}
	}
	return what
}

// wanted is a list of arguments by name.
type wanted struct {
	names  []string
	values map[string][]string
	args   []node.Arg
}

func wantedOf(r *node.Resource) wanted {
	w := wanted{values: map[string][]string{}}
	if r == nil || r.Kubelet == nil {
		return w
	}
	w.args = r.Kubelet.ExtraArgs
	for _, a := range w.args {
		name := canonical(a.Name)
		if _, seen := w.values[name]; !seen {
			w.names = append(w.names, name)
		}
		w.values[name] = append(w.values[name], a.Value)
	}
	return w
}

func (w wanted) has(name string) bool {
	_, ok := w.values[name]
	return ok
}

// same reports whether two lists mean the same: the order counts among arguments of one name only.
func (w wanted) same(other wanted) bool {
	if len(w.values) != len(other.values) {
		return false
	}
	for name, values := range w.values {
		if !slices.Equal(values, other.values[name]) {
			return false
		}
	}
	return true
}

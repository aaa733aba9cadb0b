package kubeadmconfig

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"sigs.k8s.io/yaml"
)

// maxText is the longest text that is read, in bytes. A line of a new machine's user-data is far shorter.
const maxText = 64 << 10

// Text returns what a new machine reads where the spec says value: the bootstrap provider writes texts into YAML as they
// are, without quotes, and cloud-init has Jinja go over all of it first. So a value can have quotes of its own, and one that
// YAML takes for something else than a text is an error. The error does not contain the value.
func Text(value, format string) (string, error) {
	if len(value) > maxText {
		return "", fmt.Errorf("is longer than %d KiB", maxText>>10)
	}
	if strings.ContainsFunc(value, breaks) {
		return "", errBreaks
	}
	if format != Ignition && slices.ContainsFunc(jinja, func(mark string) bool { return strings.Contains(value, mark) }) {
		return "", errors.New("has a Jinja expression, which cloud-init renders on a new machine only")
	}
	text, ok := scalar(strings.Trim(value, " "))
	switch {
	case !ok:
		return "", errNotText
	case strings.ContainsFunc(text, breaks):
		return "", errBreaks
	default:
		return text, nil
	}
}

// scalar reads one line of YAML; ok is false when it is something else than a text, or may be to another YAML library.
func scalar(value string) (text string, ok bool) {
	var line map[string]any
	if err := yaml.Unmarshal([]byte("text: "+value+"\n"), &line); err != nil || len(line) != 1 {
		return "", false
	}
	text, ok = line["text"].(string)
	quoted := strings.HasPrefix(value, `"`) || strings.HasPrefix(value, `'`)
	return text, ok && (quoted || text == value && !notTextInPython.MatchString(value))
}

// jinja are the marks by which cloud-init finds something to render.
var jinja = []string{"{{", "{%", "{#"}

// notTextInPython are plain scalars that cloud-init's YAML library takes for dates and for numbers to the base of sixty, and
// Go's does not.
var notTextInPython = regexp.MustCompile(`^[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}|^[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?$`)

// breaks reports whether a text with r in it may take more than one line, to whoever reads it.
func breaks(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || r == '\ufeff'
}

var (
	errNotText = errors.New("is not read as it is written by the YAML of a new machine; put quotes into the value, around all of it")
	errBreaks  = errors.New("has a line break or another control character")
)

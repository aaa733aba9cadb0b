// Package plain makes plain text for people of what others have written: nodes, extensions, and whoever makes objects.
package plain

import (
	"errors"
	"strings"
	"unicode"
)

// Unfit reports whether a character has no place in a text that is shown: it controls a terminal, ends a line, can't be seen, or turns around the direction
// of what is behind it.
func Unfit(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029'
}

// Line returns a text as one line of at most so many bytes. Unfit characters are a space.
func Line(text string, most int) string {
	return short(strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "?"), Unfit), " "), most)
}

// short returns a text of at most so many bytes, cut at a character.
func short(text string, most int) string {
	const more = "…"
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(head(text, most-len(more)), "") + more
}

func head(text string, most int) string { return text[:max(0, min(len(text), most))] }

// Join returns one error of several, whose text is one line if theirs are. Like errors.Join, it leaves out nil, and is nil if there is no other.
func Join(errs ...error) error {
	if errors.Join(errs...) == nil {
		return nil
	}
	out := &joined{}
	for _, err := range errs {
		if err != nil {
			out.errs = append(out.errs, err)
		}
	}
	return out
}

type joined struct{ errs []error }

// Error implements error.
func (j *joined) Error() string {
	texts := make([]string, len(j.errs))
	for i, err := range j.errs {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns all of them.
func (j *joined) Unwrap() []error { return j.errs }

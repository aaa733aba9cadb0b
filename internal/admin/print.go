package admin

import (
	"fmt"
	"io"
	"strings"

	"github.com/capi-refit/refit/internal/printer"
)

// say writes a message for people. The texts in it may come from objects, and thus from a node or from others: they are cleaned. On a
// terminal it wraps.
func say(w io.Writer, format string, args ...any) error {
	cleaned := make([]any, len(args))
	for i, arg := range args {
		switch arg := arg.(type) {
		case string:
			cleaned[i] = clean(arg)
		case error:
			cleaned[i] = clean(arg.Error())
		default:
			cleaned[i] = arg
		}
	}
	_, err := io.WriteString(w, printer.Fold(fmt.Sprintf(format, cleaned...), printer.Width(w)))
	return err
}

// clean makes a text fit for a line of a terminal: it must not be able to move the cursor, or to look like another message.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unprintable(r) || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
}

// oneLine cleans a text, and leaves out the spaces around it and all but one between words.
func oneLine(s string) string { return strings.Join(strings.Fields(clean(s)), " ") }

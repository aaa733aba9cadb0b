package cli

import (
	"io"

	"github.com/capi-refit/refit/internal/printer"
)

// show writes a value for programs, or else what it is in words, in lines that fit the terminal.
func show(w io.Writer, format string, value any, words string) error {
	if printed, err := printer.Print(w, format, value); printed {
		return err
	}
	_, err := io.WriteString(w, printer.Fold(words, printer.Width(w)))
	return err
}

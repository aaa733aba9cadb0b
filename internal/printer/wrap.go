package printer

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// Size returns how many characters a line of the terminal has that w is, and how many lines there are: zeros if it is none.
func Size(w io.Writer) (width, height int) {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return 0, 0
	}
	width, height, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0, 0
	}
	return width, height
}

// Width returns how many characters a line of the terminal has that w is, and 0 if it is none: then nothing is wrapped.
func Width(w io.Writer) int {
	width, _ := Size(w)
	return width
}

// Labelled returns a text behind a label as lines of the width, those after the first below the beginning of the text. 0 is no width.
func Labelled(label, text string, width int) string {
	indent := utf8.RuneCountInString(label)
	lines := []string{text}
	if width > 0 {
		lines = wrap(text, max(width-indent, narrowest))
	}
	return strings.TrimRight(label+strings.Join(lines, "\n"+strings.Repeat(" ", indent)), " ") + "\n"
}

// Fold wraps each line of a text that is longer than the width; what goes on is below where the line began, behind its spaces. 0 is no width.
func Fold(text string, width int) string {
	if width <= 0 {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		rest := strings.TrimLeft(line, " ")
		if utf8.RuneCountInString(strings.TrimRight(line, "\n")) <= width {
			b.WriteString(line)
			continue
		}
		folded := Labelled(line[:len(line)-len(rest)], strings.TrimRight(rest, "\n"), width)
		b.WriteString(strings.TrimSuffix(folded, "\n"))
		if strings.HasSuffix(line, "\n") {
			b.WriteString("\n")
		}
	}
	return b.String()
}

// wrap breaks a text into lines between words, and a word that is longer than a line within it.
func wrap(text string, width int) []string {
	if width < 1 || utf8.RuneCountInString(text) <= width {
		return []string{text}
	}
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width {
			line += " " + word
			continue
		}
		if line != "" {
			lines = append(lines, line)
		}
		letters := []rune(word)
		for len(letters) > width {
			lines = append(lines, string(letters[:width]))
			letters = letters[width:]
		}
		line = string(letters)
	}
	return append(lines, line)
}

package ui

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/capi-refit/refit/internal/plain"
)

// maxText is how many bytes of a text are shown.
const maxText = 8192

// bounded cuts a text that somebody else has written.
func bounded(s string) string { return shortened(s, maxText) }

// boundedAll cuts texts.
func boundedAll(all []string) []string {
	out := make([]string, len(all))
	for i, s := range all {
		out[i] = bounded(s)
	}
	return out
}

// shortened cuts a text to n bytes, at a character.
func shortened(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// encode makes JSON, in which nothing is that a browser could take for markup. Wherever a text comes from, it has no control characters but for ends of
// lines, and none that turn around the direction of what is behind them.
func encode(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(data))
	for i := 0; i < len(data); {
		size, unfit := 1, false
		switch {
		case data[i] == '\\' && data[i+1] == 'u': // what is escaped by its number
			n, _ := strconv.ParseUint(string(data[i+2:i+6]), 16, 32)
			size, unfit = 6, unprintable(rune(n))
		case data[i] == '\\':
			size, unfit = 2, strings.IndexByte("bfr", data[i+1]) >= 0
		case data[i] >= 0x7f:
			var r rune
			r, size = utf8.DecodeRune(data[i:])
			unfit = unprintable(r)
		}
		if unfit {
			out = append(out, ' ')
		} else {
			out = append(out, data[i:i+size]...)
		}
		i += size
	}
	return out, nil
}

func unprintable(r rune) bool {
	return plain.Unfit(r)
}

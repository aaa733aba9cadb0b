package ui

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

func TestTextsHaveABound(t *testing.T) {
	long := strings.Repeat("ä", maxText)
	require.LessOrEqual(t, len(bounded(long)), maxText+len("…"))
	require.True(t, strings.HasSuffix(bounded(long), "ä…"))
	require.Equal(t, "ab…", shortened("abc", 2))
}

func FuzzEncode(f *testing.F) {
	for _, s := range []string{"", "plain", hostile, "a\\u001bb", "\\\\u202e", "\x1b\r\b\f\n\t\x7f", "\u0085\u200b\u2029\ufeff", "ü€😀", "\xff\xfe", `\"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		data, err := encode(map[string]string{s: s})
		require.NoError(t, err)
		require.NotContains(t, string(data), "<")
		var got map[string]string
		require.NoError(t, json.Unmarshal(data, &got))
		for key, value := range got {
			require.Equal(t, key, value)
			want := strings.Map(func(r rune) rune {
				if r == '\n' || r == '\t' || !unprintable(r) {
					return r
				}
				return ' '
			}, strings.ToValidUTF8(replaceInvalid(s), "\ufffd"))
			require.Equal(t, want, value)
			require.False(t, strings.ContainsFunc(value, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }))
		}
	})
}

// replaceInvalid replaces each byte that is no character, as encoding/json does.
func replaceInvalid(s string) string {
	var b strings.Builder
	for _, r := range s {
		b.WriteRune(r)
	}
	return b.String()
}

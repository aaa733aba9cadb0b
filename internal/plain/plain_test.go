package plain

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "",
		"as it is, ü€😀":                      "as it is, ü€😀",
		"one\ntwo\r\n\n three":               "one two  three",
		"\x1b[31mred\x1b[0m\x07":             "[31mred [0m",
		"out\u202e of\u2066 it":              "out  of  it",
		"a\u2028b\u2029c":                    "a b c",
		"a\u0085b\u009b31mc\u200bd":          "a b 31mc d",
		"a\xffb":                             "a?b",
		"123456789012345678901234567890123":  "12345678901234567890123456789…",
		"1234567890123456789012345678ä90123": "1234567890123456789012345678…",
	} {
		require.Equal(t, want, Line(text, 32), "%q", text)
	}
}

func FuzzLine(f *testing.F) {
	f.Add("a\nb", 3)
	f.Fuzz(func(t *testing.T, text string, most int) {
		if most < 3 || most > 1<<20 {
			t.Skip()
		}
		got := Line(text, most)
		require.LessOrEqual(t, len(got), most)
		require.True(t, utf8.ValidString(got))
		require.False(t, strings.ContainsFunc(got, Unfit), "%q", got)
	})
}

func TestJoin(t *testing.T) {
	require.NoError(t, Join(nil, nil))
	one := errors.New("one")
	err := fmt.Errorf("both: %w", Join(one, nil, errors.New("two")))
	require.EqualError(t, err, "both: one; two")
	require.ErrorIs(t, err, one)
}

package version

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestBounded(t *testing.T) {
	require.Equal(t, "a; b", bounded("a\r\nb\n"))
	got := bounded(strings.Repeat("ä", 400))
	require.LessOrEqual(t, len(got), maxTold)
	require.True(t, utf8.ValidString(got))
	require.True(t, strings.HasSuffix(got, "ä"))
}

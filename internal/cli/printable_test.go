package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPrintable(t *testing.T) {
	require.Equal(t, "[2Ja\n\tb]0;c", printable("\x1b[2Ja\r\n\tb\u009b\x1b]0;c\a"))
}

// TestExplainPrintsNoEscapes: what a request has in it moves no cursor.
func TestExplainPrintsNoEscapes(t *testing.T) {
	of := func(content string) map[string]any {
		return map[string]any{"files": []any{map[string]any{"path": "/etc/\x1b]0;pwn\a", "content": content}}}
	}
	out, err := runExplain(t, "", "-f", changedSpec(t, of("a\n"), of("b\n")))
	require.NoError(t, err)
	require.NotContains(t, out, "\x1b")
	require.Contains(t, out, "pwn")
}

package policykind

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/plain"
)

// TestWhatIsToldIsOneLine whatever others have put into it.
func TestWhatIsToldIsOneLine(t *testing.T) {
	err := errors.Join(errors.New("out\u202e of \u2028disk\u0085 \u009b31m"), errors.New("two"))
	ready := Ready(1, "policy", err, "Invalid", "can't be read").Message
	require.True(t, strings.HasSuffix(ready, "31m; two"), ready)
	for _, text := range []string{Note(err.Error()), ready} {
		require.False(t, strings.ContainsFunc(text, plain.Unfit), "%q", text)
	}
	require.Len(t, Note(strings.Repeat("a", 2000)), maxNote)
	require.LessOrEqual(t, len(Ready(1, "policy", errors.New(strings.Repeat("a", 1<<20)), "Invalid", "can't be read").Message), 32768)
}

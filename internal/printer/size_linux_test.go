package printer_test

import (
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/printer"
	"github.com/capi-refit/refit/internal/printer/printertest"
)

func TestATerminalHasAWidth(t *testing.T) {
	require.Equal(t, "to wrap, or\nnot\n", printertest.On(t, 12, func(terminal *os.File) {
		require.Equal(t, 12, printer.Width(terminal))
		_, err := io.WriteString(terminal, printer.Fold("to wrap, or not\n", printer.Width(terminal)))
		require.NoError(t, err)
	}))
}

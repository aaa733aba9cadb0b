// Package printertest has terminals for tests.
package printertest

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// On returns what is written to a terminal whose lines have so many characters.
func On(t *testing.T, width uint16, write func(*os.File)) string {
	t.Helper()
	end, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	defer end.Close()
	require.NoError(t, unix.IoctlSetPointerInt(int(end.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(end.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: width}))

	var out strings.Builder
	read := make(chan struct{})
	go func() {
		defer close(read)
		data := make([]byte, 4096)
		for {
			n, err := end.Read(data)
			out.Write(data[:n])
			if err != nil {
				return // nobody has the other end open any more
			}
		}
	}()
	write(terminal)
	require.NoError(t, terminal.Close())
	select {
	case <-read:
	case <-time.After(time.Minute):
		require.Fail(t, "the terminal does not end")
	}
	return strings.ReplaceAll(out.String(), "\r\n", "\n")
}

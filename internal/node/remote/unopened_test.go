package remote

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
)

// TestAWriteThatFailsTellsThatAConnectionHasBroken: it may do so before the connection itself knows, and a new one is made then.
func TestAWriteThatFailsTellsThatAConnectionHasBroken(t *testing.T) {
	j := &sharedJump{conn: &sshConn{gone: make(chan struct{})}}
	for _, c := range []struct {
		err               error
		abandoned, broken bool
	}{
		{err: &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.EPIPE)}, broken: true},
		{err: io.EOF, broken: true},
		{err: context.DeadlineExceeded, abandoned: true},
		{err: context.Canceled, abandoned: true},
		{err: fmt.Errorf("refused: %w", &ssh.OpenChannelError{Reason: ssh.ConnectionFailed})},
	} {
		abandoned, broken := j.unopened(c.err)
		require.Equal(t, c.abandoned, abandoned, "%v", c.err)
		require.Equal(t, c.broken, broken, "%v", c.err)
	}
	close(j.conn.gone)
	_, broken := j.unopened(context.DeadlineExceeded)
	require.True(t, broken)
}

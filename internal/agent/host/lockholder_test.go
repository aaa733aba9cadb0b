package host

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// lockEnv has the test's own program lock a file, in a process of its own, until its standard input ends.
const lockEnv = "REFIT_TEST_LOCK"

func TestMain(m *testing.M) {
	if p := os.Getenv(lockEnv); p != "" {
		f, err := os.OpenFile(p, os.O_RDWR, 0)
		if err == nil {
			err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
		}
		fmt.Println(err)
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestLockHolder(t *testing.T) {
	dir := t.TempDir()
	root := Root{Dir: dir}
	holder := func() string {
		who, err := root.LockHolder("/lock")
		require.NoError(t, err)
		return who
	}
	require.Empty(t, holder(), "it is not there")
	p := filepath.Join(dir, "lock")
	require.NoError(t, os.WriteFile(p, nil, 0o600))
	require.Empty(t, holder())

	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), lockEnv+"="+p)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	said, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "<nil>\n", said)
	require.Equal(t, fmt.Sprintf("process %d", cmd.Process.Pid), holder())
	comm := filepath.Join(dir, "proc", fmt.Sprint(cmd.Process.Pid), "comm")
	require.NoError(t, os.MkdirAll(filepath.Dir(comm), 0o755))
	require.NoError(t, os.WriteFile(comm, []byte("apt-get\n"), 0o600))
	require.Equal(t, fmt.Sprintf("process %d (apt-get)", cmd.Process.Pid), holder())

	require.NoError(t, in.Close())
	require.NoError(t, cmd.Wait())
	require.Empty(t, holder())

	// A lock of an open file description belongs to no process.
	f, err := os.OpenFile(p, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}))
	require.Contains(t, holder(), "number is not known")
}

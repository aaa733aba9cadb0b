package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestWhatIsNamedSurvivesALossOfPower has each change of a name be synced with the directory that the name is in, as a snapshot of etcd's that
// is renamed has to be before etcd is touched.
func TestWhatIsNamedSurvivesALossOfPower(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "from", "a"), filepath.Join(dir, "to", "b")
	require.NoError(t, os.Mkdir(filepath.Dir(a), 0o700))
	require.NoError(t, os.Mkdir(filepath.Dir(b), 0o700))
	var synced []uint64
	d := Disk{synced: func(fd int) {
		var is unix.Stat_t
		require.NoError(t, unix.Fstat(fd, &is))
		synced = append(synced, is.Ino)
	}}
	inode := func(p string) uint64 {
		var is unix.Stat_t
		require.NoError(t, unix.Stat(p, &is))
		return is.Ino
	}
	for _, step := range []struct {
		name string
		do   func() error
		dir  string
	}{
		{"write", func() error {
			return d.Write(a, strings.NewReader("x"), State{Mode: 0o600, UID: KeepOwner, GID: KeepOwner})
		}, filepath.Dir(a)},
		{"rename", func() error { return d.Rename(a, b) }, filepath.Dir(b)},
		{"link", func() error { return d.Link("b", filepath.Join(dir, "to", "c")) }, filepath.Dir(b)},
		{"remove", func() error { return d.Remove(b) }, filepath.Dir(b)},
	} {
		synced = nil
		require.NoError(t, step.do(), step.name)
		require.Contains(t, synced, inode(step.dir), step.name)
	}
}

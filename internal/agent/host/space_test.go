package host

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSpaceAt(t *testing.T) {
	dir := t.TempDir()
	here, err := SpaceAt(dir)
	require.NoError(t, err)
	require.NotZero(t, here.Free)
	below, err := SpaceAt(filepath.Join(dir, "not", "there", "yet"))
	require.NoError(t, err)
	require.Equal(t, here.Device, below.Device)
	other, err := SpaceAt("/proc/self")
	require.NoError(t, err)
	require.NotEqual(t, here.Device, other.Device)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	_, err = SpaceAt(filepath.Join(dir, "file", "below"))
	require.Error(t, err)
}

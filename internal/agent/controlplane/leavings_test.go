package controlplane

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
)

func TestTidy(t *testing.T) {
	root := t.TempDir()
	private := filepath.Join(root, "var/lib/refit")
	k := New(host.Host{Root: host.Root{Dir: root, Private: private}})
	later := time.Now().Add(time.Hour)
	k.Tidy(later) // kubeadm has left nothing
	dir := filepath.Join(root, leavings)
	for _, name := range []string{
		"kubeadm-backup-etcd-2026-01-31-23-59-59", "kubeadm-backup-etcd-2026-02-01-00-00-00", "kubeadm-backup-etcd-2026-02-01-00-00-01",
		"kubeadm-backup-manifests-2026-01-31-23-59-59", "kubeadm-backup-etcd-by-hand", "of-somebody",
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name, "member"), 0o700))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kubeadm-backup-etcd-2026-01-01-00-00-00"), nil, 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(private, "etcd"), 0o700))
	for _, name := range []string{".refit-1.tmp", "20260102T030405Z-000000000000.db"} {
		require.NoError(t, os.WriteFile(filepath.Join(private, "etcd", name), nil, 0o600))
	}
	all, err := os.ReadDir(dir)
	require.NoError(t, err)
	k.Tidy(time.Now().Add(-time.Hour))
	k.Tidy(time.Time{}) // of a run that does not say when it was planned
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, len(all), "what is newer than the run stays")
	require.NoFileExists(t, filepath.Join(private, "etcd/.refit-1.tmp"))
	require.FileExists(t, filepath.Join(private, "etcd/20260102T030405Z-000000000000.db"))
	k.Tidy(later)
	entries, err = os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	require.Equal(t, []string{
		"kubeadm-backup-etcd-2026-01-01-00-00-00", // a file, which kubeadm does not make
		"kubeadm-backup-etcd-2026-02-01-00-00-00", "kubeadm-backup-etcd-2026-02-01-00-00-01", "kubeadm-backup-etcd-by-hand",
		"kubeadm-backup-manifests-2026-01-31-23-59-59", "of-somebody",
	}, names)
}

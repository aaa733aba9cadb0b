package controlplane

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
)

func TestTidy(t *testing.T) {
	root := t.TempDir()
	k := New(host.Host{Root: host.Root{Dir: root}})
	k.Tidy() // kubeadm has left nothing
	dir := filepath.Join(root, leavings)
	for _, name := range []string{
		"kubeadm-backup-etcd-2026-01-31-23-59-59", "kubeadm-backup-etcd-2026-02-01-00-00-00", "kubeadm-backup-etcd-2026-02-01-00-00-01",
		"kubeadm-backup-manifests-2026-01-31-23-59-59", "kubeadm-backup-etcd-by-hand", "of-somebody",
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name, "member"), 0o700))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kubeadm-backup-etcd-2026-01-01-00-00-00"), nil, 0o600))
	k.Tidy()
	entries, err := os.ReadDir(dir)
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

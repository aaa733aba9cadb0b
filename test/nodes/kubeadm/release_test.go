package kubeadm

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "source")
	large := bytes.Repeat([]byte("0123456789abcdef"), 4<<10)
	require.NoError(t, os.WriteFile(source, large, 0o600))
	layer := filepath.Join(dir, "layer.tar")
	require.NoError(t, writeLayer(layer, []file{
		{name: "kind/version", mode: 0o644, content: []byte("v1")}, {name: ImageArchive, mode: 0o644, source: source},
		{name: "./usr/bin/kubelet", mode: 0o755, content: []byte("program")}, {name: "empty", mode: 0o644},
	}))
	for name, want := range map[string][]byte{
		"kind/version": []byte("v1"), ImageArchive: large, "usr/bin/kubelet": []byte("program"), "empty": {},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := Open(layer, name)
			require.NoError(t, err)
			got, err := io.ReadAll(f)
			require.NoError(t, err)
			require.Equal(t, want, got)
			end, err := f.Seek(0, io.SeekEnd)
			require.NoError(t, err)
			require.EqualValues(t, len(want), end)
			require.NoError(t, f.Close())
		})
	}
	_, err := Open(layer, "usr/bin/kubeadm")
	require.ErrorIs(t, err, io.EOF)
	require.ErrorContains(t, err, "usr/bin/kubeadm")
}

func TestPlace(t *testing.T) {
	require.Equal(t, "usr/bin/kubelet", Place("kubelet"))
	require.Empty(t, Place("emacs"))
}

func TestWriteKubeProxy(t *testing.T) {
	dir := t.TempDir()
	base, program := filepath.Join(dir, "base.tar"), filepath.Join(dir, "kube-proxy")
	require.NoError(t, writeLayer(base, []file{{name: "kind/kube-proxy.tar", mode: 0o644, content: []byte("iptables")}}))
	require.NoError(t, os.WriteFile(program, []byte("program"), 0o600))
	i := &Images{options: Options{Dir: dir, Programs: map[string]Programs{"v1.36.3": {"kube-proxy": program}}}, base: base}
	var archive bytes.Buffer
	require.NoError(t, i.WriteKubeProxy(&archive, "v1.36.3"))
	entries := read(t, &archive)
	require.Equal(t, []byte("iptables"), entries["iptables.tar"])
	var manifests []manifest
	require.NoError(t, json.Unmarshal(entries["manifest.json"], &manifests))
	require.Len(t, manifests, 1)
	require.Equal(t, []string{"registry.k8s.io/kube-proxy:v1.36.3"}, manifests[0].RepoTags)
	left, err := filepath.Glob(filepath.Join(dir, "kube-proxy-*"))
	require.NoError(t, err)
	require.Empty(t, left)

	require.ErrorContains(t, i.WriteKubeProxy(&archive, "v1.36.4"), "v1.36.4")
}

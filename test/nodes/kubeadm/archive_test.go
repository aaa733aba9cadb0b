package kubeadm

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWriteArchive(t *testing.T) {
	dir := t.TempDir()
	base, top := filepath.Join(dir, "base.tar"), filepath.Join(dir, "top.tar")
	require.NoError(t, writeLayer(base, []file{{name: "etc/base", mode: 0o644, content: []byte("base")}}))
	require.NoError(t, writeLayer(top, []file{{name: "bin/top", mode: 0o755, source: base}}))
	var archive bytes.Buffer
	require.NoError(t, writeArchive(&archive, []image{
		{name: "a:1", layers: []string{base}}, {name: "b:2", layers: []string{base, top}, entrypoint: []string{"/bin/top"}},
	}))

	entries := read(t, &archive)
	var manifests []manifest
	require.NoError(t, json.Unmarshal(entries["manifest.json"], &manifests))
	require.Len(t, manifests, 2)
	assert.Equal(t, []string{"b:2"}, manifests[1].RepoTags)
	assert.Equal(t, []string{"base.tar", "top.tar"}, manifests[1].Layers)
	assert.Len(t, entries, 5, "two layers, two configurations, one manifest: what is shared is there once")

	var config struct {
		Config struct{ Entrypoint []string }
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	require.NoError(t, json.Unmarshal(entries[manifests[1].Config], &config))
	assert.Equal(t, []string{"/bin/top"}, config.Config.Entrypoint)
	assert.Equal(t, []string{digest(entries["base.tar"]), digest(entries["top.tar"])}, config.RootFS.DiffIDs)
}

func TestWriteWholeLeavesNothingHalfDone(t *testing.T) {
	dir := t.TempDir()
	broken := errors.New("disk on fire")
	err := writeWhole(filepath.Join(dir, "file"), func(w io.Writer) error {
		_, _ = w.Write([]byte("half"))
		return broken
	})
	require.ErrorIs(t, err, broken)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestExtract(t *testing.T) {
	dir := t.TempDir()
	archive, target := filepath.Join(dir, "archive"), filepath.Join(dir, "target")
	require.NoError(t, writeLayer(archive, []file{{name: "./a/b", mode: 0o644, content: []byte("text")}}))
	require.NoError(t, extract(archive, "a/b", target))
	content, err := os.ReadFile(target)
	require.NoError(t, err)
	assert.Equal(t, "text", string(content))
	assert.ErrorIs(t, extract(archive, "a/c", target), io.EOF)
}

func read(t *testing.T, archive io.Reader) map[string][]byte {
	t.Helper()
	entries := map[string][]byte{}
	reader := tar.NewReader(archive)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		require.NoError(t, err)
		require.NotContains(t, entries, header.Name)
		entries[header.Name], err = io.ReadAll(reader)
		require.NoError(t, err)
	}
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func TestSandboxImage(t *testing.T) {
	name, err := sandboxImage()
	require.NoError(t, err)
	assert.Regexp(t, `^registry\.k8s\.io/pause:[0-9.]+$`, name)
}

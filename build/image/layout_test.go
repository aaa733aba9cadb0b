package main

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"
)

// TestARegistryHasAllArchitectures pushes to a registry of go-containerregistry's, and pulls from it as nodes do.
func TestARegistryHasAllArchitectures(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	image := strings.TrimPrefix(server.URL, "http://") + "/refit:v1"
	layout := filepath.Join(t.TempDir(), "image")
	o := options{bin: standIns(t), image: image, version: "v1", created: created.Unix(), layout: layout}
	require.NoError(t, o.run(quiet()))

	cmd := command()
	var said strings.Builder
	cmd.SetOut(&said)
	cmd.SetArgs([]string{"push", "--from", layout, "--image", image})
	require.NoError(t, cmd.ExecuteContext(t.Context()))

	pushed, err := name.NewDigest(strings.TrimSpace(said.String()))
	require.NoError(t, err, "what is said is what is signed")
	tag, err := name.NewTag(image)
	require.NoError(t, err)
	for _, arch := range architectures {
		for _, ref := range []name.Reference{pushed, tag} {
			img, err := remote.Image(ref, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
			require.NoError(t, err)
			config, err := img.ConfigFile()
			require.NoError(t, err)
			require.Equal(t, arch, config.Architecture)
			require.Contains(t, filesOf(t, img), "refit")
		}
	}

	cmd.SetArgs([]string{"push", "--from", t.TempDir(), "--image", image})
	require.ErrorContains(t, cmd.ExecuteContext(t.Context()), "run `make image`")
	cmd.SetArgs([]string{"push", "--from", layout, "--image", "refit:latest"})
	require.ErrorContains(t, cmd.ExecuteContext(t.Context()), "--image")
}

// TestALayoutIsReplaced: what an earlier build has left would be pushed with it. What is no layout is not removed.
func TestALayoutIsReplaced(t *testing.T) {
	layout := filepath.Join(t.TempDir(), "image")
	o := options{bin: standIns(t), image: "registry.example.org/refit:v1", version: "v1", layout: layout}
	count := func() int {
		blobs, err := os.ReadDir(filepath.Join(layout, "blobs", "sha256"))
		require.NoError(t, err)
		return len(blobs)
	}
	require.NoError(t, o.run(quiet()))
	first := count()
	o.version, o.image = "v2", "registry.example.org/refit:v2"
	require.NoError(t, o.run(quiet()))
	require.Equal(t, first, count())
	index, err := readLayout(layout)
	require.NoError(t, err)
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	require.Equal(t, "v2", manifest.Annotations["org.opencontainers.image.version"])

	o.layout = t.TempDir()
	kept := filepath.Join(o.layout, "kept")
	require.NoError(t, os.WriteFile(kept, nil, 0o600))
	require.ErrorContains(t, o.run(quiet()), "no OCI layout")
	require.FileExists(t, kept)
}

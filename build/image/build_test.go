package main

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

var created = time.Date(2026, 10, 3, 18, 0, 0, 0, time.UTC)

// standIn builds the small program that stands for refit: what it was built for is in it, as it is in refit.
func standIn(t *testing.T, to, arch string, env ...string) {
	t.Helper()
	source := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600))
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", to, source)
	cmd.Env = append(os.Environ(), append([]string{"GOOS=linux", "GOARCH=" + arch, "CGO_ENABLED=0"}, env...)...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// standIns puts stand-ins for all programs into a directory: those of agents are texts.
func standIns(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, arch := range architectures {
		standIn(t, filepath.Join(dir, "refit-linux-"+arch), arch)
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "agents"), 0o700))
	for _, name := range agents {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "agents", name), []byte(name), 0o600))
	}
	return dir
}

// quiet is a command that says nothing.
func quiet() *cobra.Command {
	cmd := &cobra.Command{}
	cmd.SetOut(io.Discard)
	return cmd
}

func TestTheSameProgramsMakeTheSameImage(t *testing.T) {
	first, second := standIns(t), standIns(t)
	require.NoError(t, os.Chtimes(filepath.Join(second, "refit-linux-amd64"), created, created))
	require.NoError(t, os.Chmod(filepath.Join(second, "agents", agents[0]), 0o777))
	digest := func(bin, version, revision string, at time.Time) string {
		o := options{bin: bin, version: version, revision: revision, created: at.Unix()}
		images, err := o.images()
		require.NoError(t, err)
		d, err := o.index(images).Digest()
		require.NoError(t, err)
		return d.String()
	}
	one := digest(first, "v1", "abc", created)
	require.Equal(t, one, digest(second, "v1", "abc", created))
	require.NotEqual(t, one, digest(first, "v2", "abc", created))
	require.NotEqual(t, one, digest(first, "v1", "abd", created))
	require.NotEqual(t, one, digest(first, "v1", "abc", created.Add(time.Second)))
	require.NoError(t, os.WriteFile(filepath.Join(second, "agents", agents[1]), []byte("another"), 0o600))
	require.NotEqual(t, one, digest(second, "v1", "abc", created))
}

// TestEachArchitectureHasItsImage looks at the layout as whoever pulls it does.
func TestEachArchitectureHasItsImage(t *testing.T) {
	bin, layout := standIns(t), filepath.Join(t.TempDir(), "out", "image")
	signature := "agents/" + agents[0] + ".sig" // one of the agents is signed
	require.NoError(t, os.WriteFile(filepath.Join(bin, signature), []byte("{}"), 0o600))
	o := options{bin: bin, image: "registry.example.org/refit:dev", version: "v1", revision: "abc", created: created.Unix(), layout: layout}
	cmd := quiet()
	var said strings.Builder
	cmd.SetOut(&said)
	require.NoError(t, o.run(cmd))

	index, err := readLayout(layout)
	require.NoError(t, err)
	digest, err := index.Digest()
	require.NoError(t, err)
	require.Equal(t, "registry.example.org/refit:dev@"+digest.String()+"\n", said.String())
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	require.Equal(t, types.OCIImageIndex, manifest.MediaType)
	labels := map[string]string{
		"org.opencontainers.image.title":       "refit",
		"org.opencontainers.image.description": "Updates Cluster API machines in place",
		"org.opencontainers.image.source":      "https://github.com/capi-refit/refit",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.version":     "v1",
		"org.opencontainers.image.revision":    "abc",
		"org.opencontainers.image.created":     "2026-10-03T18:00:00Z",
	}
	require.Equal(t, labels, manifest.Annotations)

	var platforms []string
	agentsLayers := map[v1.Hash]bool{}
	for _, m := range manifest.Manifests {
		platforms = append(platforms, m.Platform.String())
		img, err := index.Image(m.Digest)
		require.NoError(t, err)
		config, err := img.ConfigFile()
		require.NoError(t, err)
		require.Equal(t, m.Platform.String(), config.OS+"/"+config.Architecture)
		require.Equal(t, "65532:65532", config.Config.User)
		require.Equal(t, []string{"/refit"}, config.Config.Entrypoint)
		require.Equal(t, labels, config.Config.Labels)
		require.True(t, config.Created.Equal(created))
		own, err := img.Manifest()
		require.NoError(t, err)
		require.Equal(t, labels, own.Annotations)
		require.Equal(t, types.OCIManifestSchema1, own.MediaType)
		require.Equal(t, types.OCIConfigJSON, own.Config.MediaType)
		for _, l := range own.Layers {
			require.Equal(t, types.OCILayer, l.MediaType)
		}
		agentsLayers[own.Layers[0].Digest] = true

		program, err := os.ReadFile(filepath.Join(bin, "refit-linux-"+config.Architecture))
		require.NoError(t, err)
		require.Equal(t, map[string]string{
			"agents": "", "refit": string(program), "agents/" + agents[0]: agents[0], "agents/" + agents[1]: agents[1], signature: "{}",
		}, filesOf(t, img), "the programs and nothing else")
	}
	require.Equal(t, []string{"linux/amd64", "linux/arm64"}, platforms)
	require.Len(t, agentsLayers, 1, "the agents are stored once")
}

// filesOf returns what is in an image.
func filesOf(t *testing.T, img v1.Image) map[string]string {
	t.Helper()
	files := map[string]string{}
	content := mutate.Extract(img)
	defer content.Close() //nolint:errcheck // it was only read
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		require.Zero(t, h.Uid)
		require.EqualValues(t, 0o755, h.Mode)
		require.True(t, h.ModTime.Equal(created))
		all, err := io.ReadAll(r)
		require.NoError(t, err)
		files[strings.TrimSuffix(h.Name, "/")] = string(all)
	}
}

// TestDockerLoadsOneArchitecture reads the file as docker load does.
func TestDockerLoadsOneArchitecture(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out", "image.tar")
	o := options{bin: standIns(t), image: "registry.example.org/refit:dev", created: created.Unix(), docker: file, dockerArch: "arm64"}
	require.NoError(t, o.run(quiet()))
	img, err := tarball.ImageFromPath(file, nil)
	require.NoError(t, err)
	config, err := img.ConfigFile()
	require.NoError(t, err)
	require.Equal(t, "arm64", config.Architecture)
	require.Len(t, filesOf(t, img), 4)
	o.dockerArch = "riscv64"
	require.ErrorContains(t, o.run(quiet()), "no image for riscv64")
}

func TestWhatCanNotBeAnImage(t *testing.T) {
	noAgent, otherSystem, otherArchitecture := standIns(t), standIns(t), standIns(t)
	require.NoError(t, os.Remove(filepath.Join(noAgent, "agents", agents[1])))
	standIn(t, filepath.Join(otherSystem, "refit-linux-amd64"), "amd64", "GOOS=darwin")
	standIn(t, filepath.Join(otherArchitecture, "refit-linux-arm64"), "amd64")
	for name, tc := range map[string]struct {
		o    options
		says string
	}{
		"an agent is missing":  {options{bin: noAgent, image: "r.example.org/refit:v1"}, "run `make image`"},
		"nothing was built":    {options{bin: t.TempDir(), image: "r.example.org/refit:v1"}, "run `make image`"},
		"another system":       {options{bin: otherSystem, image: "r.example.org/refit:v1"}, "needs GOOS=linux GOARCH=amd64"},
		"another architecture": {options{bin: otherArchitecture, image: "r.example.org/refit:v1"}, "needs GOOS=linux GOARCH=arm64"},
		"latest":               {options{bin: noAgent, image: "r.example.org/refit:latest"}, "name a version"},
		"no tag":               {options{bin: noAgent, image: "r.example.org/refit"}, "--image"},
	} {
		t.Run(name, func(t *testing.T) { require.ErrorContains(t, tc.o.run(quiet()), tc.says) })
	}
}

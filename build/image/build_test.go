package main

import (
	"archive/tar"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

var created = time.Date(2026, 10, 3, 18, 0, 0, 0, time.UTC)

// programs puts programs into a directory: a real one, which says what it was built for, and agents.
func programs(t *testing.T, env ...string) string {
	t.Helper()
	dir, source := t.TempDir(), filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600))
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", filepath.Join(dir, "refit"), source)
	cmd.Env = append(os.Environ(), append([]string{"GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0"}, env...)...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "agents"), 0o700))
	for _, name := range agents {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "agents", name), []byte(name), 0o600))
	}
	return dir
}

func TestTheSameProgramsMakeTheSameImage(t *testing.T) {
	first, second := programs(t), programs(t)
	require.NoError(t, os.Chtimes(filepath.Join(second, "refit"), created, created))
	require.NoError(t, os.Chmod(filepath.Join(second, "agents", agents[0]), 0o777))
	digest := func(bin, version string, at time.Time) string {
		img, err := build(bin, version, at)
		require.NoError(t, err)
		d, err := img.Digest()
		require.NoError(t, err)
		return d.String()
	}
	one := digest(first, "v1", created)
	require.Equal(t, one, digest(second, "v1", created))
	require.Equal(t, one, digest(first, "v1", created.Local()))
	require.NotEqual(t, one, digest(first, "v2", created))
	require.NotEqual(t, one, digest(first, "v1", created.Add(time.Second)))
	require.NoError(t, os.WriteFile(filepath.Join(second, "agents", agents[1]), []byte("another"), 0o600))
	require.NotEqual(t, one, digest(second, "v1", created))
}

func TestTheImageHoldsTheProgramsAndNothingElse(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out", "image.tar")
	bin := programs(t)
	signature := "agents/" + agents[0] + ".sig" // one of the agents is signed
	require.NoError(t, os.WriteFile(filepath.Join(bin, signature), []byte("{}"), 0o600))
	o := options{bin: bin, image: "registry.example.org/refit:dev", version: "dev", out: out}
	cmd := &cobra.Command{}
	var said strings.Builder
	cmd.SetOut(&said)
	require.NoError(t, o.run(cmd))
	require.Contains(t, said.String(), "registry.example.org/refit:dev@sha256:")

	img, err := tarball.ImageFromPath(out, nil) // as docker load reads it
	require.NoError(t, err)
	config, err := img.ConfigFile()
	require.NoError(t, err)
	require.Equal(t, "linux/arm64", config.OS+"/"+config.Architecture)
	require.Equal(t, "65532:65532", config.Config.User)
	require.Equal(t, []string{"/refit"}, config.Config.Entrypoint)
	files := map[string]int64{}
	content := mutate.Extract(img)
	defer content.Close() //nolint:errcheck // it was only read
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		require.Zero(t, h.Uid)
		require.True(t, h.ModTime.Equal(time.Unix(0, 0)))
		files[strings.TrimSuffix(h.Name, "/")] = h.Mode
	}
	require.Equal(t, map[string]int64{
		"agents": 0o755, "refit": 0o755, "agents/refit-node-linux-amd64": 0o755, "agents/refit-node-linux-arm64": 0o755, signature: 0o755,
	}, files)
}

func TestWhatCanNotBeAnImage(t *testing.T) {
	bin := programs(t)
	require.NoError(t, os.Remove(filepath.Join(bin, "agents", agents[1])))
	for name, tc := range map[string]struct {
		o    options
		says string
	}{
		"an agent is missing": {options{bin: bin, image: "r.example.org/refit:v1"}, "run `make build`"},
		"nothing was built":   {options{bin: t.TempDir(), image: "r.example.org/refit:v1"}, "run `make build`"},
		"another system":      {options{bin: programs(t, "GOOS=darwin"), image: "r.example.org/refit:v1"}, "needs GOOS=linux"},
		"latest":              {options{bin: bin, image: "r.example.org/refit:latest"}, "name a version"},
		"no tag":              {options{bin: bin, image: "r.example.org/refit"}, "--image"},
	} {
		t.Run(name, func(t *testing.T) { require.ErrorContains(t, tc.o.run(&cobra.Command{}), tc.says) })
	}
}

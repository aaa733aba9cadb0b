package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/build/spdx"
)

// TestTheImagesListIsOfAllItsPrograms: agents have modules that the server has not. This test program, which has some, stands for them.
func TestTheImagesListIsOfAllItsPrograms(t *testing.T) {
	bin, dir := programs(t), t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	program, err := os.ReadFile(self)
	require.NoError(t, err)
	for _, name := range agents {
		program = append(program, 0) // no two are the same
		require.NoError(t, os.WriteFile(filepath.Join(bin, "agents", name), program, 0o600))
	}
	o := options{bin: bin, image: "registry.example.org/refit:dev", version: "dev", out: filepath.Join(dir, "image.tar"), spdx: filepath.Join(dir, "image.spdx.json")}
	cmd := &cobra.Command{}
	cmd.SetOut(io.Discard)
	require.NoError(t, o.run(cmd))

	data, err := os.ReadFile(o.spdx)
	require.NoError(t, err)
	var list spdx.Document
	require.NoError(t, json.Unmarshal(data, &list))
	sums, names := map[string]string{}, map[string]string{}
	for _, p := range list.Packages {
		names[p.ID] = p.Name
		for _, c := range p.Checksums {
			sums[p.ID] = c.Value
		}
	}
	require.Len(t, names, len(list.Packages), "each has an ID of its own")
	modules, described := map[string]map[string]bool{}, map[string]bool{}
	for _, r := range list.Relationships {
		require.Contains(t, names, r.To)
		if r.Type == "DESCRIBES" {
			described[r.To] = true
			continue
		}
		if modules[r.Of] == nil {
			modules[r.Of] = map[string]bool{}
		}
		modules[r.Of][names[r.To]] = true
	}

	in := inImage(t, o.out)
	require.Len(t, in, 1+len(agents))
	require.Equal(t, in, sums, "what is listed is what is in the image")
	for id := range in {
		require.True(t, described[id], id)
		require.True(t, modules[id]["stdlib"], id)
		require.Equal(t, strings.Contains(id, "node"), modules[id]["github.com/spf13/cobra"], id)
	}
	var again strings.Builder
	cmd.SetOut(&again)
	require.NoError(t, o.run(cmd))
	second, err := os.ReadFile(o.spdx)
	require.NoError(t, err)
	require.Equal(t, string(data), string(second), "the same programs make the same list")
}

// inImage returns the checksums of the programs in an image, by what stands for them in its list.
func inImage(t *testing.T, file string) map[string]string {
	t.Helper()
	img, err := tarball.ImageFromPath(file, nil)
	require.NoError(t, err)
	content := mutate.Extract(img)
	defer content.Close() //nolint:errcheck // it was only read
	sums := map[string]string{}
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return sums
		}
		require.NoError(t, err)
		if h.Typeflag == tar.TypeReg {
			all, err := io.ReadAll(r)
			require.NoError(t, err)
			sum := sha256.Sum256(all)
			sums["SPDXRef-"+strings.ReplaceAll(h.Name, "/", "-")] = hex.EncodeToString(sum[:])
		}
	}
}

// TestNoListOfWhatIsNoProgramOfGo: half a list would be taken for all of it.
func TestNoListOfWhatIsNoProgramOfGo(t *testing.T) {
	dir := t.TempDir()
	o := options{bin: programs(t), image: "registry.example.org/refit:dev", version: "dev", spdx: filepath.Join(dir, "image.spdx.json")}
	cmd := &cobra.Command{}
	cmd.SetOut(io.Discard)
	require.ErrorContains(t, o.run(cmd), "what "+filepath.Join(o.bin, "agents", agents[0])+" was built of")
	require.NoFileExists(t, o.spdx)
}

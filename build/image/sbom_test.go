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
	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/build/spdx"
)

// TestTheImagesListIsOfAllItsPrograms: agents have modules that the server has not. This test program, which has some, stands for them.
func TestTheImagesListIsOfAllItsPrograms(t *testing.T) {
	bin, dir := standIns(t), t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	program, err := os.ReadFile(self)
	require.NoError(t, err)
	for _, name := range agents {
		program = append(program, 0) // no two are the same
		require.NoError(t, os.WriteFile(filepath.Join(bin, "agents", name), program, 0o600))
	}
	o := options{bin: bin, image: "registry.example.org/refit:dev", version: "dev", layout: filepath.Join(dir, "image"), spdx: filepath.Join(dir, "image.spdx.json")}
	cmd := quiet()
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

	in := inImages(t, o.layout)
	require.Len(t, in, len(architectures)+len(agents))
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

// inImages returns the checksums of the programs in the image of each architecture, by what stands for them in the list.
func inImages(t *testing.T, layout string) map[string]string {
	t.Helper()
	index, err := readLayout(layout)
	require.NoError(t, err)
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	sums := map[string]string{}
	for _, m := range manifest.Manifests {
		img, err := index.Image(m.Digest)
		require.NoError(t, err)
		content := mutate.Extract(img)
		for r := tar.NewReader(content); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			if h.Typeflag == tar.TypeReg {
				all, err := io.ReadAll(r)
				require.NoError(t, err)
				sum := sha256.Sum256(all)
				name := strings.ReplaceAll(h.Name, "/", "-")
				if h.Name == "refit" {
					name = server(m.Platform.Architecture)
				}
				sums["SPDXRef-"+name] = hex.EncodeToString(sum[:])
			}
		}
		require.NoError(t, content.Close())
	}
	return sums
}

// TestNoListOfWhatIsNoProgramOfGo: half a list would be taken for all of it.
func TestNoListOfWhatIsNoProgramOfGo(t *testing.T) {
	dir := t.TempDir()
	o := options{bin: standIns(t), image: "registry.example.org/refit:dev", version: "dev", spdx: filepath.Join(dir, "image.spdx.json")}
	require.ErrorContains(t, o.run(quiet()), "what "+filepath.Join(o.bin, "agents", agents[0])+" was built of")
	require.NoFileExists(t, o.spdx)
}

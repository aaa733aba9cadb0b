package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/capi-refit/refit/build/spdx"
)

// release makes one. This test program stands for the command: it has modules, too.
func release(t *testing.T, out string) options {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	program, err := os.ReadFile(self)
	require.NoError(t, err)
	programs := t.TempDir()
	for _, p := range platforms {
		require.NoError(t, os.WriteFile(filepath.Join(programs, p.program()), program, 0o600))
	}
	root := filepath.Join("..", "..")
	return options{
		version: "v0.1.0", programs: programs, config: filepath.Join(root, "config"), chart: filepath.Join(root, "charts", "refit"),
		metadata: filepath.Join(root, "metadata.yaml"), license: filepath.Join(root, "LICENSE"), out: out, created: 1_700_000_000,
	}
}

func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		files[e.Name()] = string(data)
	}
	return files
}

// TestARelease makes one twice, and looks at what it has.
func TestARelease(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	o := release(t, out)
	require.NoError(t, o.run())
	files := filesOf(t, out)
	require.NoError(t, o.run(), "a release is replaced")
	again := filesOf(t, out)
	for name, data := range files {
		require.True(t, data == again[name], "%s differs from one time to the next", name)
	}
	require.Len(t, again, len(files))
	require.Len(t, files, len(platforms)+6)

	t.Run("checksums are of all files", func(t *testing.T) {
		lines := strings.Split(strings.TrimSpace(files[checksums]), "\n")
		require.Len(t, lines, len(files)-1)
		for _, line := range lines {
			sum, name, _ := strings.Cut(line, "  ")
			require.Equal(t, digest([]byte(files[name])), sum, name)
		}
	})
	t.Run("components", func(t *testing.T) { checkComponents(t, files["runtime-extension-components.yaml"]) })
	t.Run("metadata", func(t *testing.T) {
		var m struct{ ReleaseSeries []map[string]any }
		require.NoError(t, yaml.Unmarshal([]byte(files["metadata.yaml"]), &m))
		require.Equal(t, []map[string]any{{"major": 0.0, "minor": 1.0, "contract": "v1beta2"}}, m.ReleaseSeries)
	})
	t.Run("archives have the command and the license", func(t *testing.T) {
		for _, p := range platforms {
			names := namesIn(t, p, files)
			require.Equal(t, "LICENSE", names[0])
			require.Equal(t, map[bool]string{true: "refit.exe", false: "refit"}[p.os == "windows"], names[1])
		}
	})
	t.Run("krew's manifest", func(t *testing.T) {
		for _, name := range regexp.MustCompile(`v0\.1\.0/\S+`).FindAllString(files["refit.krew.yaml"], -1) {
			require.Contains(t, files, strings.TrimPrefix(name, "v0.1.0/"))
		}
		require.Contains(t, files["refit.krew.yaml"], digest([]byte(files["refit-darwin-arm64.tar.gz"])))
	})
	t.Run("the chart", func(t *testing.T) {
		chart := tarOf(t, files["refit-0.1.0.tgz"])
		require.Contains(t, chart["refit/Chart.yaml"], "\nversion: 0.1.0\nappVersion: v0.1.0\n")
		require.Contains(t, chart, "refit/templates/crds/machineupdates.yaml")
	})
	t.Run("modules", func(t *testing.T) {
		var bom spdx.Document
		require.NoError(t, json.Unmarshal([]byte(files["refit.spdx.json"]), &bom))
		require.Len(t, bom.Relationships, len(bom.Packages))
		for _, module := range []string{"pkg:golang/github.com/spf13/cobra@v", "pkg:golang/stdlib@go1"} {
			require.True(t, strings.Contains(files["refit.spdx.json"], module), module)
		}
	})
}

func checkComponents(t *testing.T, text string) {
	t.Helper()
	require.False(t, regexp.MustCompile(`[:@]latest\b`).MatchString(text))
	require.True(t, strings.Contains(text, "image: ghcr.io/capi-refit/refit:v0.1.0\n"))
	for _, variable := range regexp.MustCompile(`\$\{[^}]*\}`).FindAllString(text, -1) {
		require.Contains(t, variable, ":=", "a variable without a default")
	}
	require.NotContains(t, strings.ReplaceAll(text, namespace, ""), "refit-system")
	require.Equal(t, 4, strings.Count(strings.ReplaceAll(text, namespace, ""), "${"))
	manager, err := os.ReadFile(filepath.Join("..", "..", "config", "manager", "manager.yaml"))
	require.NoError(t, err)
	for variable, field := range map[string]string{"REFIT_MEMORY_LIMIT": "limits: {memory: ", "REFIT_GOMEMLIMIT": "{name: GOMEMLIMIT, value: ", "REFIT_REPLICAS": "replicas: "} {
		_, value, _ := strings.Cut(string(manager), field)
		value, _, _ = strings.Cut(value, "\n")
		require.Contains(t, text, "${"+variable+":="+strings.TrimSuffix(value, "}")+"}", "its default is what config/ has")
	}
	kinds := map[string]int{}
	for i, part := range strings.Split(strings.TrimPrefix(text, "---\n"), "\n---\n") {
		var o struct{ Kind string }
		require.NoError(t, yaml.Unmarshal([]byte(part), &o))
		kinds[o.Kind]++
		if i == 0 {
			require.Equal(t, "Namespace", o.Kind)
		}
	}
	require.Equal(t, 1, kinds["Deployment"])
	require.Equal(t, 1, kinds["ExtensionConfig"])
	require.Greater(t, kinds["CustomResourceDefinition"], 5)
}

func namesIn(t *testing.T, p platform, files map[string]string) []string {
	t.Helper()
	var names []string
	if p.os == "windows" {
		data := files[p.program()+".zip"]
		r, err := zip.NewReader(strings.NewReader(data), int64(len(data)))
		require.NoError(t, err)
		for _, f := range r.File {
			names = append(names, f.Name)
		}
		return names
	}
	eachOf(t, files[p.program()+".tar.gz"], func(h *tar.Header, _ []byte) {
		require.Zero(t, h.Uid)
		require.Equal(t, int64(1_700_000_000), h.ModTime.Unix())
		names = append(names, h.Name)
	})
	return names
}

func tarOf(t *testing.T, data string) map[string]string {
	t.Helper()
	files := map[string]string{}
	eachOf(t, data, func(h *tar.Header, content []byte) { files[h.Name] = string(content) })
	return files
}

func eachOf(t *testing.T, data string, visit func(*tar.Header, []byte)) {
	t.Helper()
	uncompressed, err := gzip.NewReader(strings.NewReader(data))
	require.NoError(t, err)
	for r := tar.NewReader(uncompressed); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		var content bytes.Buffer
		_, err = io.Copy(&content, r)
		require.NoError(t, err)
		visit(h, content.Bytes())
	}
}

func TestWhatIsNoReleaseIsNotReplaced(t *testing.T) {
	out := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(out, "mine"), nil, 0o600))
	require.ErrorContains(t, release(t, out).run(), "it is no release: it is not replaced")
	require.FileExists(t, filepath.Join(out, "mine"))
}

// TestASeriesThatIsNotKnownIsMissed: clusterctl upgrades nothing to a version, or from one, whose line is not there.
func TestASeriesThatIsNotKnownIsMissed(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	o := release(t, out)
	o.version = "v0.2.0"
	require.ErrorContains(t, o.run(), "has no line for 0.2")
	require.NoDirExists(t, out)
}

func TestVersions(t *testing.T) {
	for _, text := range []string{"v0.1.0", "v1.2.3-rc.1"} {
		v, err := parse(text)
		require.NoError(t, err)
		require.Equal(t, text, v.String())
	}
	for _, text := range []string{"", "latest", "0.1.0", "v0.1", "v01.2.3", "v1.2.3 ", "v0.1.0+build", "dev", "v0.1.0-3-gabc-dirty/.."} {
		_, err := parse(text)
		require.Error(t, err, text)
	}
}

// TestACommandThatIsNotBuiltIsMissed: half a release is not made.
func TestACommandThatIsNotBuiltIsMissed(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	o := release(t, out)
	require.NoError(t, os.Remove(filepath.Join(o.programs, "refit-windows-arm64")))
	require.ErrorContains(t, o.run(), "the command for windows/arm64")
	require.NoDirExists(t, out)
}

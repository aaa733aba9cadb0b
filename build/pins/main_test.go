package main

import (
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

func TestTheProjectIsPinned(t *testing.T) {
	found, err := check(os.DirFS("../.."))
	require.NoError(t, err)
	require.Empty(t, found)
}

// ownVersions are modules whose versions dependabot is not to move, and why.
var ownVersions = map[string]string{
	"build/vulnerabilities/testdata/vulnerable": "it is to be vulnerable",
	"test/lab/modules/kubernetes":               "a constant says the same, and a replace for each of Kubernetes' own modules",
	"test/lab/modules/kubernetes-v1.35.4":       "its name says its version",
	"test/lab/modules/kubernetes-v1.36.1":       "its name says its version",
}

// TestDependabotLooksAtEachModule: in one that it passes over, versions grow old and nobody is told.
func TestDependabotLooksAtEachModule(t *testing.T) {
	content, err := os.ReadFile("../../.github/dependabot.yml")
	require.NoError(t, err)
	var config struct {
		Updates []struct {
			Ecosystem   string `json:"package-ecosystem"`
			Directories []string
		}
	}
	require.NoError(t, yaml.Unmarshal(content, &config))
	require.Equal(t, "gomod", config.Updates[0].Ecosystem)
	looked := map[string]bool{}
	require.NoError(t, fs.WalkDir(os.DirFS("../.."), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "go.mod" {
			return err
		}
		module := path.Dir(name)
		looks := false
		for _, dir := range config.Updates[0].Directories {
			match, err := path.Match(strings.TrimPrefix(dir, "/"), strings.TrimPrefix(module, "."))
			require.NoError(t, err)
			looks = looks || match
		}
		require.Equal(t, ownVersions[module] == "", looks, module)
		looked[module] = true
		return nil
	}))
	for module := range ownVersions {
		require.True(t, looked[module], "there is no module %s", module)
	}
}

func TestWhatHasNoVersionIsFound(t *testing.T) {
	for name, tc := range map[string]struct {
		file, content string
		found         string // empty: nothing
	}{
		"an image":                    {"config/a.yaml", "image: example.org/a:latest", "config/a.yaml:1: example.org/a:latest can be another one tomorrow"},
		"an image on the second line": {"config/a.yaml", "x: y\n  - image: \"a:latest\"", "config/a.yaml:2: a:latest"},
		"kustomize":                   {"config/kustomization.yaml", "    newTag: latest", "newTag: latest"},
		"a module":                    {"docs/a.md", "go install example.org/x@latest", "example.org/x@latest"},
		"an action":                   {".github/workflows/ci.yaml", "- uses: actions/checkout@latest", "actions/checkout@latest"},
		"an action without a version": {".github/workflows/ci.yaml", "      - uses: actions/checkout", "the action actions/checkout has no version"},
		"an image without a tag":      {"docs/install.md", "kubectl run x --image=curlimages/curl -- sh", "the image curlimages/curl has no tag"},
		"a registry with a port":      {"config/a.yaml", "  image: localhost:5000/a", "the image localhost:5000/a has no tag"},
		"a base":                      {"build/Dockerfile", "FROM debian", "the image debian has no tag"},

		"a tag":             {"config/a.yaml", "image: example.org/a:v1", ""},
		"a digest":          {"config/a.yaml", "image: example.org/a@sha256:00", ""},
		"a variable":        {"Makefile", "docker run --image=$(IMAGE)", ""},
		"the placeholder":   {"config/manager/manager.yaml", "          image: refit", ""},
		"nothing":           {"build/Dockerfile", "FROM scratch", ""},
		"a word":            {"docs/a.md", "the latest one, and images that are the latest", ""},
		"a commit":          {".github/workflows/ci.yaml", "- uses: actions/checkout@0123 # v4", ""},
		"an action of ours": {".github/workflows/ci.yaml", "- uses: ./.github/actions/x", ""},
		"a target":          {"Makefile", "image: build", ""},
		"a machine's image": {"docs/a.md", "  image: https://example.org/a.qcow2", ""},
		"elsewhere":         {"test/a.yaml", "image: a:latest", ""},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := check(fstest.MapFS{tc.file: {Data: []byte(tc.content)}})
			require.NoError(t, err)
			if tc.found == "" {
				require.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			require.Contains(t, found[0], tc.found)
		})
	}
}

package nodes

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMirror(t *testing.T) {
	for name, test := range map[string]struct {
		file, content, want string
	}{
		"no sources at all":        {file: "sources.list", want: ""},
		"a line":                   {file: "sources.list", content: "# deb http://old bookworm main\ndeb http://mirror.example/debian bookworm main contrib\n", want: "http://mirror.example/debian"},
		"a line with options":      {file: "sources.list.d/x.list", content: "deb [arch=amd64 signed-by=/k] https://mirror.example/debian bookworm main\n", want: "https://mirror.example/debian"},
		"a line of other packages": {file: "sources.list", content: "deb http://apps.example/apt bookworm stable\n", want: ""},
		"another release":          {file: "sources.list", content: "deb http://mirror.example/debian trixie main\n", want: ""},
		"a disc":                   {file: "sources.list", content: "deb cdrom:[Debian]/ bookworm main\n", want: ""},
		"a stanza": {
			file: "sources.list.d/debian.sources",
			content: "Types: deb\nURIs: http://security.example/debian\nSuites: bookworm-security\nComponents: main\n\n" +
				"Types: deb deb-src\n# a remark: with a colon\nURIs: http://mirror.example/debian\nSuites: bookworm bookworm-updates\nComponents: main\n",
			want: "http://mirror.example/debian",
		},
		"a stanza that is off": {
			file:    "sources.list.d/debian.sources",
			content: "Enabled: no\nTypes: deb\nURIs: http://mirror.example/debian\nSuites: bookworm\nComponents: main\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, test.file)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
			require.NoError(t, os.WriteFile(path, []byte(test.content), 0o600))
			assert.Equal(t, test.want, aptConfig{dir: dir}.mirror("bookworm"))
		})
	}
}

func TestImageKey(t *testing.T) {
	a, err := keyOf("bookworm")
	require.NoError(t, err)
	again, err := keyOf("bookworm")
	require.NoError(t, err)
	b, err := keyOf("trixie")
	require.NoError(t, err)
	assert.Equal(t, a, again)
	assert.NotEqual(t, a, b)
	root, err := debian(Options{Release: "bookworm", Packages: []string{"rpm"}})
	require.NoError(t, err)
	more, err := root.Key()
	require.NoError(t, err)
	assert.NotEqual(t, a, more)
	packages, err := root.Packages()
	require.NoError(t, err)
	assert.Contains(t, packages, "rpm")
}

func keyOf(release string) (string, error) {
	root, err := debian(Options{Release: release})
	if err != nil {
		return "", err
	}
	return root.Key()
}

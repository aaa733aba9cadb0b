package ui

import (
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func files(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, fs.WalkDir(static, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(static, name)
		all[path.Base(name)] = string(data)
		return err
	}))
	require.NotEmpty(t, all)
	return all
}

// TestNothingIsLoadedFromElsewhere: the page works without internet, and its Content-Security-Policy lets it.
func TestNothingIsLoadedFromElsewhere(t *testing.T) {
	elsewhere := regexp.MustCompile(`(?:https?:)?//[a-z0-9-]+\.[a-z]`)
	for name, text := range files(t) {
		text = strings.ReplaceAll(text, `xmlns="http://www.w3.org/2000/svg"`, "")
		require.False(t, elsewhere.MatchString(text), "%s: %s", name, elsewhere.FindString(text))
	}
}

// TestTextsAreNeverMarkup: there is one way to make elements, and it takes texts as they are.
func TestTextsAreNeverMarkup(t *testing.T) {
	for name, text := range files(t) {
		for _, word := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "DOMParser", "createContextualFragment", "srcdoc", "javascript:"} {
			require.NotContains(t, text, word, name)
		}
	}
	html := files(t)["index.html"]
	require.NotRegexp(t, regexp.MustCompile(`(?i)<style|\sstyle=|\son[a-z]+=`), html)
	for _, m := range regexp.MustCompile(`(?s)<script([^>]*)>(.*?)</script>`).FindAllStringSubmatch(html, -1) {
		require.Contains(t, m[1], "src=")
		require.Empty(t, strings.TrimSpace(m[2]))
	}
}

func TestModulesAreThere(t *testing.T) {
	all := files(t)
	for name, text := range all {
		for _, m := range regexp.MustCompile(`(?m)^import \{([^}]+)\} from "\./([^"]+)";`).FindAllStringSubmatch(text, -1) {
			require.Contains(t, all, m[2], name)
			for one := range strings.SplitSeq(m[1], ",") {
				one = strings.TrimSpace(one)
				require.Regexp(t, `(?m)^export (?:async )?(?:function|const) `+one+`\b`, all[m[2]], "%s imports %s", name, one)
				require.Greater(t, strings.Count(text, one), 1, "%s imports %s, and does not use it", name, one)
			}
		}
	}
	for _, m := range regexp.MustCompile(`(?:src|href)="([^"#]+)"`).FindAllStringSubmatch(all["index.html"], -1) {
		require.Contains(t, all, m[1])
	}
}

// TestStatesAreDrawn: each state has a mark and a colour, and so has each kind of time.
func TestStatesAreDrawn(t *testing.T) {
	all := files(t)
	for _, s := range states {
		require.Contains(t, all["style.css"], ".s-"+string(s)+" {")
		require.Regexp(t, `\b`+string(s)+`: "[^"]"`, all["format.js"])
	}
	for _, kind := range []string{"Open", "Excluded", "Expected"} {
		require.Contains(t, all["style.css"], ".k-"+kind+" {")
	}
	require.Len(t, states, 11, "the phases, and three more")
}

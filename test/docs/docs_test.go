package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var root = filepath.Join("..", "..")

var (
	marker     = regexp.MustCompile(`^<!-- (run|not run): (\S.*) -->$`)
	testOfOurs = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(t \*testing\.T\)`)
)

// problems are what is missing above the blocks of commands of a page: a comment that names the test which runs them, as
// <!-- run: TestName -->, or says why there is none, as <!-- not run: it takes a fleet -->.
func problems(page string, tests map[string]bool) []string {
	var all []string
	above, inside := "", false
	for i, line := range strings.Split(page, "\n") {
		line = strings.TrimSpace(line) // one may be in a list
		block := strings.HasPrefix(line, "```")
		if block && !inside && line == "```sh" {
			said := marker.FindStringSubmatch(above)
			switch {
			case said == nil:
				all = append(all, fmt.Sprintf("line %d: the line above ```sh is neither <!-- run: TestName --> nor <!-- not run: reason -->", i+1))
			case said[1] == "run" && !tests[said[2]]:
				all = append(all, fmt.Sprintf("line %d: there is no test %s", i+1, said[2]))
			}
		}
		if block {
			inside = !inside
		}
		above = line
	}
	return all
}

func TestWhatIsMissingAboveABlockIsFound(t *testing.T) {
	tests := map[string]bool{"TestIt": true}
	for name, tc := range map[string]struct {
		page string
		want []string
	}{
		"a test":                      {"<!-- run: TestIt -->\n```sh\nit\n```", nil},
		"a reason":                    {"<!-- not run: it takes a fleet -->\n```sh\nit\n```", nil},
		"nothing":                     {"text\n\n```sh\nit\n```", []string{"line 3: the line above ```sh is neither <!-- run: TestName --> nor <!-- not run: reason -->"}},
		"no reason":                   {"<!-- not run: -->\n```sh\nit\n```", []string{"line 2: the line above ```sh is neither <!-- run: TestName --> nor <!-- not run: reason -->"}},
		"a test that is not there":    {"<!-- run: TestOther -->\n```sh\nit\n```", []string{"line 2: there is no test TestOther"}},
		"a block of another language": {"```yaml\na: b\n```", nil},
		"commands in another block":   {"```markdown\ntext\n```\n<!-- run: TestIt -->\n```sh\nit\n```", nil},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, problems(tc.page, tests)) })
	}
}

// walked calls visit with each file of the checkout that has a suffix, but what is hidden, generated or built.
func walked(t *testing.T, suffix string, visit func(path, text string)) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "bin" || entry.Name() == "out" || entry.Name() == "testdata"):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, suffix):
			return nil
		}
		data, err := os.ReadFile(path)
		if err == nil {
			visit(path, string(data))
		}
		return err
	}))
}

// TestCommandsAreRunOrSayWhyNot is about docs/; what is under docs/reference is generated.
func TestCommandsAreRunOrSayWhyNot(t *testing.T) {
	tests := map[string]bool{}
	walked(t, "_test.go", func(_, text string) {
		for _, m := range testOfOurs.FindAllStringSubmatch(text, -1) {
			tests[m[1]] = true
		}
	})
	require.True(t, tests["TestCommandsAreRunOrSayWhyNot"])
	pages, missing := 0, []string{}
	walked(t, ".md", func(path, text string) {
		name, err := filepath.Rel(root, path)
		require.NoError(t, err)
		name = filepath.ToSlash(name)
		if !strings.HasPrefix(name, "docs/") || strings.HasPrefix(name, "docs/reference/") {
			return
		}
		pages++
		for _, p := range problems(text, tests) {
			missing = append(missing, name+", "+p)
		}
	})
	require.Greater(t, pages, 20)
	require.Empty(t, missing, strings.Join(missing, "\n"))
}

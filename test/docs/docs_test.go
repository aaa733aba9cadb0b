package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var root = filepath.Join("..", "..")

var (
	marker     = regexp.MustCompile(`^<!-- (run|not run): (\S.*) -->$`)
	testOfOurs = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(t \*testing\.T\)`)
)

const missing = "the line above ```sh is neither <!-- run: TestName --> nor <!-- not run: reason -->"

// readsPages are tests that run blocks as they find them on a page: their source has not the words of these.
var readsPages = map[string]bool{"TestOverlaysAddUp": true}

// block is one of shell commands on a page, with what is said above it.
type block struct {
	line        int
	above, text string
}

func blocks(page string) []block {
	var all []block
	above, inside := "", false
	var in *block
	for i, line := range strings.Split(page, "\n") {
		line = strings.TrimSpace(line) // one may be in a list
		switch fence := strings.HasPrefix(line, "```"); {
		case fence && inside && in != nil:
			all, in = append(all, *in), nil
		case fence && !inside && line == "```sh":
			in = &block{line: i + 1, above: above}
		case in != nil:
			in.text += line + "\n"
		}
		if strings.HasPrefix(line, "```") {
			inside = !inside
		}
		above = line
	}
	return all
}

// problem returns what is wrong with what is said above a block: a comment names who runs it, tests or targets of the Makefile, as
// <!-- run: TestName, make target -->; beside it can be how commands begin that nobody runs, as <!-- run: TestName; but not: kubectl, refit ui -->. Or it says why
// nobody runs any, as <!-- not run: it takes a fleet -->. sources returns the packages of whoever is named, and their functions.
func problem(b block, sources func(who string) map[string][]function) string {
	said := marker.FindStringSubmatch(b.above)
	if said == nil {
		return missing
	}
	if said[1] == "not run" {
		return ""
	}
	who, rest, _ := strings.Cut(said[2], "; but not: ")
	var packages []map[string][]function
	for name := range strings.SplitSeq(who, ", ") {
		of := sources(name)
		if of == nil {
			return "there is no " + name
		}
		packages = append(packages, of)
		if readsPages[name] {
			packages = nil
			break
		}
	}
	var but []string
	if rest != "" {
		but = strings.Split(rest, ", ")
	}
	ran, used := 0, map[string]bool{}
	for _, c := range commands(b.text) {
		if i := slices.IndexFunc(but, func(prefix string) bool { return strings.HasPrefix(c.text+" ", prefix+" ") }); i >= 0 {
			used[but[i]] = true
			continue
		}
		ran++
		if packages != nil && !anyRuns(c, packages) {
			return fmt.Sprintf("nothing of %s runs %q", who, c.text)
		}
	}
	for _, prefix := range but {
		if !used[prefix] {
			return fmt.Sprintf("no command begins with %q", prefix)
		}
	}
	if ran == 0 {
		return "all of it is not run: say why"
	}
	return ""
}

func anyRuns(c command, packages []map[string][]function) bool {
	for _, of := range packages {
		for dir, functions := range of {
			if runs(c, functions, dir) {
				return true
			}
		}
	}
	return false
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

// ofCheckout returns the packages of a test, or of a target of the Makefile, with their functions.
func ofCheckout(t *testing.T) func(who string) map[string][]function {
	t.Helper()
	dirs, made, read := map[string][]string{}, targets(t), map[string][]function{}
	walked(t, "_test.go", func(path, text string) {
		for _, m := range testOfOurs.FindAllStringSubmatch(text, -1) {
			dir, err := filepath.Rel(root, filepath.Dir(path))
			require.NoError(t, err)
			dirs[m[1]] = append(dirs[m[1]], dir)
		}
		for name := range readsPages {
			if strings.Contains(text, "func "+name+"(") {
				require.Contains(t, text, "codeBlocks(", "%s reads no page", name)
			}
		}
	})
	require.NotEmpty(t, dirs["TestCommandsAreRunOrSayWhyNot"])
	for name := range readsPages {
		require.NotEmpty(t, dirs[name], name)
	}
	return func(who string) map[string][]function {
		in := dirs[who]
		if target, is := strings.CutPrefix(who, "make "); is {
			in = made[target]
		}
		var of map[string][]function
		for _, dir := range in {
			if read[dir] == nil {
				read[dir] = functionsIn(t, dir)
			}
			if of == nil {
				of = map[string][]function{}
			}
			of[dir] = read[dir]
		}
		return of
	}
}

// TestCommandsAreRunOrSayWhyNot is about docs/; what is under docs/reference is generated.
func TestCommandsAreRunOrSayWhyNot(t *testing.T) {
	sources := ofCheckout(t)
	pages, found := 0, []string{}
	walked(t, ".md", func(path, text string) {
		name, err := filepath.Rel(root, path)
		require.NoError(t, err)
		name = filepath.ToSlash(name)
		if !strings.HasPrefix(name, "docs/") || strings.HasPrefix(name, "docs/reference/") {
			return
		}
		pages++
		for _, b := range blocks(text) {
			if p := problem(b, sources); p != "" {
				found = append(found, fmt.Sprintf("%s, line %d: %s", name, b.line, p))
			}
		}
	})
	require.Greater(t, pages, 20)
	require.Empty(t, found, strings.Join(found, "\n"))
}

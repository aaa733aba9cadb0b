package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// function has the words of one: its texts, at each space and up to an equals sign, and its names, in small letters.
type function struct{ texts, names map[string]bool }

func (f function) says(word string) bool { return f.texts[word] || f.names[strings.ToLower(word)] }

// wordsOf returns the words of a declaration. A comment has none.
func wordsOf(of ast.Node) function {
	f := function{map[string]bool{}, map[string]bool{}}
	ast.Inspect(of, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			f.names[strings.ToLower(n.Name)] = true
		case *ast.BasicLit:
			text, err := strconv.Unquote(n.Value)
			if n.Kind != token.STRING || err != nil {
				break
			}
			for word := range strings.FieldsSeq(text) {
				f.texts[flagOf(word)] = true
			}
		}
		return true
	})
	return f
}

// runs reports whether a package may run a command: one function names its program and its subcommand, and its flags are in functions that name either.
func runs(c command, functions []function, dir string) bool {
	sub, together := c.subcommand(), false
	flags := map[string]bool{}
	for _, f := range functions {
		// The tests of the commands themselves start no program.
		program := f.says(c.program) || c.program == "refit" && filepath.ToSlash(dir) == "internal/cli"
		if !program && !f.says(sub) {
			continue
		}
		together = together || program && (sub == "" || f.says(sub))
		for _, flag := range c.flags() {
			flags[flag] = flags[flag] || f.texts[flag]
		}
	}
	for _, found := range flags {
		together = together && found
	}
	return together
}

// functionsIn returns those of a package's files, and its tables: what is declared at its top.
func functionsIn(t *testing.T, dir string) []function {
	t.Helper()
	entries, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, entries, dir)
	var all []function
	for _, path := range entries {
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range parsed.Decls {
			all = append(all, wordsOf(d))
		}
	}
	return all
}

// targets returns the directories of the packages that targets of the Makefile run.
func targets(t *testing.T) map[string][]string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	all, target := map[string][]string{}, ""
	for line := range strings.SplitSeq(string(data), "\n") {
		if m := regexp.MustCompile(`^([a-z0-9-]+):`).FindStringSubmatch(line); m != nil {
			target = m[1]
		}
		if strings.HasPrefix(line, "\t") && strings.Contains(line, "go ") {
			for _, m := range regexp.MustCompile(` \./((?:test|internal)/\S+)`).FindAllStringSubmatch(line, -1) {
				all[target] = append(all[target], m[1])
			}
		}
	}
	require.Contains(t, all["first-hour"], "test/firsthour")
	return all
}

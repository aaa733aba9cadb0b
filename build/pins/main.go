// Pins finds what is fetched without a version: images, actions and modules whose tag is "latest" or missing. What they are can
// change from one day to the next, and nobody sees it in a commit.
package main

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
)

func main() {
	found, err := check(os.DirFS("."))
	if err != nil {
		fmt.Fprintln(os.Stderr, "pins:", err)
		os.Exit(1)
	}
	for _, f := range found {
		fmt.Fprintln(os.Stderr, f)
	}
	if len(found) > 0 {
		os.Exit(1)
	}
}

// roots hold what is fetched by: manifests, builds, workflows, and commands that people copy.
var roots = []string{"config", "docs", ".github", ".ci", "build", "Makefile", "README.md", "CONTRIBUTING.md"}

var (
	latest = regexp.MustCompile(`[\w./-]+[:@]latest\b|\bnewTag:\s*["']?latest\b`)
	image  = regexp.MustCompile(`(?:^[\s-]+image:\s*|--image[= ]|^FROM\s+)["']?([^\s"',}]+)`)
	action = regexp.MustCompile(`^\s*(?:-\s+)?uses:\s*["']?([^\s"']+)`)
)

// unpinned are images that are none: config/manager's stands for the one that its kustomization names, and scratch is nothing.
var unpinned = map[string]bool{"refit": true, "scratch": true}

// check returns a line for each thing that has no version.
func check(source fs.FS) ([]string, error) {
	var found []string
	for _, root := range roots {
		if _, err := fs.Stat(source, root); err != nil {
			continue // a project may have no workflows
		}
		err := fs.WalkDir(source, root, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || path.Ext(name) == ".go" {
				return err
			}
			some, err := checkFile(source, name)
			found = append(found, some...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

func checkFile(source fs.FS, name string) ([]string, error) {
	f, err := source.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	var found []string
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		if what := fault(lines.Text()); what != "" {
			found = append(found, fmt.Sprintf("%s:%d: %s", name, n, what))
		}
	}
	return found, lines.Err()
}

// fault returns what is wrong with a line, or nothing.
func fault(line string) string {
	if m := latest.FindString(line); m != "" {
		return m + " can be another one tomorrow: name a version"
	}
	if m := image.FindStringSubmatch(line); m != nil && !pinned(m[1]) {
		return "the image " + m[1] + " has no tag, which means latest: name a version"
	}
	if m := action.FindStringSubmatch(line); m != nil && !strings.Contains(m[1], "@") && !strings.HasPrefix(m[1], "./") {
		return "the action " + m[1] + " has no version"
	}
	return ""
}

// pinned reports whether an image has a tag or a digest. What a variable holds can't be told here, and what has a URL is an image of a
// machine.
func pinned(image string) bool {
	return unpinned[image] || strings.Contains(image, "$") || strings.Contains(image, "://") || strings.Contains(image, "@") || strings.Contains(path.Base(image), ":")
}

package main

import (
	"path/filepath"
	"slices"
)

// everywhere are files on which all packages depend.
var everywhere = []string{"go.mod", "go.sum"}

// affected returns the import paths of the packages that files belong to, and of those that import them, by way of others or in
// their tests. A file that is no package's own, as test data, belongs to the package in the next directory above that is one; one
// without such a directory, as a page of the docs, to none.
func affected(packages []goPackage, files []string) []string {
	if slices.ContainsFunc(files, func(f string) bool { return slices.Contains(everywhere, f) }) {
		return paths(packages, func(goPackage) bool { return true })
	}
	changed := owners(packages, files)
	isChanged := func(name string) bool { return changed[name] }
	for again := true; again; {
		again = false
		for _, p := range packages {
			if !changed[p.ImportPath] && slices.ContainsFunc(p.Imports, isChanged) {
				changed[p.ImportPath], again = true, true
			}
		}
	}
	return paths(packages, func(p goPackage) bool {
		return changed[p.ImportPath] || slices.ContainsFunc(p.TestImports, isChanged) || slices.ContainsFunc(p.XTestImports, isChanged)
	})
}

// owners returns the import paths of the packages that files belong to.
func owners(packages []goPackage, files []string) map[string]bool {
	byDir := map[string]string{}
	for _, p := range packages {
		byDir[p.Dir] = p.ImportPath
	}
	found := map[string]bool{}
	for _, f := range files {
		dir := filepath.Dir(f)
		for byDir[dir] == "" && dir != "." && dir != "/" {
			dir = filepath.Dir(dir)
		}
		if name := byDir[dir]; name != "" {
			found[name] = true
		}
	}
	return found
}

func paths(packages []goPackage, wanted func(goPackage) bool) []string {
	var all []string
	for _, p := range packages {
		if wanted(p) {
			all = append(all, p.ImportPath)
		}
	}
	return all
}

package effect

import (
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

// dropInDirs returns where systemd's programs look for files of a kind. A file in an earlier one hides those of its name in later ones.
func dropInDirs(kind string) []string {
	return []string{"/etc/" + kind, "/run/" + kind, "/usr/local/lib/" + kind, "/usr/lib/" + kind, "/lib/" + kind}
}

// dropIns returns the files that count of some directories, in the order in which they are read: by their names, wherever they are.
func (e Effects) dropIns(dirs []string) ([]string, error) {
	byName := map[string]string{}
	for _, dir := range dirs {
		entries, err := e.Host.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			name := entry.Name()
			if _, hidden := byName[name]; !hidden && strings.HasSuffix(name, ".conf") && !strings.HasPrefix(name, ".") {
				byName[name] = path.Join(dir, name)
			}
		}
	}
	var files []string
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		if target, err := e.Host.Readlink(byName[name]); err != nil || target != "/dev/null" {
			files = append(files, byName[name])
		}
	}
	return files, nil
}

// lines returns those of a configuration that say something.
func lines(text []byte) []string {
	var out []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, ";") {
			out = append(out, line)
		}
	}
	return out
}

package nodes

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// aptConfig is what the machine's own apt is told. Where that gets its packages, we get ours.
type aptConfig struct{ dir string }

// mirror returns where apt gets a release from. Empty: it does not, and debootstrap's own default may do.
func (a aptConfig) mirror(release string) string {
	files := []string{filepath.Join(a.dir, "sources.list")}
	for _, pattern := range []string{"sources.list.d/*.list", "sources.list.d/*.sources"} {
		more, _ := filepath.Glob(filepath.Join(a.dir, pattern)) // the patterns are good
		files = append(files, more...)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		parse := mirrorOfLines
		if filepath.Ext(file) == ".sources" {
			parse = mirrorOfStanzas
		}
		if uri := parse(string(data), release); uri != "" {
			return uri
		}
	}
	return ""
}

// mirrorOfLines reads lines like "deb [options] uri suite component...".
func mirrorOfLines(data, release string) string {
	for line := range strings.Lines(data) {
		line, _, _ = strings.Cut(line, "#")
		if before, options, ok := strings.Cut(line, "["); ok {
			_, after, _ := strings.Cut(options, "]")
			line = before + after
		}
		f := strings.Fields(line)
		if len(f) >= 4 && f[0] == "deb" && f[2] == release && slices.Contains(f[3:], "main") && isHTTP(f[1]) {
			return f[1]
		}
	}
	return ""
}

// mirrorOfStanzas reads stanzas with the fields Types, URIs, Suites, Components, Enabled.
func mirrorOfStanzas(data, release string) string {
	for stanza := range strings.SplitSeq(data, "\n\n") {
		fields := map[string][]string{}
		for line := range strings.Lines(stanza) {
			if strings.HasPrefix(line, "#") {
				continue
			}
			if name, value, ok := strings.Cut(line, ":"); ok {
				fields[strings.ToLower(strings.TrimSpace(name))] = strings.Fields(value)
			}
		}
		if slices.Contains(fields["enabled"], "no") || !slices.Contains(fields["types"], "deb") ||
			!slices.Contains(fields["suites"], release) || !slices.Contains(fields["components"], "main") {
			continue
		}
		for _, uri := range fields["uris"] {
			if isHTTP(uri) {
				return uri
			}
		}
	}
	return ""
}

// isHTTP leaves out cdrom:, mirror+file: and the like, which debootstrap does not know.
func isHTTP(uri string) bool {
	return strings.HasPrefix(uri, "http://") || strings.HasPrefix(uri, "https://")
}

// proxy returns apt's proxies as debootstrap reads them from its environment.
func (aptConfig) proxy(ctx context.Context) []string {
	var env []string
	for _, scheme := range []string{"http", "https"} {
		out, err := exec.CommandContext(ctx, "apt-config", "shell", "PROXY", "Acquire::"+scheme+"::Proxy").Output()
		_, value, ok := strings.Cut(strings.TrimSpace(string(out)), "=")
		if err == nil && ok && !strings.Contains(value, "DIRECT") {
			env = append(env, scheme+"_proxy="+strings.Trim(value, "'"))
		}
	}
	return env
}

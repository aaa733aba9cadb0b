package timesync

import (
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
)

// What refit writes into chrony's configuration: a block with its servers, and a mark before lines that do not count meanwhile.
const (
	blockBegin = "# BEGIN refit"
	blockAbout = "# refit manages the servers up to the end of this block by the specs of the Machine: edits of them are lost."
	blockEnd   = "# END refit"
	setAside   = "#refit# "
)

// chronyConf is chrony's configuration. What it includes is not looked at: DHCP may add servers there.
type chronyConf struct {
	kind *Kind
	path string
	file host.Saved
}

var _ configuration = (*chronyConf)(nil)

func (c *chronyConf) shows(g goal) bool { return showsChrony(string(c.file.Data), g) }

func (c *chronyConf) files() map[string]host.Saved { return map[string]host.Saved{c.path: c.file} }

func (c *chronyConf) bring(g goal) (note string, err error) {
	content := editChrony(string(c.file.Data), g)
	if len(hostsOf(content)) == 0 {
		note = c.path + " lists no server any more: bootstrap had written it with those of the specs only"
	}
	if content == string(c.file.Data) {
		return note, nil
	}
	return note, c.kind.host.WriteFile(c.path, []byte(content), c.file.State)
}

// serverOf returns the server that a line is about, or "". Names of directives are of either case.
func serverOf(line string) string {
	columns := strings.Fields(line)
	if len(columns) > 1 && slices.Contains([]string{"server", "pool", "peer"}, strings.ToLower(columns[0])) {
		return columns[1]
	}
	return ""
}

// hostsOf returns the servers that count, in their order.
func hostsOf(text string) []string {
	var hosts []string
	for line := range strings.Lines(text) {
		if host := serverOf(line); host != "" {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

func isMarker(line, marker string) bool { return strings.TrimRight(line, " \t\r\n") == marker }

// showsChrony reports whether the servers that count are those that are wanted. Which lines say so, bootstrap's or refit's, does not
// matter.
func showsChrony(text string, g goal) bool {
	hosts := hostsOf(text)
	if len(g.servers) > 0 {
		return slices.Equal(sorted(hosts), sorted(g.servers))
	}
	for line := range strings.Lines(text) {
		if isMarker(line, blockBegin) || asideOf(line) != line {
			return false
		}
	}
	return !slices.ContainsFunc(hosts, func(h string) bool { return slices.Contains(g.gone, h) })
}

func sorted(s []string) []string { return slices.Compact(slices.Sorted(slices.Values(s))) }

// editChrony returns the configuration with the servers that are wanted. Lines with servers that the specs had before are those of
// bootstrap, and go; other lines with servers are set aside as long as there are wanted ones, and come back as they were.
func editChrony(text string, g goal) string {
	var out strings.Builder
	block := blockOf(g.servers)
	for _, l := range readChrony(text) {
		if l.block {
			out.WriteString(block)
			block = "" // of several blocks the first one stays
			continue
		}
		switch server := serverOf(l.text); {
		case server == "":
			out.WriteString(l.text)
		case slices.Contains(g.gone, server): // bootstrap's
		case len(g.servers) > 0:
			out.WriteString(setAside + l.text)
		default:
			out.WriteString(l.text)
		}
	}
	if so := out.String(); block != "" && so != "" && !strings.HasSuffix(so, "\n") {
		out.WriteString("\n")
	}
	return out.String() + block
}

// chronyLine is a line as it would be without refit, or stands for the block.
type chronyLine struct {
	text  string
	block bool
}

// readChrony reads the configuration as it would be without refit. A block that has no end is none; its marker is dropped.
func readChrony(text string) []chronyLine {
	var out []chronyLine
	lines := slices.Collect(strings.Lines(text))
	for i := 0; i < len(lines); i++ {
		switch {
		case isMarker(lines[i], blockBegin):
			if end := endOfBlock(lines, i+1); end >= 0 {
				out = append(out, chronyLine{block: true})
				i = end
			}
		case isMarker(lines[i], blockEnd):
		default:
			out = append(out, chronyLine{text: asideOf(lines[i])})
		}
	}
	return out
}

// asideOf returns the line that was set aside, or the line itself if it was not.
func asideOf(line string) string {
	if rest, ok := strings.CutPrefix(line, setAside); ok && serverOf(rest) != "" {
		return rest
	}
	return line
}

// endOfBlock returns the line that ends the block, or -1.
func endOfBlock(lines []string, from int) int {
	for i := from; i < len(lines); i++ {
		switch {
		case isMarker(lines[i], blockEnd):
			return i
		case isMarker(lines[i], blockBegin):
			return -1
		}
	}
	return -1
}

func blockOf(servers []string) string {
	if len(servers) == 0 {
		return ""
	}
	lines := []string{blockBegin, blockAbout}
	for _, s := range servers {
		lines = append(lines, "server "+s+" iburst")
	}
	return strings.Join(append(lines, blockEnd), "\n") + "\n"
}

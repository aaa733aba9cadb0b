package disruption

import (
	"bytes"
	"regexp"
)

// linkFile is what udev takes the names of network interfaces from when a device appears: of one that is there a file changes nothing until
// the next boot, which may bring it up under a name by which no other file knows it.
var linkFile = regexp.MustCompile(`^/etc/systemd/network/[^/]+\.link(\.d/[^/]+\.conf)?$`)

// udevRules is the directory of the administrator's rules of udev, and namesDevice is a rule that gives an interface its name.
const udevRules = "/etc/udev/rules.d"

var namesDevice = regexp.MustCompile(`^[^#]*\bNAME\s*:?=\s*"`)

// renamesLinks reports whether a change of rules of udev is one of the lines that name interfaces, which is in effect at the next boot.
func renamesLinks(before, after []byte) bool {
	return !bytes.Equal(namingLines(before), namingLines(after))
}

func namingLines(rules []byte) []byte {
	var all [][]byte
	for line := range bytes.Lines(bytes.ReplaceAll(rules, []byte("\\\n"), nil)) {
		if namesDevice.Match(line) {
			all = append(all, bytes.TrimSpace(line))
		}
	}
	return bytes.Join(all, []byte("\n"))
}

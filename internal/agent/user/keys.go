package user

import (
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strings"
)

// The lines around the keys that are refit's in a file of authorized keys, and what they tell its reader.
const (
	blockBegin = "# BEGIN refit"
	blockAbout = "# refit manages the keys up to the end of this block by the specs of the Machine: edits of them are lost."
	blockEnd   = "# END refit"
)

// key is a line of authorized_keys. Its comment does not count.
type key struct {
	options string
	// id is the type and the key, or the line as it is if it is not in the form of a key.
	id string
}

// parseKey reads a line. What is no key has no options and the whole line for id, and is not ok.
func parseKey(line string) (k key, ok bool) {
	line = strings.TrimSpace(line)
	if id, ok := keyAt(line); ok {
		return key{id: id}, true
	}
	options, rest := cutOptions(line)
	if id, ok := keyAt(strings.TrimSpace(rest)); ok && options != "" && !strings.HasPrefix(line, "#") {
		return key{options: options, id: id}, true
	}
	return key{id: line}, false
}

// keyAt reads "type base64 comment". The key names its own type, which tells it from options.
func keyAt(s string) (id string, ok bool) {
	columns := strings.Fields(s)
	if len(columns) < 2 {
		return "", false
	}
	blob, err := base64.StdEncoding.DecodeString(columns[1])
	if err != nil || len(blob) < 4 {
		return "", false
	}
	size := uint64(binary.BigEndian.Uint32(blob))
	if size == 0 || size > uint64(len(blob)-4) || string(blob[4:4+size]) != columns[0] {
		return "", false
	}
	return columns[0] + " " + columns[1], true
}

// cutOptions cuts at the first blank that is not between quotes, as sshd does.
func cutOptions(s string) (options, rest string) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s) && s[i+1] == '"':
			i++
		case s[i] == '"':
			quoted = !quoted
		case !quoted && (s[i] == ' ' || s[i] == '\t'):
			return s[:i], s[i:]
		}
	}
	return "", s
}

func parseKeys(lines []string) []key {
	var keys []key
	for _, line := range lines {
		if k, ok := parseKey(line); ok || k.id != "" && !strings.HasPrefix(k.id, "#") {
			keys = append(keys, k)
		}
	}
	return keys
}

// keysText is a file of authorized keys: the lines that are refit's, and those of others.
type keysText struct {
	others []string // with their ends
	block  []string
	// at is how many of the others' lines are before the block, or -1 if there is none.
	at int
}

// readKeys splits a file. A block that has no end is none: what follows may be somebody else's. Its marker is dropped, so that it
// never comes to be one with the end of another block.
func readKeys(text string) keysText {
	t := keysText{at: -1}
	lines := slices.Collect(strings.Lines(text))
	for i := 0; i < len(lines); i++ {
		end := -1
		if isMarker(lines[i], blockBegin) {
			end = endOfBlock(lines, i+1)
		}
		if end < 0 {
			if !isMarker(lines[i], blockBegin) && !isMarker(lines[i], blockEnd) {
				t.others = append(t.others, lines[i])
			}
			continue
		}
		if t.at < 0 {
			t.at = len(t.others)
		}
		t.block = append(t.block, lines[i+1:end]...)
		i = end
	}
	return t
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

func isMarker(line, marker string) bool { return strings.TrimRight(line, " \t\r\n") == marker }

// editKeys returns the file with the keys that are wanted in refit's block. Lines of others with one of these keys, or with one
// that the specs had before, were laid down by bootstrap and are taken over: a key that is revoked must be gone. All other
// lines stay as they are.
func editKeys(text string, want, gone []string) string {
	t := readKeys(text)
	taken := ids(parseKeys(slices.Concat(want, gone)))
	var out strings.Builder
	block := blockOf(want)
	for i, line := range t.others {
		if i == t.at {
			out.WriteString(block)
		}
		if k, _ := parseKey(line); !taken[k.id] {
			out.WriteString(line)
		}
	}
	if t.at < 0 || t.at == len(t.others) {
		if so := out.String(); block != "" && so != "" && !strings.HasSuffix(so, "\n") {
			out.WriteString("\n")
		}
		out.WriteString(block)
	}
	return out.String()
}

func blockOf(want []string) string {
	if len(want) == 0 {
		return ""
	}
	lines := []string{blockBegin, blockAbout}
	for _, k := range want {
		lines = append(lines, strings.TrimSpace(k))
	}
	return strings.Join(append(lines, blockEnd), "\n") + "\n"
}

func ids(keys []key) map[string]bool {
	m := map[string]bool{}
	for _, k := range keys {
		m[k.id] = true
	}
	return m
}

// showsKeys reports whether the file grants what is wanted: each wanted key with its options and nothing else for that key, none in
// the block that is not wanted, and none that is gone.
func showsKeys(text string, want, gone []string) bool {
	t := readKeys(text)
	wanted, others, block := parseKeys(want), parseKeys(t.others), parseKeys(t.block)
	there := slices.Concat(others, block)
	wantedIDs, goneIDs := ids(wanted), ids(parseKeys(gone))
	for _, k := range wanted {
		if !slices.Contains(there, k) {
			return false
		}
	}
	for _, k := range there {
		if wantedIDs[k.id] && !slices.Contains(wanted, k) || goneIDs[k.id] && !wantedIDs[k.id] {
			return false
		}
	}
	return !slices.ContainsFunc(block, func(k key) bool { return !wantedIDs[k.id] })
}

// keysOf returns all keys that a file grants something.
func keysOf(text string) []key {
	var keys []key
	for line := range strings.Lines(text) {
		if k, ok := parseKey(line); ok {
			keys = append(keys, k)
		}
	}
	return keys
}

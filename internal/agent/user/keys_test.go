package user

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseKey(t *testing.T) {
	id := strings.TrimSuffix(keyBob, " bob")
	for name, tc := range map[string]struct {
		line string
		want key
		ok   bool
	}{
		"a key":                     {keyBob, key{id: id}, true},
		"with another comment":      {id + " bob's other laptop", key{id: id}, true},
		"with none, between blanks": {" \t" + strings.ReplaceAll(id, " ", "\t ") + "\r", key{id: id}, true},
		"with options":              {`no-pty,command="echo \"hi there\"" ` + keyBob, key{options: `no-pty,command="echo \"hi there\""`, id: id}, true},
		"of another type":           {strings.Replace(keyBob, "ssh-ed25519", "ssh-rsa", 1), key{id: strings.Replace(keyBob, "ssh-ed25519", "ssh-rsa", 1)}, false},
		"cut off":                   {"ssh-ed25519 AAAAC3NzaC1lZDI1", key{id: "ssh-ed25519 AAAAC3NzaC1lZDI1"}, false},
		"commented":                 {"#" + keyBob, key{id: "#" + keyBob}, false},
		"commented, with a blank":   {"# " + keyBob, key{id: "# " + keyBob}, false},
		"nothing":                   {"", key{}, false},
		"a quote without an end":    {`command="x ` + keyBob, key{id: `command="x ` + keyBob}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := parseKey(tc.line)
			require.Equal(t, tc.want, got)
			require.Equal(t, tc.ok, ok)
		})
	}
}

// keyXMSS is of a type that sshd can be built to take, and golang.org/x/crypto/ssh does not parse: where it is revoked it has to go all the same.
const keyXMSS = "ssh-xmss@openssh.com AAAAFHNzaC14bXNzQG9wZW5zc2guY29tAAAAA2FiYw=="

func TestEditKeys(t *testing.T) {
	block := func(keys ...string) string { return blockOf(keys) }
	for name, tc := range map[string]struct {
		text       string
		want, gone []string
		then       string
	}{
		"into nothing":                        {want: []string{keyBob}, then: block(keyBob)},
		"after a line without an end":         {text: "# mine", want: []string{keyBob}, then: "# mine\n" + block(keyBob)},
		"where the block was":                 {text: "a\n" + block(keyAlice) + "b\n", want: []string{keyBob}, then: "a\n" + block(keyBob) + "b\n"},
		"no keys, no block":                   {text: "a\n" + block(keyAlice) + "b", then: "a\nb"},
		"no keys, and there was no block":     {text: "a\nb", then: "a\nb"},
		"two blocks become one":               {text: block(keyAlice) + "a\n" + block(keyBob), want: []string{keyBob}, then: block(keyBob) + "a\n"},
		"what bootstrap laid down":            {text: keyAlice + "\nx\n" + keyBob + "\n", want: []string{keyBob}, gone: []string{keyAlice}, then: "x\n" + block(keyBob)},
		"of a type that Go's library refuses": {text: "no-pty " + keyXMSS + " old\n", gone: []string{keyXMSS + " new"}, then: ""},
		"with other options":                  {text: `no-pty ` + keyBob + "\n", want: []string{keyBob}, then: block(keyBob)},
		"a block without an end":              {text: blockBegin + "\n" + keyAlice + "\n", want: []string{keyBob}, then: keyAlice + "\n" + block(keyBob)},
		"an end without a block":              {text: blockEnd + "\n" + keyAlice + "\n", then: keyAlice + "\n"},
		"a block within one without an end":   {text: blockBegin + "\n" + keyAlice + "\n" + block(keyBob), then: keyAlice + "\n"},
		"ends of lines of another system":     {text: blockBegin + "\r\n" + keyAlice + "\r\n" + blockEnd + "\r\nx\r\n", then: "x\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.then, editKeys(tc.text, tc.want, tc.gone))
		})
	}
}

var allKeys = []string{keyRefit, keyAlice, keyAlice2, keyBob}

func FuzzEditKeys(f *testing.F) {
	f.Add("", uint8(1), uint8(0))
	f.Add(keyAlice+"\n# mine\n\n"+blockOf([]string{keyBob})+"x", uint8(3), uint8(8))
	f.Add(blockBegin+"\n"+blockBegin+"\n"+keyBob+"\n"+blockEnd+"\n"+blockEnd, uint8(0), uint8(0))
	f.Add(`command="a b" `+keyRefit+"\r\n", uint8(2), uint8(1))
	f.Fuzz(func(t *testing.T, text string, wanted, gone uint8) {
		want, revoked := pick(wanted), pick(gone)
		once := editKeys(text, want, revoked)
		require.Equal(t, once, editKeys(once, want, revoked), "the second time changes nothing")
		require.True(t, showsKeys(once, want, revoked))
		require.Equal(t, foreign(text, want, revoked), foreign(once, want, revoked), "no line of others is lost, none is moved")
		for _, k := range keysOf(once) {
			if slices.Contains(parseKeys(revoked), k) {
				require.Contains(t, parseKeys(want), k, "a key that is gone is gone")
			}
		}
	})
}

func pick(bits uint8) []string {
	var out []string
	for i, k := range allKeys {
		if bits&(1<<i) != 0 {
			out = append(out, k)
		}
	}
	return out
}

// foreign returns the lines that are neither refit's nor of keys that the specs name, as a reader of the file would see it.
func foreign(text string, want, gone []string) []string {
	var out []string
	lines := slices.Collect(strings.Lines(text))
	for i := 0; i < len(lines); i++ {
		line := strings.TrimRight(lines[i], "\n")
		switch strings.TrimRight(line, " \t\r") {
		case blockBegin:
			for j := i + 1; j < len(lines); j++ {
				if isMarker(lines[j], blockBegin) {
					break
				}
				if isMarker(lines[j], blockEnd) {
					i = j
					break
				}
			}
			continue
		case blockEnd:
			continue
		}
		if k, _ := parseKey(line); !ids(parseKeys(slices.Concat(want, gone)))[k.id] {
			out = append(out, line)
		}
	}
	return out
}

func FuzzSudoers(f *testing.F) {
	f.Add(cloudInitRules)
	f.Add("bob ALL=(ALL) \\\n ALL\ncarol x\\\nbob y\n")
	f.Fuzz(func(t *testing.T, text string) {
		once := withoutRules(text, "bob")
		require.Equal(t, once, withoutRules(once, "bob"))
		require.Empty(t, rulesOf(once, "bob"))
		if !strings.Contains(text, "bob") {
			require.Equal(t, text, once)
		}
	})
}

package docs

import (
	"regexp"
	"slices"
	"strings"
)

// command is what a line of a block runs: a program, and the words behind it.
type command struct {
	text    string
	program string
	words   []string
}

// subcommand returns the first word that is no flag, nor the value of one that many commands have in front.
func (c command) subcommand() string {
	for i := 0; i < len(c.words); i++ {
		switch word := c.words[i]; {
		case slices.Contains([]string{"-n", "--namespace", "--kubeconfig"}, word):
			i++
		case !strings.HasPrefix(word, "-"):
			return word
		}
	}
	return ""
}

// flags returns the names of its flags, up to what ends them.
func (c command) flags() []string {
	var all []string
	for _, word := range c.words {
		if word == "--" {
			break
		}
		if strings.HasPrefix(word, "-") && word != "-" {
			all = append(all, flagOf(word))
		}
	}
	return all
}

// short are the flags that have a short name with the same meaning in all programs of the pages.
var short = map[string]string{"--namespace": "-n", "--output": "-o", "--filename": "-f"}

// flagOf returns the name of a flag without its value, its short one if it has one.
func flagOf(word string) string {
	name, _, _ := strings.Cut(word, "=")
	if s, is := short[name]; is {
		return s
	}
	return name
}

var (
	heredoc = regexp.MustCompile(`<<-?'?(\w+)'?`)
	assigns = regexp.MustCompile(`^\w+=`)
)

// commands returns what a block runs. It knows of a shell's language what the pages have: comments, quotes, lines that go on, pipes, lists, and documents in
// place.
func commands(block string) []command {
	var all []command
	lines := strings.Split(strings.ReplaceAll(block, "\\\n", " "), "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		for strings.Count(line, "'")%2 == 1 && i+1 < len(lines) { // a quote goes on
			i++
			line += " " + lines[i]
		}
		for _, words := range split(line) {
			if len(words) > 0 {
				all = append(all, command{strings.Join(words, " "), words[0], words[1:]})
			}
		}
		if m := heredoc.FindStringSubmatch(line); m != nil {
			i++
			for i < len(lines) && strings.TrimSpace(lines[i]) != m[1] {
				i++
			}
		}
	}
	return all
}

// split returns the words of each command of a line.
func split(line string) [][]string {
	var all [][]string
	var words []string
	word, quote, inWord := "", rune(0), false
	endWord := func() {
		if inWord && (len(words) > 0 || !assigns.MatchString(word)) {
			words = append(words, word)
		}
		word, inWord = "", false
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word += string(r)
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case r == '#' && !inWord:
			return append(all, words)
		case r == ' ' || r == '\t':
			endWord()
		case r == '|' || r == '&' || r == ';':
			endWord()
			all, words = append(all, words), nil
		default:
			word, inWord = word+string(r), true
		}
	}
	endWord()
	return append(all, words)
}

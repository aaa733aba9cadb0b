package version

import (
	"regexp"
	"strings"
)

// redacted stands for what was left out.
const redacted = "[redacted]"

// secrets are forms in which programs write secrets, with what is written in their place.
var secrets = []struct {
	form *regexp.Regexp
	by   string
}{
	// scheme://user:password@host
	{regexp.MustCompile(`://[^/\s]*@`), "://" + redacted + "@"},
	// Authorization: Bearer …
	{regexp.MustCompile(`(?i)\b((?:(?:bearer|basic)\s+)+)[^\s"']+`), "$1" + redacted},
	// --token=…, "password": "…", clientSecret: …
	{
		regexp.MustCompile(`(?i)((?:password|passwd|token|secret|api[-_]?key|private[-_]?key|credentials?)[\w-]*\\?["']?\s*[:=]\s*)` +
			`(?:\\?"[^"]*"?|'[^']*'?|\S+)`),
		"$1" + redacted,
	},
	// a bootstrap token of kubeadm's
	{regexp.MustCompile(`(?i)\b[a-z0-9]{6}\.[a-z0-9]{16}\b`), redacted},
	// a JSON web token
	{regexp.MustCompile(`\beyJ[\w-]*(?:\.[\w-]*)+`), redacted},
}

// longWord matches what may be a key or a certificate in base64 or hex. A path is one too.
var longWord = regexp.MustCompile(`[A-Za-z0-9+/_=-]{40,}`)

// longPart is the same for a part of a path.
var longPart = regexp.MustCompile(`[A-Za-z0-9+_=-]{40,}`)

// redact leaves out of a text what looks like a secret. It rather takes too much.
func redact(text string) string {
	for _, s := range secrets {
		text = s.form.ReplaceAllString(text, s.by)
	}
	return longWord.ReplaceAllStringFunc(text, func(word string) string {
		if strings.HasPrefix(word, "/") {
			return longPart.ReplaceAllString(word, redacted)
		}
		return redacted
	})
}

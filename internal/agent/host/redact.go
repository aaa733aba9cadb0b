package host

import (
	"regexp"
	"strings"
	"sync"
)

// redacted stands for what was left out.
const redacted = "[redacted]"

// secretForms are forms in which programs write secrets.
type secretForms struct {
	// known are those that are recognized, with what is written in their place.
	known []knownForm
	// longWord matches what may be a key or a certificate in base64 or hex. A path is one too. longPart is the same for a part of a path.
	longWord, longPart *regexp.Regexp
}

type knownForm struct {
	*regexp.Regexp
	by string
}

// secrets are compiled when there is a text to redact: the agent is a process for each request, and few of them have one.
var secrets = sync.OnceValue(func() secretForms {
	form := func(form, by string) knownForm { return knownForm{regexp.MustCompile(form), by} }
	return secretForms{
		known: []knownForm{
			// a private key, also one that is cut off
			form(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)`, redacted),
			// scheme://user:password@host
			form(`://[^/\s]*@`, "://"+redacted+"@"),
			// Authorization: Bearer …
			form(`(?i)\b((?:(?:bearer|basic)\s+)+)[^\s"']+`, "$1"+redacted),
			// --token=…, "password": "…", clientSecret: …
			form(`(?i)((?:password|passwd|token|secret|api[-_]?key|private[-_]?key|credentials?)[\w-]*\\?["']?\s*[:=]\s*)`+
				`(?:\\?"[^"]*"?|'[^']*'?|\S+)`, "$1"+redacted),
			// a bootstrap token of kubeadm's
			form(`(?i)\b[a-z0-9]{6}\.[a-z0-9]{16}\b`, redacted),
			// a JSON web token
			form(`\beyJ[\w-]*(?:\.[\w-]*)+`, redacted),
		},
		longWord: regexp.MustCompile(`[A-Za-z0-9+/_=-]{40,}`),
		longPart: regexp.MustCompile(`[A-Za-z0-9+_=-]{40,}`),
	}
})

// Redact leaves out of a text what looks like a secret. It rather takes too much.
func Redact(text string) string {
	forms := secrets()
	for _, form := range forms.known {
		text = form.ReplaceAllString(text, form.by)
	}
	return forms.longWord.ReplaceAllStringFunc(text, func(word string) string {
		if strings.HasPrefix(word, "/") {
			return forms.longPart.ReplaceAllString(word, redacted)
		}
		return redacted
	})
}

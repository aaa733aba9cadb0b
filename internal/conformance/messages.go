package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/capi-refit/refit/internal/fieldset"
)

const (
	// maxMessage is the longest message, in bytes.
	maxMessage = 32_000
	// manyFiles have paths that are longer than maxMessage together.
	manyFiles = 200
)

// secrets are what the requests have that no message may.
var secrets = []struct{ what, text string }{
	{"a bootstrap token", "c0nf0r.r3f1tc4n4rytoken"},
	{"the content of a file", "refit-canary-content-7d1f"},
	{"a password", "refit-canary-password-5b2e"},
}

// probeMessages sends what an extension may be tempted to repeat: secrets in a request that is right and in two that are not, control characters in
// a path, and more paths than a message can have.
func (r *run) probeMessages(ctx context.Context) error {
	var errs []error
	for _, t := range r.firsts() {
		for _, change := range []func(q Request) (Request, error){
			Request.withSecrets, Request.withControlCharacters, Request.withManyFiles,
		} {
			q, err := change(t.request)
			errs = append(errs, err)
			r.ask(ctx, t.handler, q)
		}
		q, err := t.request.withSecretsInPlaceOfLists()
		errs = append(errs, err)
		r.sendHostile(ctx, t.handler, q, r.caller.contentType) // API servers let nobody store that
	}
	return errors.Join(errs...)
}

func file(path, content string) map[string]any {
	return map[string]any{"path": path, "content": content}
}

// bootstrap returns what may change of the bootstrap configs of both sides.
func (r Request) bootstrap(s sides) (current, desired map[string]any) {
	m := memberOf(r.hook, fieldset.BootstrapConfig)
	return specOf(s.current, m), specOf(s.desired, m)
}

func (r Request) withSecrets() (Request, error) {
	return r.edit("with secrets", func(s sides) {
		current, desired := r.bootstrap(s)
		for _, spec := range []map[string]any{current, desired} {
			descend(spec, "joinConfiguration", "discovery", "bootstrapToken")["token"] = secrets[0].text
		}
		desired["files"] = []any{file("/etc/conformance", secrets[1].text)}
		desired["users"] = []any{map[string]any{"name": "conformance", "passwd": secrets[2].text}}
	})
}

func (r Request) withSecretsInPlaceOfLists() (Request, error) {
	return r.edit("with secrets where lists should be", func(s sides) {
		_, desired := r.bootstrap(s)
		descend(desired, "joinConfiguration", "discovery")["bootstrapToken"] = secrets[0].text
		desired["files"] = file("/etc/conformance", secrets[1].text)
		desired["users"] = secrets[2].text
	})
}

func (r Request) withControlCharacters() (Request, error) {
	return r.edit("with a control character in a path", func(s sides) {
		_, desired := r.bootstrap(s)
		desired["files"] = []any{file("/etc/\x1b[31mconformance", "")}
	})
}

func (r Request) withManyFiles() (Request, error) {
	return r.edit(fmt.Sprintf("with %d files", manyFiles), func(s sides) {
		_, desired := r.bootstrap(s)
		var files []any
		for i := range manyFiles {
			files = append(files, file(fmt.Sprintf("/etc/conformance/%s/%d", strings.Repeat("x", 300), i), ""))
		}
		desired["files"] = files
	})
}

// spoken has each text looked at that Cluster API would show of an answer.
func (r *run) spoken(v *verdict, look func(x *exchange, text string)) {
	for _, all := range [][]*exchange{r.asked, r.hostile} {
		for _, x := range all {
			if text := x.spoken(); text != "" {
				v.saw("messages")
				look(x, text)
			}
		}
	}
	if r.found != nil && r.found.Message != "" {
		v.saw("messages")
		look(&exchange{handler: &handler{}, request: Request{name: "discovery"}}, r.found.Message)
	}
	v.skip("there were no messages")
}

func checkSecrets(_ context.Context, r *run, v *verdict) {
	r.spoken(v, func(x *exchange, text string) {
		for _, s := range secrets {
			if strings.Contains(text, s.text) {
				v.broken("%s: the message has %s in it", x, s.what)
			}
		}
	})
}

func checkPrintable(_ context.Context, r *run, v *verdict) {
	r.spoken(v, func(x *exchange, text string) {
		control := strings.ContainsFunc(text, func(c rune) bool { return unicode.IsControl(c) && c != '\n' && c != '\t' })
		if control || !utf8.ValidString(text) {
			v.broken("%s: the message is %s", x, quote(text))
		}
	})
}

func checkLength(_ context.Context, r *run, v *verdict) {
	r.spoken(v, func(x *exchange, text string) {
		if len(text) > maxMessage {
			v.broken("%s: the message has %d bytes", x, len(text))
		}
	})
}

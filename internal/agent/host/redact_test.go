package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRedact(t *testing.T) {
	long := strings.Repeat("aB3", 15)
	for text, want := range map[string]string{
		"":                      "",
		"failed to run Kubelet": "failed to run Kubelet",
		"token abcdef.0123456789abcdef is not valid":                                      "token [redacted] is not valid",
		"Authorization: Bearer abc.def":                                                   "Authorization: Bearer [redacted]",
		"authorization: basic dXNlcjpwYXNz next":                                          "authorization: basic [redacted] next",
		"get https://user:pass@host:6443/api?x=1 failed":                                  "get https://[redacted]@host:6443/api?x=1 failed",
		"proxy http://user:p@ss@proxy:3128/":                                              "proxy http://[redacted]@proxy:3128/",
		"password=hunter2 user=a":                                                         "password=[redacted] user=a",
		`{"password": "hunter 2", "user": "a"}`:                                           `{"password": [redacted], "user": "a"}`,
		`err="{\"password\":\"hunter2\"}"`:                                                `err="{\"password\":[redacted]}"`,
		"clientSecret: s3cr3t, id: 1":                                                     "clientSecret: [redacted] id: 1",
		"--bootstrap-token=abc --v=2":                                                     "--bootstrap-token=[redacted] --v=2",
		"API_KEY='a b' next":                                                              "API_KEY=[redacted] next",
		"jwt eyJhbGciOi.eyJzdWIi.c2ln end":                                                "jwt [redacted] end",
		"key " + long + "/" + long + "== end":                                             "key [redacted] end",
		"no such file /var/lib/kubelet/pods/4a0d8d4e-1111-2222-3333-444455556666/volumes": "no such file /var/lib/kubelet/pods/4a0d8d4e-1111-2222-3333-444455556666/volumes",
		"in /run/secrets/" + long + "/x":                                                  "in /run/secrets/[redacted]/x",
		"-----BEGIN EC PRIVATE KEY-----\nMHcC\nAQ==\n-----END EC PRIVATE KEY-----\nend":   "[redacted]\nend",
		"x -----BEGIN PRIVATE KEY-----\nMHcC\nAQ":                                         "x [redacted]",
		"basic Bearer abc end":                                                            "basic Bearer [redacted] end",
	} {
		require.Equal(t, want, Redact(text), text)
	}
}

func TestWhatProgramsSayIsRedacted(t *testing.T) {
	r := Root{Dir: t.TempDir()}
	program := filepath.Join(r.Dir, "usr/bin/tool")
	require.NoError(t, os.MkdirAll(filepath.Dir(program), 0o755))
	const script = `#!/bin/sh
printf '%s\n' '-----BEGIN PRIVATE KEY-----' MHcCAQEEIF Zm9vYmFy '-----END PRIVATE KEY-----' 'proxy http://u:hunter2@proxy:3128 refuses' 'token abcdef.0123456789abcdef' >&2
exit 3`
	require.NoError(t, os.WriteFile(program, []byte(script), 0o755))
	_, err := r.RunTelling(t.Context(), Command{Name: "tool"})
	require.EqualError(t, err, "tool: exit status 3: [redacted]; proxy http://[redacted]@proxy:3128 refuses; token [redacted]")
}

func FuzzRedact(f *testing.F) {
	for _, text := range []string{"", "token abcdef.0123456789abcdef", "https://a:b@c/", "password=\"x y\"", "Bearer x", strings.Repeat("a", 99)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := Redact(text)
		for word := range strings.FieldsFuncSeq(got, func(r rune) bool { return !strings.ContainsRune(base64Runes, r) }) {
			require.Less(t, len(word), 40, "a long word is left of %q", text)
		}

		// A secret is not shown in any of the forms, whatever is around it.
		const secret = "S3cr3tS3cr3t"
		for _, form := range []string{"\npassword=" + secret + "\n", "\nBearer " + secret + "\n", "\nhttps://user:" + secret + "@host\n", "\nabcdef.S3cr3tS3cr3tS3cr\n"} {
			if !strings.Contains(text, secret) {
				require.NotContains(t, Redact(text+form+text), secret, "%q", text+form)
			}
		}
	})
}

const base64Runes = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+_=-"

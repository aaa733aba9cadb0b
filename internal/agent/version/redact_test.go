package version

import (
	"strings"
	"testing"
	"unicode/utf8"

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
		"basic Bearer abc end":                                                            "basic Bearer [redacted] end",
	} {
		require.Equal(t, want, redact(text), text)
	}
}

func TestBounded(t *testing.T) {
	require.Equal(t, "a; b", bounded("a\r\nb\n"))
	got := bounded(strings.Repeat("ä", 400))
	require.LessOrEqual(t, len(got), maxTold)
	require.True(t, utf8.ValidString(got))
	require.True(t, strings.HasSuffix(got, "ä"))
}

func FuzzRedact(f *testing.F) {
	for _, text := range []string{"", "token abcdef.0123456789abcdef", "https://a:b@c/", "password=\"x y\"", "Bearer x", strings.Repeat("a", 99)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := redact(text)
		for word := range strings.FieldsFuncSeq(got, func(r rune) bool { return !strings.ContainsRune(base64Runes, r) }) {
			require.Less(t, len(word), 40, "a long word is left of %q", text)
		}
		require.LessOrEqual(t, len(bounded(got)), maxTold)
		require.True(t, utf8.ValidString(bounded(got)))

		// A secret is not shown in any of the forms, whatever is around it.
		const secret = "S3cr3tS3cr3t"
		for _, form := range []string{"\npassword=" + secret + "\n", "\nBearer " + secret + "\n", "\nhttps://user:" + secret + "@host\n", "\nabcdef.S3cr3tS3cr3tS3cr\n"} {
			if !strings.Contains(text, secret) {
				require.NotContains(t, redact(text+form+text), secret, "%q", text+form)
			}
		}
	})
}

const base64Runes = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+_=-"

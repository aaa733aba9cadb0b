package repository

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckAPT(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"one line":                  {"deb https://pkgs.example.org/v1.36/deb/ /", ""},
		"with options":              {"deb [arch=amd64,arm64 signed-by=/var/lib/refit/repository.asc lang+=en by-hash=force pdiffs=no] http://m/ stable main contrib\n", ""},
		"an option before the ]":    {"deb [ signed-by=/k ] http://m/ ./", ""},
		"tabs, comments, two lines": {"# a mirror\n\ndeb\t[arch=amd64]\thttp://m/\t/\ndeb-src http://m/ /", ""},
		"a directory":               {"deb file:/srv/mirror ./", ""},
		"an IPv6 mirror":            {"deb [arch=amd64] http://[fd00::1]:8080/deb/ /", ""},
		"a list of mirrors":         {"deb mirror+https://m/list stable main", ""},
		"deb822":                    {"Types: deb\nURIs: https://m/deb/\nSuites: /\nSigned-By: /k", ""},
		"deb822, folded":            {"# c\nTypes: deb deb-src\nURIs:\n http://a/\n\thttp://b/\nSuites: x\n y\nComponents: main\nArchitectures-Add: arm64\nEnabled: yes\nX-Repolib-Name: Mirror\n\nTypes: deb\nURIs: http://c/\nSuites: /", ""},
		"deb822 with its key":       {"Types: deb\nURIs: http://a/\nSuites: /\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mQINBF+x=\n -----END PGP PUBLIC KEY BLOCK-----", ""},

		"nothing":                     {"# nothing", "names no repository"},
		"something else":              {"https://m/ /", "begins neither with deb"},
		"rpm":                         {"rpm http://m/ /", "begins neither with deb"},
		"no suite":                    {"deb http://m/", "lacks a URI or a suite"},
		"trusted":                     {"deb [trusted=yes] http://m/ /", "need no signature"},
		"trusted, added":              {"deb [trusted+=yes] http://m/ /", "need no signature"},
		"not trusted":                 {"deb [trusted=no] http://m/ /", "leave it out"},
		"weak":                        {"deb [allow-weak=yes] http://m/ /", "need no signature"},
		"stale":                       {"deb [check-valid-until=no] http://m/ /", `option "check-valid-until" is not known`},
		"adding to what is no list":   {"deb [signed-by+=/k] http://m/ /", "is no list"},
		"an option without a value":   {"deb [arch] http://m/ /", "option arch has a value that is not understood"},
		"an encoded value":            {"deb [arch=amd%364] http://m/ /", "not understood"},
		"options twice":               {"deb [arch=amd64] [arch=amd64] http://m/ /", "URI"},
		"options that don't end":      {"deb [arch=amd64 http://m/ /", "don't end"},
		"no space behind them":        {"deb [arch=amd64]http://m/ /", "don't end"},
		"options behind the suite":    {"deb http://m/ / [arch=amd64]", "neither a suite nor a component"},
		"a comment behind it":         {"deb http://m/ / # it", "line of its own"},
		"the second line":             {"deb http://m/ /\ndeb [x=y] http://m/ /", `line 2: option "x" is not known`},
		"a carriage return":           {"deb http://m/ /\r\n", "character '\\r'"},
		"no ASCII":                    {"deb http://m/ /\u2028", "plain ASCII"},
		"a program":                   {"deb ssh://m/ /", `scheme "ssh"`},
		"a medium":                    {"deb cdrom:[Debian]/ stable main", "URI"},
		"no scheme":                   {"deb /srv /", "scheme"},
		"a password":                  {"deb https://me:w%zzrd@m/ /", "a URI is none"},
		"a field that is not known":   {"Types: deb\nAllow-Everything: yes", `option "allow-everything" is not known`},
		"a field, folded":             {"Types: deb\nTrusted:\n yes", "need no signature"},
		"a field in capitals":         {"Types: deb\nTRUSTED: yes", "need no signature"},
		"a field and a space":         {"Types: deb\nTrusted : yes", "need no signature"},
		"a field that is added":       {"Types: deb\nTrusted-Add: yes", "need no signature"},
		"a field twice":               {"Types: deb\nURIs: http://a/\nuris: http://b/", "twice"},
		"one line within deb822":      {"Types: deb-src\ndeb [trusted=yes] http://m/ /", "no field of the form"},
		"a line that continues none":  {"Types: deb\n\n folded", "continues nothing"},
		"another type":                {"Types: rpm", `type "rpm"`},
		"a program, folded":           {"Types: deb\nURIs:\n rsh://m/", `scheme "rsh"`},
		"a suite with an option":      {"Types: deb\nSuites: [trusted=yes]", "neither a suite"},
		"a line without a colon":      {"Types: deb\nTrusted", "no field of the form"},
		"a URI of nothing":            {"deb http:// /", "neither a host nor a path"},
		"what adds to what is no set": {"Types: deb\nSigned-By-Add: /k", "is no list"},
	} {
		t.Run(name, func(t *testing.T) { told(t, CheckAPT(tc.text), tc.want) })
	}
}

func TestCheckDNF(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"a repository":      {"[kubernetes]\nname=Kubernetes\nbaseurl=https://m/{minor}/rpm/\ngpgcheck=1\nrepo_gpgcheck = 0\ngpgkey=file:///k\nexclude=kubelet", ""},
		"a head alone":      {"[k]", ""},
		"two":               {"# c\n; c\n[a]\nname=a=b\nbaseurl=http://a/,\n http://b/\n\n[b]\nmetalink=https://m/metalink?repo=k&arch=$basearch\nsslverify=True", ""},
		"a key by https":    {"[k]\ngpgkey=https://m/key.asc", ""},
		"in small and tall": {"[k]\nGPGCheck=Yes", ""},

		"nothing":                {"# nothing", "names no repository"},
		"no verification":        {"[k]\ngpgcheck=0", "option gpgcheck: it can only be 1"},
		"in other words":         {"[k]\nGpgCheck = No", "option gpgcheck: it can only be 1"},
		"in a later word":        {"[k]\npkg_gpgcheck=off", "option pkg_gpgcheck"},
		"no verification of TLS": {"[k]\nsslverify=false", "option sslverify: it can only be 1"},
		"by nothing":             {"[k]\nsslverify=", "option sslverify"},
		"before a head":          {"gpgcheck=1\n[k]", "before the head"},
		"the main section":       {"[main]\nplugins=1", "head of a repository"},
		"another option":         {"[k]\nlocalpkg_gpgcheck=1", `option "localpkg_gpgcheck" is not known`},
		"a login":                {"[k]\nusername=me", `option "username" is not known`},
		"a colon":                {"[k]\ngpgcheck:0", "no option of the form"},
		"a key by http":          {"[k]\ngpgkey=http://m/key.asc", `scheme "http"`},
		"a program":              {"[k]\nbaseurl=media://x/", `scheme "media"`},
		"a folded one":           {"[k]\nbaseurl=http://a/\n ssh://b/", `scheme "ssh"`},
		"an option in a fold":    {"[k]\nname=k\n gpgcheck=0", "continues no list"},
		"a fold of nothing":      {"[k]\n\n http://a/", "continues no list"},
		"a carriage return":      {"[k]\r\ngpgcheck=0", "plain ASCII"},
	} {
		t.Run(name, func(t *testing.T) { told(t, CheckDNF(tc.text), tc.want) })
	}
}

func told(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" {
		require.NoError(t, err)
		return
	}
	require.ErrorContains(t, err, want)
	require.NotContains(t, err.Error(), "w%zzrd")
}

func FuzzCheckAPT(f *testing.F) {
	f.Add("deb [signed-by=/k] http://m/ /")
	f.Add("Types: deb\nURIs: http://m/\nSuites: /\nTrusted: yes")
	f.Fuzz(func(t *testing.T, text string) {
		if CheckAPT(text) != nil {
			return
		}
		for line := range strings.Lines(strings.ToLower(text)) {
			words := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t[]:=+", r) })
			if len(words) > 0 && !strings.HasPrefix(line, "#") && line[0] != ' ' && line[0] != '\t' {
				require.NotEqual(t, "trusted", strings.TrimSpace(words[0]), "%q", text)
			}
			if open := strings.Index(line, "["); open >= 0 && strings.HasPrefix(line, "deb") && strings.Contains(line, "[trusted") {
				t.Fatalf("%q", text)
			}
		}
	})
}

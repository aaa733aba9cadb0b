package docs

import (
	"go/parser"
	"go/token"
	"testing"

	"github.com/stretchr/testify/require"
)

// example is a package with a test that runs commands.
const example = `package p
var table = []string{"-o"}
func TestIt() { run(Kubectl, "apply", "-k", "config") ; run("helm", "install", "--wait=true") }
func refit(args ...string) { exec("bin/refit", append(args, "-n", "ns")...) }
func pauses() { refit("pause", "--cluster", "c") } // refit resume
func other() { set("--timeout", "delete") }`

func exampleSources(t *testing.T) func(string) map[string][]function {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), "p.go", example, parser.SkipObjectResolution|parser.ParseComments)
	require.NoError(t, err)
	var functions []function
	for _, d := range parsed.Decls {
		functions = append(functions, wordsOf(d))
	}
	return func(who string) map[string][]function {
		if who != "TestIt" && who != "make it" && who != "TestOverlaysAddUp" {
			return nil
		}
		return map[string][]function{"p": functions}
	}
}

func TestWhatIsWrongAboveABlockIsFound(t *testing.T) {
	for name, tc := range map[string]struct{ above, text, want string }{
		"a test":                        {"<!-- run: TestIt -->", "kubectl apply -k config   # all of it", ""},
		"a target":                      {"<!-- run: make it -->", "kubectl apply -k config", ""},
		"a flag with a value":           {"<!-- run: TestIt -->", "helm install x --wait=false", ""},
		"a flag that a helper adds":     {"<!-- run: TestIt -->", "refit pause -n fleet --cluster prod", ""},
		"a reason":                      {"<!-- not run: it takes a fleet -->", "it", ""},
		"nothing":                       {"text", "it", missing},
		"no reason":                     {"<!-- not run: -->", "it", missing},
		"a test that is not there":      {"<!-- run: TestOther -->", "it", "there is no TestOther"},
		"a target that is not there":    {"<!-- run: make other -->", "it", "there is no make other"},
		"another program":               {"<!-- run: TestIt -->", "clusterctl apply -k config", `nothing of TestIt runs "clusterctl apply -k config"`},
		"another subcommand":            {"<!-- run: TestIt -->", "kubectl delete -k config", `nothing of TestIt runs "kubectl delete -k config"`},
		"another flag":                  {"<!-- run: TestIt -->", "kubectl apply -k config --timeout 1m", `nothing of TestIt runs "kubectl apply -k config --timeout 1m"`},
		"what only a comment says":      {"<!-- run: TestIt -->", "refit resume", `nothing of TestIt runs "refit resume"`},
		"the second of a line":          {"<!-- run: TestIt -->", "kubectl apply -k config && kubectl delete x", `nothing of TestIt runs "kubectl delete x"`},
		"but for one":                   {"<!-- run: TestIt; but not: kubectl delete -->", "kubectl apply -k config\nkubectl delete x", ""},
		"but for one that is not there": {"<!-- run: TestIt; but not: kubectl del -->", "kubectl apply -k config\nkubectl delete x", `nothing of TestIt runs "kubectl delete x"`},
		"but for none":                  {"<!-- run: TestIt; but not: helm -->", "kubectl apply -k config", `no command begins with "helm"`},
		"but for all":                   {"<!-- run: TestIt; but not: kubectl -->", "kubectl apply -k config", "all of it is not run: say why"},
		"a test that reads pages":       {"<!-- run: TestOverlaysAddUp -->", "mkdir x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			found := blocks("text\n\n" + tc.above + "\n```sh\n" + tc.text + "\n```\n")
			require.Len(t, found, 1)
			require.Equal(t, 4, found[0].line)
			require.Equal(t, tc.want, problem(found[0], exampleSources(t)))
		})
	}
}

func TestBlocksOfOtherLanguagesAreNone(t *testing.T) {
	require.Empty(t, blocks("```yaml\na: b\n```\n"))
	require.Len(t, blocks("```markdown\ntext\n```\n  <!-- run: TestIt -->\n  ```sh\n  it\n  ```\n"), 1)
}

func TestCommands(t *testing.T) {
	var got []string
	for _, c := range commands("a=b c=\"d e\"\nx='1' one -f 'two three' \\\n  --four=\"5\" | six; # seven\neight <<'YAML'\nnine\nYAML\nten '{\n  \"a\": 1}' -- --eleven && twelve\n\n# thirteen\n") {
		got = append(got, c.text)
	}
	require.Equal(t, []string{"one -f two three --four=5", "six", "eight <<YAML", "ten {   \"a\": 1} -- --eleven", "twelve"}, got)
	c := commands("kubectl -n fleet --kubeconfig x get -o yaml --all=true pods -- --other")[0]
	require.Equal(t, "get", c.subcommand())
	require.Equal(t, []string{"-n", "--kubeconfig", "-o", "--all"}, c.flags())
}

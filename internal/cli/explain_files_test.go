package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/capi-refit/refit/internal/explain"
)

var explainExamples = filepath.Join(examplesDir, "explain")

// sidesOfExample are the flags for the two sides of the example.
func sidesOfExample() []string {
	return []string{"--from", filepath.Join(explainExamples, "before"), "--to", filepath.Join(explainExamples, "after")}
}

// asRefit is the variable that has this program be refit, for scripts.
const asRefit = "REFIT_TESTS_AS_REFIT"

func TestMain(m *testing.M) {
	if os.Getenv(asRefit) != "" {
		Main("tests")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// statusOf is the exit status that an error stands for.
func statusOf(err error) int {
	status := &exitStatus{1, nil}
	if err != nil {
		errors.As(err, &status)
		return status.code
	}
	return 0
}

func TestExplainFiles(t *testing.T) {
	out, err := runExplain(t, "", append(sidesOfExample(), "-o", "json")...)
	require.NoError(t, err)
	var forecast struct {
		Verdict string
		Owners  []struct{ Name, Verdict, Disruption string }
	}
	require.NoError(t, json.Unmarshal([]byte(out), &forecast))
	require.Equal(t, "Replace", forecast.Verdict)
	require.Len(t, forecast.Owners, 3)
	verdicts := map[string]string{}
	for _, o := range forecast.Owners {
		verdicts[o.Name] = o.Verdict + " " + o.Disruption
	}
	require.Equal(t, map[string]string{"prod": "InPlace None", "gpu": "Replace" + " Replace", "workers": "InPlace Restart"}, verdicts)

	out, err = runExplain(t, "", "--from", filepath.Join(explainExamples, "before"), "--to", filepath.Join(explainExamples, "before"))
	require.NoError(t, err)
	require.Contains(t, out, "Verdict: None\n")
}

func TestFailOn(t *testing.T) {
	before, after := filepath.Join(explainExamples, "before"), filepath.Join(explainExamples, "after")
	only := filepath.Join(t.TempDir(), "after.yaml") // as before, but for the workers
	data, err := os.ReadFile(filepath.Join(after, "prod.yaml"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(only, []byte(strings.Replace(string(data), "name: gpu-2}}", "name: workers-1}}", 1)), 0o600))
	for name, c := range map[string]struct {
		to     string
		failOn string
		status int
	}{
		"replaced":              {after, "Replace", 2},
		"replaced is worse":     {after, "Drain", 2},
		"a restart":             {only, "Restart", 2},
		"a restart is worse":    {only, "Reload", 2},
		"a restart is no drain": {only, "Drain", 0},
		"nothing":               {before, "DaemonReload", 0},
		"a word":                {before, "replace", 1},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := runExplain(t, "", "--from", before, "--to", c.to, "--fail-on", c.failOn)
			require.Equal(t, c.status, statusOf(err), "%s\n%v", out, err)
			if c.status == 2 {
				require.Contains(t, out, "Verdict: ", "it is told before it fails")
				require.ErrorContains(t, err, "--fail-on="+c.failOn+": MachineDeployment/")
			}
		})
	}
	_, err = runExplain(t, "", "-f", explained, "--fail-on", "Restart")
	require.Equal(t, 2, statusOf(err))
}

func TestExplainSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	const deployment = "apiVersion: cluster.x-k8s.io/v1beta2\nkind: MachineDeployment\nmetadata: {name: a}\n"
	good := file("good.yaml", deployment)
	for says, args := range map[string][]string{
		"say what to explain":                 nil,
		"go together":                         {"--from", good},
		"exclude each other":                  {"--from", good, "--to", good, "-f", explained},
		"one object is explained at a time":   {"md/a", "md/b"},
		"is to be KIND/NAME":                  {"workers"},
		"its own policies count":              {"md/a", "--policy", good},
		"--schedule goes with":                {"-f", explained, "--schedule", good},
		"-o markdown goes with":               {"-f", explained, "-o", "markdown"},
		`--output is "xml"`:                   {"--from", good, "--to", good, "-o", "xml"},
		"--now is":                            {"--from", good, "--to", good, "--now", "today"},
		"can be read only once":               {"--from", "-", "--to", "-"},
		"no such file":                        {"--from", good, "--to", filepath.Join(dir, "none")},
		"refit reads v1beta2 only":            {"--from", good, "--to", file("old.yaml", strings.ReplaceAll(deployment, "v1beta2", "v1beta1"))},
		"MachineDeployment a is there twice":  {"--from", good, "--to", good, "--to", good},
		"broken.yaml: document 1":             {"--from", good, "--to", file("broken.yaml", "a: {")},
		"is neither a ChangeManagementPolicy": {"--from", good, "--to", good, "--schedule", good},
		`is not a NodeDisruptionPolicy`:       {"--from", good, "--to", good, "--policy", good},
	} {
		t.Run(says, func(t *testing.T) {
			out, err := runExplain(t, "", args...)
			require.ErrorContains(t, err, says)
			require.Empty(t, strings.TrimSpace(out))
			require.Equal(t, 1, statusOf(err))
		})
	}
}

func TestExplainReadsDirectories(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a/b/workers.yml": "apiVersion: cluster.x-k8s.io/v1beta2\nkind: MachineDeployment\nmetadata: {name: a}\nspec: {replicas: 2}\n",
		".git/x.yaml":     "a: {", ".hidden.yaml": "a: {", "README.md": "a: {",
		"kustomization.yaml": "kind: Kustomization\n", "values.yaml": "a: b\n", "empty.yaml": "",
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	out, err := runExplain(t, "", "--from", filepath.Join(dir, "empty.yaml"), "--to", dir, "-n", "fleet")
	require.NoError(t, err)
	require.Contains(t, out, "MachineDeployment/a  New      0: 2 new")
	require.Contains(t, out, "Note: left out, since refit knows nothing of them that concerns machines: Kustomization (1), documents that are no objects (1)")

	out, err = runExplain(t, "kind: MachineDeployment\napiVersion: cluster.x-k8s.io/v1beta2\nmetadata: {name: a, namespace: fleet}\nspec: {replicas: 2}", "--from", dir, "-n", "fleet", "--to", "-")
	require.NoError(t, err)
	require.Contains(t, out, "Verdict: None\n", "files that name no namespace are of the one that is given")
}

// TestExplainOfLinks: a side that is read as nothing would be one without consequences.
func TestExplainOfLinks(t *testing.T) {
	dir := t.TempDir()
	link := func(to, name string) string {
		name = filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.Symlink(to, name))
		return name
	}
	absolute := func(side string) string {
		path, err := filepath.Abs(filepath.Join(explainExamples, side))
		require.NoError(t, err)
		return path
	}
	before, after := link(absolute("before"), "old"), link(absolute("after"), "new")
	out, err := runExplain(t, "", "--from", before, "--to", after, "--fail-on", "Replace")
	require.Equal(t, 2, statusOf(err), "%s\n%v", out, err)
	require.Contains(t, out, "MachineDeployment/gpu      Replace")

	link(filepath.Join(absolute("after"), "prod.yaml"), "file/prod.yaml")
	_, err = runExplain(t, "", "--from", before, "--to", filepath.Join(dir, "file"), "--fail-on", "Replace")
	require.Equal(t, 2, statusOf(err), "a link to a file is followed: %v", err)

	link(absolute("after"), "within/prod")
	link("nowhere", "broken/prod.yaml")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "none", ".git"), 0o700))
	for name, says := range map[string]string{
		"within": "is a link to a directory", "broken": "no such file", "none": "there is no file with objects (.yaml, .yml, .json)",
	} {
		for _, args := range [][]string{{"--from", before, "--to", filepath.Join(dir, name)}, {"--to", before, "--from", filepath.Join(dir, name)}} {
			_, err = runExplain(t, "", args...)
			require.ErrorContains(t, err, says)
			require.Equal(t, 1, statusOf(err))
		}
	}
}

func TestExplainWithSchedules(t *testing.T) {
	windows := filepath.Join(explainExamples, "windows.yaml")
	args := append(sidesOfExample(), "--schedule", windows, "-o", "json")
	type when struct {
		Name string
		When struct{ NotBefore, Reason, Expected, AtLeast string }
	}
	ask := func(now string) map[string]when {
		out, err := runExplain(t, "", append(args, "--now", now)...)
		require.NoError(t, err)
		var forecast struct{ Owners []when }
		require.NoError(t, json.Unmarshal([]byte(out), &forecast))
		all := map[string]when{}
		for _, o := range forecast.Owners {
			all[o.Name] = o
		}
		return all
	}
	monday := ask("2026-10-05T00:00:00Z")
	require.Equal(t, "2026-10-05T00:00:00Z", monday["prod"].When.NotBefore, "the policy is for workers")
	require.Equal(t, "2026-10-10T20:00:00Z", monday["workers"].When.NotBefore)
	require.Equal(t, "OutsideWindow", monday["workers"].When.Reason)
	require.Equal(t, "20m", monday["workers"].When.Expected)
	require.Equal(t, "1h", monday["workers"].When.AtLeast, "six, of which two are updated at once")
	require.Empty(t, monday["gpu"].When.Expected, "nobody knows how long a replacement takes")
	require.Equal(t, "Open", ask("2026-10-10T21:00:00Z")["workers"].When.Reason)

	forbid := filepath.Join(t.TempDir(), "forbid.yaml")
	require.NoError(t, os.WriteFile(forbid, []byte(readPage(t, windows)+"  replacement: Forbid\n"), 0o600))
	out, err := runExplain(t, "", append(sidesOfExample(), "--schedule", forbid, "--fail-on", "Replace")...)
	require.NoError(t, err, "what is forbidden does not happen")
	require.Contains(t, out, "MachineDeployment/gpu      Forbidden")
	require.Contains(t, out, "the replacement is forbidden by policy saturdays")
}

// TestExplainForbidsByWhatIsKnown: a policy that may not select the machines keeps none from being replaced.
func TestExplainForbidsByWhatIsKnown(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	const spec = "strategy: MaintenanceSchedule, replacement: Forbid, maintenanceSchedule: {timeZone: UTC, permit: [{recurrence: FREQ=DAILY, startTime: '00:00', duration: 24h}]}}\n"
	const lab = "apiVersion: capi-refit.dev/v1alpha1\nkind: ChangeManagementPolicy\nmetadata: {name: lab, namespace: fleet}\nspec: {selector: {clusters: {matchLabels: {env: lab}}}, " + spec
	const platform = "apiVersion: capi-refit.dev/v1alpha1\nkind: ClusterChangeManagementPolicy\nmetadata: {name: platform}\nspec: {namespaceSelector: {matchLabels: {env: lab}}, " + spec
	const everywhere = "apiVersion: capi-refit.dev/v1alpha1\nkind: ClusterChangeManagementPolicy\nmetadata: {name: everywhere}\nspec: {" + spec
	cluster := func(env string) string {
		return "apiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\nmetadata: {name: prod, namespace: fleet, labels: {env: " + env + "}}\nspec: {}\n"
	}
	for name, c := range map[string]struct {
		policy, cluster, says string
		status                int
	}{
		"the Cluster is not known":           {lab, "", "Note: machines of Cluster prod are replaced unless policy lab selects the Cluster", 2},
		"the namespace is not known":         {platform, cluster("lab"), "Note: machines of Cluster prod are replaced unless policy ClusterChangeManagementPolicy platform selects the Cluster", 2},
		"it selects the Cluster":             {lab, cluster("lab"), "forbidden by policy lab", 0},
		"it does not select the Cluster":     {lab, cluster("dev"), "MachineDeployment/gpu      Replace", 2},
		"it selects all Clusters everywhere": {everywhere, "", "forbidden by policy ClusterChangeManagementPolicy everywhere", 0},
	} {
		t.Run(name, func(t *testing.T) {
			args := append(sidesOfExample(), "--schedule", file("policy.yaml", c.policy), "--fail-on", "Replace")
			if c.cluster != "" {
				args = append(args, "--to", file("cluster.yaml", c.cluster))
			}
			out, err := runExplain(t, "", args...)
			require.Equal(t, c.status, statusOf(err), "%s\n%v", out, err)
			require.Contains(t, strings.Join(strings.Fields(out), " "), strings.Join(strings.Fields(c.says), " "))
			out, err = runExplain(t, "", append(args, "-o", "json")...)
			require.Equal(t, c.status, statusOf(err))
			var told explain.Forecast
			require.NoError(t, json.Unmarshal([]byte(strings.Split(out, "\nrefit:")[0]), &told))
			for _, o := range told.Owners {
				require.True(t, o.Verdict != explain.Forbidden || o.AtOnce == 0, "nothing is taken at once")
			}
		})
	}
}

// TestDocumentedExplanations runs the commands of the page, and compares what they print.
func TestDocumentedExplanations(t *testing.T) {
	page := filepath.Join(docsDir, "explain.md")
	n := 0
	for _, b := range codeBlocks(t, readPage(t, page)) {
		command, printed, ok := strings.Cut(b.text, "\n")
		if b.language != "console" || !ok || !strings.HasPrefix(command, "$ refit explain --from") {
			continue
		}
		n++
		var args []string
		for _, word := range strings.Fields(strings.TrimPrefix(command, "$ refit explain ")) {
			if strings.HasPrefix(word, "docs/") {
				word = filepath.Join("..", "..", word)
			}
			args = append(args, word)
		}
		out, err := runExplain(t, "", args...)
		require.NotEqual(t, 1, statusOf(err), "%v", err)
		require.Equal(t, out, printed, "%s:%d", page, b.line)
	}
	require.GreaterOrEqual(t, n, 2)
}

// script returns what a script prints in a Git repository, and its exit status. The refit that it runs is this program.
func script(t *testing.T, dir, command string) (string, int) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "REFIT="+self, asRefit+"=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.com", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.com",
		"GITHUB_STEP_SUMMARY="+filepath.Join(dir, "summary.md"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	exit := &exec.ExitError{}
	if err != nil {
		require.ErrorAs(t, err, &exit, out.String())
		return out.String(), exit.ExitCode()
	}
	return out.String(), 0
}

// repository is one with the example as it is before, and the script.
func explainedRepository(t *testing.T) (string, func(command string) (string, int)) {
	t.Helper()
	for _, tool := range []string{"git", "sh", "tar"} {
		if _, err := exec.LookPath(tool); err != nil || runtime.GOOS == "windows" {
			t.Skipf("%s is not there", tool)
		}
	}
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "hack"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "hack", "explain-changes.sh"), []byte(readPage(t, filepath.Join(explainExamples, "explain-changes.sh"))), 0o700))
	in := func(command string) (string, int) { return script(t, dir, command) }
	write(t, dir, "before")
	out, status := in("git init -q -b main . && git add clusters hack && git commit -qm before")
	require.Zero(t, status, out)
	return dir, in
}

// write has the repository have one side of the example.
func write(t *testing.T, dir, side string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "clusters", "prod"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "clusters", "prod", "prod.yaml"), []byte(readPage(t, filepath.Join(explainExamples, side, "prod.yaml"))), 0o600))
}

// TestPreCommitExample runs the entry of the hook, as pre-commit does: at the root of the repository.
func TestPreCommitExample(t *testing.T) {
	var config struct {
		Repos []struct {
			Hooks []struct{ ID, Language, Entry string }
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(readPage(t, filepath.Join(explainExamples, "pre-commit-config.yaml"))), &config))
	entry := config.Repos[0].Hooks[0].Entry
	dir, in := explainedRepository(t)

	out, status := in(entry)
	require.Zero(t, status, out)
	write(t, dir, "after")
	out, status = in(entry)
	require.Zero(t, status, "what is not staged is not committed: %s", out)
	out, status = in("git add clusters && " + entry)
	require.Equal(t, 2, status, out)
	require.Contains(t, out, "MachineDeployment/gpu      Replace")
	require.Contains(t, out, "refit: --fail-on=Replace: MachineDeployment/gpu (Replace)")
	out, status = in("git rm -rqf clusters && " + entry)
	require.Equal(t, 2, status, "an owner that goes takes its machines with it: %s", out)
	require.Contains(t, out, "MachineDeployment/workers  Deleted")
}

// TestExplainChangesFails has the script exit with 1 where what it is to compare is not there: that is no change without consequences.
func TestExplainChangesFails(t *testing.T) {
	_, in := explainedRepository(t)
	for says, args := range map[string]string{
		`"none" is no commit`:        "none HEAD clusters",
		`"other" is no commit`:       "HEAD other clusters",
		`"" is no commit`:            "'' HEAD clusters",
		`"HEAD:hack" is no commit`:   "HEAD:hack HEAD clusters",
		`"missing" is on neither`:    "HEAD HEAD~0 missing",
		`"nowhere" is on neither`:    "HEAD --staged nowhere",
		`"unborn" is no commit that`: "unborn --staged clusters",
	} {
		t.Run(says, func(t *testing.T) {
			out, status := in("hack/explain-changes.sh " + args)
			require.Equal(t, 1, status, out)
			require.Contains(t, out, says)
			require.NotContains(t, out, "Verdict:")
		})
	}
	out, status := in("git rm -rqf clusters && git commit -qm gone && hack/explain-changes.sh HEAD HEAD~1 clusters")
	require.Zero(t, status, out)
	require.Contains(t, out, "Verdict: New", "a path that is not there yet is nothing")
}

// TestGitHubExample runs the step of the workflow, as the runner does.
func TestGitHubExample(t *testing.T) {
	var workflow struct {
		Jobs map[string]struct {
			Steps []struct{ Name, Run string }
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(readPage(t, filepath.Join(explainExamples, "github-workflow.yaml"))), &workflow))
	steps := workflow.Jobs["explain"].Steps
	step := steps[len(steps)-1]
	require.Equal(t, "Explain", step.Name)
	dir, in := explainedRepository(t)
	run := "set -e\nexport BASE=$(git rev-parse main) HEAD=$(git rev-parse HEAD)\n" + step.Run

	out, status := in(run)
	require.Zero(t, status, out)
	require.Contains(t, readPage(t, filepath.Join(dir, "summary.md")), "### refit: None")
	write(t, dir, "after")
	out, status = in("git checkout -qb change && git commit -qam after")
	require.Zero(t, status, out)
	out, status = in(run)
	require.Equal(t, 2, status, out)
	require.Contains(t, readPage(t, filepath.Join(dir, "summary.md")), "| `MachineDeployment/gpu` | **Replace** | 2: 2 replaced | Replace | - |")
}

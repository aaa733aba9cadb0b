package attack_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

type workflow struct {
	On          map[string]any `json:"true"` // which is what YAML 1.1 takes "on" for
	Permissions map[string]string
	Jobs        map[string]struct {
		Needs       string
		Permissions map[string]string
		Steps       []struct{ Run string }
	}
}

// jobOf is a job of a workflow.
type jobOf struct{ file, name string }

// publishes are the jobs that may write, and what: the one that publishes a release, its image and their signatures.
var publishes = map[jobOf]map[string]string{
	{"release.yaml", "release"}: {"contents": "write", "packages": "write", "id-token": "write"},
}

// TestAWorkflowRunsNoActionThatCanBeExchanged: a tag of somebody else's repository can be moved to other code.
func TestAWorkflowRunsNoActionThatCanBeExchanged(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", ".github", "workflows", "*"))
	require.NoError(t, err)
	require.Len(t, files, 2)
	runs := map[string][]string{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Empty(t, ofOthers(t, content), file)
		var w workflow
		require.NoError(t, yaml.Unmarshal(content, &w), file)
		require.NotNil(t, w.Permissions, "%s: without it jobs may have all", file)
		require.Empty(t, w.Permissions, "%s: each job says what it needs", file)
		for name, job := range w.Jobs {
			for what, access := range job.Permissions {
				require.True(t, access == "read" || publishes[jobOf{filepath.Base(file), name}][what] == access, "%s: %s may %s %s", file, name, access, what)
			}
			if len(publishes[jobOf{filepath.Base(file), name}]) > 0 {
				require.Equal(t, map[string]any{"push": map[string]any{"tags": []any{"v*"}}}, w.On, "%s: it publishes what a maintainer has tagged, and nothing else", file)
			}
			require.NotEmpty(t, job.Permissions)
			for _, step := range job.Steps {
				runs[filepath.Base(file)] = append(runs[filepath.Base(file)], step.Run)
			}
		}
	}
	for file, commands := range map[string][]string{"ci.yaml": {".ci/run", "make vulnerabilities"}, "release.yaml": {"make vulnerabilities", "make image sbom", "make sign"}} {
		for _, command := range commands {
			require.Contains(t, runs[file], command)
		}
	}
}

var (
	// pinnedAction is GitHub's own at a commit.
	pinnedAction = regexp.MustCompile(`^actions/[a-z-]+@[0-9a-f]{40}$`)
	pinnedImage  = regexp.MustCompile(`^[^$@]+@sha256:[0-9a-f]{64}$`)
)

// ofOthers returns what a workflow runs that others can exchange, or tells them: actions and workflows that are not GitHub's own at a commit, images
// without a digest, commands that are made of what others have written, and all secrets at once. It looks everywhere, whatever a job is made of.
func ofOthers(t *testing.T, content []byte) []string {
	t.Helper()
	var w any
	require.NoError(t, yaml.UnmarshalStrict(content, &w))
	var found []string
	image := func(value any) {
		if of, ok := value.(map[string]any); ok {
			value = of["image"]
		}
		if name, ok := value.(string); !ok || !pinnedImage.MatchString(name) {
			found = append(found, fmt.Sprintf("the image %v", value))
		}
	}
	var look func(any)
	look = func(part any) {
		switch part := part.(type) {
		case []any:
			for _, p := range part {
				look(p)
			}
		case map[string]any:
			for key, value := range part {
				text, isText := value.(string)
				services, isMap := value.(map[string]any)
				switch {
				case key == "uses" && (!isText || !pinnedAction.MatchString(text)):
					found = append(found, fmt.Sprintf("uses %v", value))
				case key == "run" && isText && strings.Contains(text, "${{"):
					found = append(found, "runs "+text)
				case key == "secrets" && text == "inherit":
					found = append(found, "all secrets")
				case key == "container":
					image(value)
				case key == "services" && isMap:
					for _, s := range services {
						image(s)
					}
				case key == "services":
					image(value)
				}
				look(value)
			}
		}
	}
	look(w)
	slices.Sort(found)
	return found
}

// TestWhatAWorkflowRunsOfOthersIsSeen plants it wherever GitHub reads it.
func TestWhatAWorkflowRunsOfOthersIsSeen(t *testing.T) {
	commit, digest := strings.Repeat("a", 40), "@sha256:"+strings.Repeat("b", 64)
	for job, want := range map[string][]string{
		"{steps: [{uses: actions/checkout@" + commit + "}], container: r.example.org/x" + digest + ", services: {db: {image: r.example.org/y" + digest + "}}}": nil,
		"{uses: somebody/else/.github/workflows/anything.yaml@main, secrets: inherit}":                                                                         {"all secrets", "uses somebody/else/.github/workflows/anything.yaml@main"},
		"{uses: somebody/else/.github/workflows/anything.yaml@" + commit + "}":                                                                                 {"uses somebody/else/.github/workflows/anything.yaml@" + commit},
		"{steps: [{uses: actions/checkout@v4}]}":                                                                                                               {"uses actions/checkout@v4"},
		"{steps: [{uses: ./.github/actions/x}]}":                                                                                                               {"uses ./.github/actions/x"},
		"{steps: [{uses: 'docker://somebody/else:latest'}]}":                                                                                                   {"uses docker://somebody/else:latest"},
		"{container: 'somebody/else:latest'}":                                                                                                                  {"the image somebody/else:latest"},
		"{container: {image: 'somebody/else:1'}}":                                                                                                              {"the image somebody/else:1"},
		"{container: '${{ matrix.image }}" + digest + "'}":                                                                                                     {"the image ${{ matrix.image }}" + digest},
		"{services: {db: {image: 'somebody/db:1'}, x: {image: r.example.org/x" + digest + "}}}":                                                                {"the image somebody/db:1"},
		"{services: '${{ fromJSON(inputs.services) }}'}":                                                                                                       {"the image ${{ fromJSON(inputs.services) }}"},
		"{steps: [{run: 'echo ${{ github.head_ref }}'}]}":                                                                                                      {"runs echo ${{ github.head_ref }}"},
	} {
		require.Equal(t, want, ofOthers(t, []byte("jobs:\n  more: "+job+"\n")), job)
	}
	anchored := "x: &step {uses: somebody/else@main}\njobs:\n  more: {steps: [*step]}\n"
	require.Len(t, ofOthers(t, []byte(anchored)), 2, "an alias is what it stands for")
}

// TestAReleaseRunsTheCommandsThatThereAre compares what the workflow of a release calls with the Makefile, and in which order: all files are made before
// their checksums are signed, and signed before they are published.
func TestAReleaseRunsTheCommandsThatThereAre(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	require.NoError(t, err)
	content, err := os.ReadFile(filepath.Join("..", "..", ".github", "workflows", "release.yaml"))
	require.NoError(t, err)
	var w workflow
	require.NoError(t, yaml.Unmarshal(content, &w))
	var order []string
	for _, step := range w.Jobs["release"].Steps {
		for _, m := range regexp.MustCompile(`\b(make|gh) ([a-z -]+)`).FindAllStringSubmatch(step.Run, -1) {
			if m[1] == "gh" {
				order = append(order, "publish")
				continue
			}
			for _, target := range strings.Fields(m[2]) {
				require.Regexp(t, `(?m)^`+target+`:`, string(makefile), "make %s", target)
				order = append(order, target)
			}
		}
	}
	tested := w.Jobs[w.Jobs["release"].Needs].Steps
	require.True(t, slices.ContainsFunc(tested, func(step struct{ Run string }) bool { return step.Run == ".ci/run" }), "what was not tested is published")
	require.Equal(t, []string{"vulnerabilities", "image", "sbom", "release", "provenance", "sign-image", "sign", "publish"}, order)
	require.Contains(t, string(content), "gh release create \"$GITHUB_REF_NAME\" --draft ", "a person publishes it")
	for _, signed := range []string{"cosign sign-blob --yes --bundle out/checksums.txt.sigstore.json out/checksums.txt", `cosign sign --yes --recursive "$$image"`} {
		require.Contains(t, string(makefile), signed)
	}
}

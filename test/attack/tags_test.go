package attack_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// stub stands for every program that make calls: it writes what it was called with, a line for each argument, and makes the programs that go is to make.
const stub = `#!/bin/sh
{ basename "$0"; printf ' %s\n' "$@"; } >>"$CALLS"
case "$*" in "run ./build/image push "*) echo registry.example.org/refit@sha256:abc ;; esac
while [ $# -gt 1 ]; do
  [ "$1" != -o ] || { mkdir -p "$(dirname "$2")"; cp "$0" "$2"; chmod +x "$2"; }
  shift
done
`

// releaser is a checkout of a commit that has tags, with what makes a release, and stubs of all programs.
type releaser struct {
	*testing.T
	dir, bin, calls string
}

func newReleaser(t *testing.T, tags ...string) releaser {
	t.Helper()
	r := releaser{t, t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "calls")}
	root := filepath.Join("..", "..")
	for _, file := range []string{"Makefile", "tools/cosign/go.mod", "tools/cosign/go.sum", "tools/cyclonedx-gomod/go.mod", "tools/cyclonedx-gomod/go.sum"} {
		content, err := os.ReadFile(filepath.Join(root, file))
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Join(r.dir, filepath.Dir(file)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(r.dir, file), content, 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, ".gitignore"), []byte("bin/\nout/\n"), 0o600))
	for _, name := range []string{"go", "docker", "gh"} {
		require.NoError(t, os.WriteFile(filepath.Join(r.bin, name), []byte(stub), 0o700))
	}
	git := [][]string{{"init", "-q"}, {"add", "."}, {"commit", "-qm", "x"}}
	for _, tag := range tags {
		git = append(git, []string{"tag", "-am", tag, tag})
	}
	for _, args := range git {
		out, err := r.run(nil, "git", args...)
		require.NoError(t, err, out)
	}
	return r
}

// run runs a program in the checkout, with nothing of this process's environment that would say a version.
func (r releaser) run(env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(r.Context(), name, args...)
	cmd.Dir = r.dir
	cmd.Env = append([]string{
		"PATH=" + r.bin + ":" + os.Getenv("PATH"), "HOME=" + r.bin, "CALLS=" + r.calls,
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org",
	}, env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// called returns what programs were called with.
func (r releaser) called() string {
	content, err := os.ReadFile(r.calls)
	if os.IsNotExist(err) {
		return ""
	}
	require.NoError(r, err)
	return string(content)
}

// commandsInTags are tags that git takes, as those of a fork that somebody fetches, or of whoever may push a tag and nothing else.
var commandsInTags = []string{
	"v0.1.0'$(touch${IFS}pwned)'", "v0.1.0$(touch${IFS}pwned)", "v0.1.0`touch${IFS}pwned`", "v0.1.0;touch${IFS}pwned", `v0.1.0"$(touch${IFS}pwned)"`,
}

var makesOfVersions = []string{"build", "image", "sbom", "release", "provenance"}

func TestATagIsNoCommand(t *testing.T) {
	for _, tag := range commandsInTags {
		tagged, plain := newReleaser(t, tag), newReleaser(t, "v0.1.0")
		for _, target := range makesOfVersions {
			for name, try := range map[string]func() (string, error){
				"of git":         func() (string, error) { return tagged.run(nil, "make", target) },
				"by an argument": func() (string, error) { return plain.run(nil, "make", target, "VERSION="+tag) },
				"as make has it": func() (string, error) {
					return plain.run(nil, "make", target, "VERSION="+strings.ReplaceAll(tag, "$", "$$"))
				},
				"by the job's":    func() (string, error) { return plain.run([]string{"VERSION=" + tag}, "make", target) },
				"make's function": func() (string, error) { return plain.run(nil, "make", target, "VERSION=$(shell touch pwned)") },
				"make's, too":     func() (string, error) { return plain.run([]string{"VERSION=v1$(shell touch pwned)"}, "make", target) },
			} {
				out, err := try()
				require.Error(t, err, "%s, %s, make %s", tag, name, target)
				require.Contains(t, out, "is no version", "%s, %s, make %s", tag, name, target)
			}
		}
		for _, r := range []releaser{tagged, plain} {
			out, err := r.run([]string{"IMAGE=registry.example.org/refit:" + tag}, "make", "sign-image")
			require.NoError(t, err, out)
			require.Contains(t, r.called(), " --image\n registry.example.org/refit:"+tag+"\n", "the program refuses it")
			require.NotContains(t, r.called(), "main.version", "nothing was built")
			require.NoFileExists(t, filepath.Join(r.dir, "pwned"), tag)
		}
	}
}

func TestWhatIsNoReleaseCanBeBuilt(t *testing.T) {
	for _, version := range []string{"v0.1.0", "v0.1.0-rc.1", "v0.1.0-3-gabcdef0-dirty", "abcdef0", "dev", "1.2_3+x"} {
		r := newReleaser(t)
		out, err := r.run([]string{"VERSION=" + version}, "make", "image")
		require.NoError(t, err, out)
		require.Equal(t, 5, strings.Count(r.called(), " -s -w -X main.version="+version+"\n"))
		require.Contains(t, r.called(), " --image\n ghcr.io/capi-refit/refit:"+version+"\n --version\n "+version+"\n")
		out, err = r.run([]string{"VERSION=" + version}, "make", "release")
		if strings.HasPrefix(version, "v") {
			require.NoError(t, err, out)
		} else {
			require.Error(t, err)
			require.Contains(t, out, version+" is no version of a release")
		}
	}
	r := newReleaser(t, "v0.1.0")
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, "Makefile"), append(mustRead(t, filepath.Join(r.dir, "Makefile")), '\n'), 0o600))
	out, err := r.run(nil, "make", "build")
	require.NoError(t, err, out)
	require.Contains(t, r.called(), "main.version=v0.1.0-dirty\n")
	require.NoError(t, os.RemoveAll(filepath.Join(r.dir, ".git")))
	out, err = r.run([]string{"GIT_CEILING_DIRECTORIES=" + filepath.Dir(r.dir)}, "make", "build")
	require.NoError(t, err, out)
	require.Contains(t, r.called(), "main.version=dev\n")
}

func mustRead(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	return content
}

// rehearse runs the steps of the workflow of a release at a tag, but for the check of vulnerabilities, which asks a database.
func (r releaser) rehearse(tag string) {
	r.Helper()
	var w struct {
		Jobs map[string]struct {
			Env   map[string]string
			Steps []struct{ Run string }
		}
	}
	require.NoError(r, yaml.Unmarshal(mustRead(r.T, filepath.Join("..", "..", ".github", "workflows", "release.yaml")), &w))
	env := []string{"GITHUB_REF_NAME=" + tag, "GITHUB_ACTOR=a", "TOKEN=t"}
	job := w.Jobs["release"]
	for _, name := range slices.Sorted(maps.Keys(job.Env)) {
		value := strings.NewReplacer("${{ github.ref_name }}", tag, "${{ github.repository_owner }}", "capi-refit").Replace(job.Env[name])
		require.NotContains(r, value, "${{")
		env = append(env, name+"="+value)
	}
	for _, step := range job.Steps {
		if step.Run != "" && step.Run != "make vulnerabilities" {
			out, err := r.run(env, "bash", "-e", "-c", step.Run)
			require.NoError(r, err, "%s: %s", step.Run, out)
		}
	}
}

// TestAllOfAReleaseHasItsVersion: a release candidate that is found good is tagged again, and git describe may name either.
func TestAllOfAReleaseHasItsVersion(t *testing.T) {
	r := newReleaser(t, "v0.1.0-rc.1")
	out, err := r.run(nil, "git", "tag", "v0.1.0") // as GitHub's page makes it
	require.NoError(t, err, out)
	r.rehearse("v0.1.0")
	require.Contains(t, r.called(), " --spdx\n bin/image.spdx.json\n")
	require.Contains(t, r.called(), "cosign\n attest\n --yes\n --type\n spdxjson\n --predicate\n bin/image.spdx.json\n", "the image's own list, not that of the command")
	require.NotContains(t, r.called(), "v0.1.0-rc.1")
	require.Contains(t, r.called(), "main.version=v0.1.0\n")
	require.Equal(t, 3, strings.Count(r.called(), " --version\n v0.1.0\n"), "the image, the release, its provenance:\n%s", r.called())
	require.Contains(t, r.called(), " push\n --from\n bin/image\n --image\n ghcr.io/capi-refit/refit:v0.1.0\n")
	require.Contains(t, r.called(), "cosign\n sign\n --yes\n --recursive\n registry.example.org/refit@sha256:abc\n", "all architectures by what was pushed")
}

// Provenance writes what a release was built of, and by what, as SLSA's provenance v1 has it: the predicate that make sign has signed for the release's
// checksums. It is told by the environment of a workflow of GitHub's, and is no more than what a workflow says of itself until it is signed there.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// buildType says how the parameters are to be read.
const buildType = "https://actions.github.io/buildtypes/workflow/v1"

// predicate is SLSA's, https://slsa.dev/spec/v1.0/provenance.
type predicate struct {
	Definition definition `json:"buildDefinition"`
	Run        run        `json:"runDetails"`
}

type definition struct {
	Type         string         `json:"buildType"`
	External     map[string]any `json:"externalParameters"`
	Internal     map[string]any `json:"internalParameters"`
	Dependencies []dependency   `json:"resolvedDependencies"`
}

type dependency struct {
	URI    string            `json:"uri"`
	Digest map[string]string `json:"digest"`
}

type run struct {
	Builder  map[string]string `json:"builder"`
	Metadata map[string]string `json:"metadata"`
}

func main() {
	var out, version string
	cmd := &cobra.Command{
		Use: "provenance", Short: "Write the provenance of a release", Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(*cobra.Command, []string) error {
			text, err := provenance(os.Getenv, version)
			if err != nil {
				return err
			}
			return os.WriteFile(out, text, 0o644) //nolint:gosec // it is for everybody
		},
	}
	cmd.Flags().StringVar(&out, "out", "bin/provenance.json", "File for it.")
	cmd.Flags().StringVar(&version, "version", "", "The version, which is the tag that the workflow runs for.")
	if err := cmd.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "provenance:", err)
		os.Exit(1)
	}
}

var commit = regexp.MustCompile(`^[0-9a-f]{40}$`)

// provenance returns the predicate. What is not known is an error: half a provenance proves nothing.
func provenance(env func(string) string, version string) ([]byte, error) {
	var errs []error
	get := func(name string) string {
		value := env(name)
		if value == "" {
			errs = append(errs, fmt.Errorf("%s is not set, as in a workflow of GitHub's", name))
		}
		return value
	}
	server, repository, ref, sha := get("GITHUB_SERVER_URL"), get("GITHUB_REPOSITORY"), get("GITHUB_REF"), get("GITHUB_SHA")
	path, _, _ := strings.Cut(strings.TrimPrefix(get("GITHUB_WORKFLOW_REF"), repository+"/"), "@")
	p := predicate{
		Definition: definition{
			Type:     buildType,
			External: map[string]any{"workflow": map[string]string{"ref": ref, "repository": server + "/" + repository, "path": path}},
			Internal: map[string]any{"github": map[string]string{"event_name": get("GITHUB_EVENT_NAME"), "repository_id": get("GITHUB_REPOSITORY_ID"), "repository_owner_id": get("GITHUB_REPOSITORY_OWNER_ID")}},
			Dependencies: []dependency{
				{URI: "git+" + server + "/" + repository + "@" + ref, Digest: map[string]string{"gitCommit": sha}},
			},
		},
		Run: run{
			Builder:  map[string]string{"id": "https://github.com/actions/runner/" + get("RUNNER_ENVIRONMENT")},
			Metadata: map[string]string{"invocationId": fmt.Sprintf("%s/%s/actions/runs/%s/attempts/%s", server, repository, get("GITHUB_RUN_ID"), get("GITHUB_RUN_ATTEMPT"))},
		},
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if ref != "refs/tags/"+version {
		return nil, fmt.Errorf("the workflow runs for %s, and the release is %s", ref, version)
	}
	if !commit.MatchString(sha) {
		return nil, fmt.Errorf("%q is no commit", sha)
	}
	return json.MarshalIndent(p, "", "  ")
}

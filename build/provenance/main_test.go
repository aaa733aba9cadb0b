package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func workflow() map[string]string {
	return map[string]string{
		"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "capi-refit/refit", "GITHUB_REF": "refs/tags/v0.1.0", "GITHUB_SHA": strings.Repeat("a", 40),
		"GITHUB_WORKFLOW_REF": "capi-refit/refit/.github/workflows/release.yaml@refs/tags/v0.1.0", "GITHUB_EVENT_NAME": "push", "GITHUB_REPOSITORY_ID": "1",
		"GITHUB_REPOSITORY_OWNER_ID": "2", "RUNNER_ENVIRONMENT": "github-hosted", "GITHUB_RUN_ID": "3", "GITHUB_RUN_ATTEMPT": "4",
	}
}

func TestProvenance(t *testing.T) {
	text, err := provenance(func(name string) string { return workflow()[name] }, "v0.1.0")
	require.NoError(t, err)
	require.JSONEq(t, `{
		"buildDefinition": {
			"buildType": "https://actions.github.io/buildtypes/workflow/v1",
			"externalParameters": {"workflow": {"ref": "refs/tags/v0.1.0", "repository": "https://github.com/capi-refit/refit", "path": ".github/workflows/release.yaml"}},
			"internalParameters": {"github": {"event_name": "push", "repository_id": "1", "repository_owner_id": "2"}},
			"resolvedDependencies": [{"uri": "git+https://github.com/capi-refit/refit@refs/tags/v0.1.0", "digest": {"gitCommit": "`+strings.Repeat("a", 40)+`"}}]
		},
		"runDetails": {
			"builder": {"id": "https://github.com/actions/runner/github-hosted"},
			"metadata": {"invocationId": "https://github.com/capi-refit/refit/actions/runs/3/attempts/4"}
		}
	}`, string(text))
	require.True(t, json.Valid(text))
}

func TestHalfAProvenanceIsNone(t *testing.T) {
	for name := range workflow() {
		_, err := provenance(func(asked string) string {
			if asked == name {
				return ""
			}
			return workflow()[asked]
		}, "v0.1.0")
		require.ErrorContains(t, err, name+" is not set")
	}
	_, err := provenance(func(name string) string { return workflow()[name] }, "v0.2.0")
	require.ErrorContains(t, err, "the release is v0.2.0")
	_, err = provenance(func(name string) string {
		if name == "GITHUB_SHA" {
			return "main"
		}
		return workflow()[name]
	}, "v0.1.0")
	require.ErrorContains(t, err, "is no commit")
}

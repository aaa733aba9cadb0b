package cli

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWhatExplainShowsCanBeDeclared: the path that explain tells people to list is the one that a policy takes.
func TestWhatExplainShowsCanBeDeclared(t *testing.T) {
	request := filepath.Join("..", "..", "handlers", "testdata", "canupdatemachine-mixed.json")
	out, err := runExplain(t, "", "-f", request)
	require.NoError(t, err)
	shown := regexp.MustCompile(`(?m)^infrastructureMachine +spec\.(\S+) +- .*list it in inertFields of a NodeDisruptionPolicy, as (\S+)$`).FindStringSubmatch(out)
	require.NotNil(t, shown, out)
	require.Equal(t, shown[1], shown[2])
	declared := func(path string) (string, error) {
		return runExplain(t, "", "-f", request, "--policy", policyFile(t, "{inertFields: [{group: infrastructure.cluster.x-k8s.io, kind: DevMachine, paths: ["+path+"]}]}"))
	}
	out, err = declared(shown[2])
	require.NoError(t, err)
	require.Regexp(t, `(?m)^infrastructureMachine +spec\.`+regexp.QuoteMeta(shown[1])+` +declared +None`, out)
	_, err = declared("spec." + shown[1])
	require.ErrorContains(t, err, "paths are below spec: leave out the spec. in front")
}

// TestPathsThatMatchNothing: a path that can have no effect is refused.
func TestPathsThatMatchNothing(t *testing.T) {
	_, err := runExplain(t, "", "-f", explained, "--policy", policyFile(t, `{files: [{path: "/etc/*", actions: [{type: None}]}]}`))
	require.ErrorContains(t, err, "there are no wildcards")
	_, err = runExplain(t, "{apiVersion: capi-refit.dev/v1alpha1, kind: BootImagePolicy, metadata: {name: p}, spec: "+
		"{selection: {mode: All}, kinds: [{group: infrastructure.cluster.x-k8s.io, kind: AWSMachine, paths: [spec.ami]}]}}", "-f", explained, "--boot-image-policy", "-")
	require.ErrorContains(t, err, "leave out the spec. in front")
}

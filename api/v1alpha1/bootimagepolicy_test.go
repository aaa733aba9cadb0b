package v1alpha1

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const bipFile = "../../config/crd/bases/capi-refit.dev_bootimagepolicies.yaml"

func TestBootImagePolicyIsValidated(t *testing.T) {
	definition := crd(t, bipFile)
	with := func(rest string) string { return `{selection: {mode: All}, ` + rest + `}` }
	kind := func(rest string) string { return with(`kinds: [{group: example.com, kind: FooMachine, ` + rest + `}]`) }
	for name, test := range map[string]struct{ spec, want string }{
		"all":                          {`{selection: {mode: All}}`, ""},
		"none":                         {`{selection: {mode: None}}`, ""},
		"a part":                       {`{selection: {mode: Partial, machines: {matchLabels: {pool: gpu}}}}`, ""},
		"a part that is all":           {`{selection: {mode: Partial, machines: {}}}`, ""},
		"a version":                    {with(`minimumVersion: v1.36.0, versionPattern: "k8s-(\\d+\\.\\d+)"`), ""},
		"a date as version":            {with(`minimumVersion: "20260105"`), ""},
		"a kind":                       {kind(`paths: [image.url, volumes.image]`), ""},
		"machines by role and cluster": {with(`selector: {roles: [Worker], clusters: {matchLabels: {env: prod}}}`), ""},

		"nothing":                   {`{}`, "spec.selection: Required value"},
		"no mode":                   {`{selection: {}}`, "spec.selection.mode: Required value"},
		"another mode":              {`{selection: {mode: Some}}`, "Unsupported value"},
		"a part of what":            {`{selection: {mode: Partial}}`, "machines is needed for Partial"},
		"all of a part":             {`{selection: {mode: All, machines: {matchLabels: {pool: gpu}}}}`, "machines is needed for Partial"},
		"no version":                {with(`minimumVersion: latest`), "spec.minimumVersion"},
		"a version with more in it": {with(`minimumVersion: 1.36.0-rc.1`), "spec.minimumVersion"},
		"a pattern without a group": {with(`versionPattern: "\\d+"`), "versionPattern needs a group"},
		"a kind twice": {
			with(`kinds: [{group: example.com, kind: FooMachine, paths: [a]}, {group: example.com, kind: FooMachine, paths: [b]}]`), "Duplicate value",
		},
		"a path twice":         {kind(`paths: [a, a]`), "Duplicate value"},
		"a path with an index": {kind(`paths: ["a[0].b"]`), "paths"},
		"no path":              {kind(`paths: []`), "should have at least 1"},
		"the kind of templates": {
			with(`kinds: [{group: example.com, kind: FooMachineTemplate, paths: [a]}]`), "not of their templates",
		},
		"a group with a version": {with(`kinds: [{group: example.com/v1, kind: FooMachine, paths: [a]}]`), "group"},
		"a role that is none":    {with(`selector: {roles: [Master]}`), "spec.selector.roles"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := admit(t, definition, "{apiVersion: capi-refit.dev/v1alpha1, kind: BootImagePolicy, metadata: {name: p}, spec: "+test.spec+"}")
			if test.want == "" {
				require.Empty(t, errs)
				return
			}
			require.ErrorContains(t, errs.ToAggregate(), test.want)
		})
	}
}

// TestDocumentedBootImagePolicies holds the examples of the page to what an API server takes.
func TestDocumentedBootImagePolicies(t *testing.T) {
	definition := crd(t, bipFile)
	page, err := os.ReadFile("../../docs/boot-images.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?ms)^```yaml\n(# docs/examples/(boot-image-policy\\S*)\n.*?)^```$").FindAllStringSubmatch(string(page), -1)
	files, err := filepath.Glob("../../docs/examples/boot-image-policy*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	require.Len(t, blocks, len(files), "each file is on the page, and each example has a file")
	for _, block := range blocks {
		t.Run(block[2], func(t *testing.T) {
			file, err := os.ReadFile(filepath.Join("../../docs/examples", block[2]))
			require.NoError(t, err)
			require.Equal(t, string(file), block[1], "the page and the file differ")
			require.Empty(t, admit(t, definition, block[1]))
			var policy BootImagePolicy
			require.NoError(t, yaml.UnmarshalStrict(file, &policy))
			require.Equal(t, "BootImagePolicy", policy.Kind)
		})
	}
}

package rotation

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/updaters/image"
)

const docs = "../../../docs"

func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	require.NoError(t, err)
	return string(text)
}

// TestDocumentedExamples: the page has them as they are, and each tells an image.
func TestDocumentedExamples(t *testing.T) {
	page := read(t, docs, "golden-images.md")
	files, err := filepath.Glob(filepath.Join(docs, "examples", "golden-image*.yaml"))
	require.NoError(t, err)
	require.Len(t, files, 2)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text := read(t, file)
			require.Contains(t, page, "```yaml\n"+text+"```\n")
			first, second, found := strings.Cut(text, "---\n")
			require.True(t, found)
			var images corev1.ConfigMap
			var policy refitv1.BootImagePolicy
			require.NoError(t, yaml.UnmarshalStrict([]byte(first), &images))
			require.NoError(t, yaml.UnmarshalStrict([]byte(second), &policy))
			require.Equal(t, images.Name, policy.Spec.Rotation.ConfigMap)
			require.Equal(t, images.Namespace, policy.Namespace)
			_, err := newSelector(&policy.Spec)
			require.NoError(t, err)
			require.Empty(t, unknown(&policy.Spec))
			golden, err := documents{name: images.Name, data: images.Data}.find(policy.Spec.Rotation, "v1.36.1")
			require.NoError(t, err)
			require.NoError(t, bring(map[string]any{}, policy.Spec.Rotation.Template.Fields, golden))
		})
	}
}

// TestRights: refit has them for the kinds of the table of images, and for no others.
func TestRights(t *testing.T) {
	for file, suffix := range map[string]string{"template.go": "templates", "collect.go": "s"} {
		t.Run(file, func(t *testing.T) {
			_, rest, found := strings.Cut(read(t, file), "rbac:groups="+"infrastructure.cluster.x-k8s.io,resources=")
			require.True(t, found)
			resources, _, _ := strings.Cut(rest, ",verbs=")
			var want []string
			for _, k := range image.Table() {
				want = append(want, strings.ToLower(k.Kind)+suffix)
			}
			require.ElementsMatch(t, want, strings.Split(resources, ";"))
		})
	}
}

package apiserver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

const two = `# only a comment
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: one, namespace: here}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: two, namespace: here}
data: {a: b}
`

func manifests(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	return dir
}

func TestApply(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	dir := manifests(t, map[string]string{
		"b.yaml":             "apiVersion: v1\nkind: Namespace\nmetadata: {name: there}\n",
		"a.yaml":             two,
		"kustomization.yaml": "resources: [a.yaml, b.yaml]\n",
		"README.md":          "not a manifest",
	})
	for range 2 {
		objects, err := Apply(t.Context(), c, dir)
		require.NoError(t, err)
		var kinds []string
		for _, o := range objects {
			kinds = append(kinds, o.GetKind())
		}
		require.Equal(t, []string{"ServiceAccount", "ConfigMap", "Namespace"}, kinds)
	}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "here"}, &corev1.Namespace{}))
	cm := &corev1.ConfigMap{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "here", Name: "two"}, cm))
	require.Equal(t, map[string]string{"a": "b"}, cm.Data)
}

func TestApplyWithoutADirectory(t *testing.T) {
	objects, err := Apply(t.Context(), fake.NewClientBuilder().Build(), filepath.Join(t.TempDir(), "none"))
	require.NoError(t, err)
	require.Empty(t, objects)
}

func TestApplySaysWhatFailed(t *testing.T) {
	away := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return errors.New("away")
		},
	})
	for name, test := range map[string]struct{ content, want string }{
		"what is no YAML":               {"{", "reading "},
		"a Namespace that is not there": {two, "a.yaml: ServiceAccount one: making Namespace here: away"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Apply(t.Context(), away, manifests(t, map[string]string{"a.yaml": test.content}))
			require.ErrorContains(t, err, test.want)
		})
	}
}

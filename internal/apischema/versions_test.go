package apischema

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/capi-refit/refit/config/crd"
)

// TestDocumentedKubernetesVersion: the version from which on API servers take all rules is the one that the page says. A release takes new
// rules only with functions that the release before it had.
func TestDocumentedKubernetesVersion(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "install.md"))
	require.NoError(t, err)
	m := regexp.MustCompile(`management cluster \(Kubernetes 1\.(\d+) or later\)`).FindSubmatch(page)
	require.NotNil(t, m)
	minor, err := strconv.ParseUint(string(m[1]), 10, 32)
	require.NoError(t, err)
	require.Empty(t, refused(t, uint(minor)), "rules that the first release does not take")
	require.NotEmpty(t, refused(t, uint(minor)-1), "the release before takes them, too")
}

// refused returns the rules that a release of Kubernetes does not take.
func refused(t *testing.T, minor uint) (rules []string) {
	t.Helper()
	base := environment.MustBaseEnvSet(version.MajorMinor(1, minor-1))
	var walk func(s *structuralschema.Structural)
	walk = func(s *structuralschema.Structural) {
		results, err := cel.Compile(s, model.SchemaDeclType(s, s.XEmbeddedResource), celconfig.PerCallLimit, base, cel.NewExpressionsEnvLoader())
		require.NoError(t, err)
		for i, r := range results {
			if r.Error != nil {
				rules = append(rules, s.XValidations[i].Rule+": "+r.Error.Error())
			}
		}
		for _, property := range s.Properties {
			walk(&property)
		}
		if s.Items != nil {
			walk(s.Items)
		}
		if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
			walk(s.AdditionalProperties.Structural)
		}
	}
	files, err := fs.Glob(crd.Bases, "bases/*.yaml")
	require.NoError(t, err)
	for _, file := range files {
		data, err := crd.Bases.ReadFile(file)
		require.NoError(t, err)
		var definition apiextensionsv1.CustomResourceDefinition
		require.NoError(t, yaml.Unmarshal(data, &definition))
		s, err := newSchema(&definition)
		require.NoError(t, err)
		walk(s.structural)
	}
	return rules
}

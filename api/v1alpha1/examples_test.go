package v1alpha1

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExamplesOfKinds takes the examples that kubectl explain shows of each kind that people write.
func TestExamplesOfKinds(t *testing.T) {
	made := []string{"KnownHost", "MachineUpdate", "PendingChange"} // by refit
	files, err := filepath.Glob("../../config/crd/bases/*.yaml")
	require.NoError(t, err)
	for _, file := range files {
		definition := crd(t, file)
		kind := definition.Spec.Names.Kind
		t.Run(kind, func(t *testing.T) {
			props := definition.Spec.Validation
			if props == nil {
				props = definition.Spec.Versions[0].Schema
			}
			_, example, found := strings.Cut(props.OpenAPIV3Schema.Description, "\n\nFor example:\n\n")
			if !found {
				require.Contains(t, made, kind)
				return
			}
			example = strings.ReplaceAll("\n"+example, "\n\t", "\n")
			require.NotContains(t, example, "\t")
			require.Contains(t, example, "\nkind: "+kind+"\n")
			require.Empty(t, admit(t, definition, example))
		})
	}
}

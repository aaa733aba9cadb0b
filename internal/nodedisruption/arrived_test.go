package nodedisruption

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

func TestPoliciesThatAreNotReadYetAreMissing(t *testing.T) {
	w := newWorld(t)
	arrived := &refitv1.NodeDisruptionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "arrived", UID: "arrived", Generation: 2}}
	require.NoError(t, w.Create(t.Context(), arrived))
	missing, err := w.policies.Missing(t.Context(), w, "fleet")
	require.NoError(t, err)
	require.Equal(t, []string{"NodeDisruptionPolicy arrived"}, missing)

	require.NoError(t, w.policies.Prime(t.Context()))
	missing, err = w.policies.Missing(t.Context(), w, "fleet")
	require.NoError(t, err)
	require.Empty(t, missing)

	arrived.Generation++
	require.NoError(t, w.Update(t.Context(), arrived))
	missing, err = w.policies.Missing(t.Context(), w, "fleet")
	require.NoError(t, err)
	require.Len(t, missing, 1, "it is known as it was")
}

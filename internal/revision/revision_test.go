package revision

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestIs(t *testing.T) {
	a := &corev1.Secret{}
	a.UID, a.ResourceVersion = "a", "1"
	is := Of(a)
	require.True(t, is.Is(a))
	a.ResourceVersion = "2"
	require.False(t, is.Is(a))
	a.UID, a.ResourceVersion = "b", "1"
	require.False(t, is.Is(a), "another one of its name")
	require.False(t, Of(&corev1.Secret{}).Is(&corev1.Secret{}), "they do not tell")
}

func TestStanding(t *testing.T) {
	now, name := time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC), types.NamespacedName{Namespace: "a", Name: "b"}
	var s Standing[int]
	require.False(t, s.Stands(now, name, 0), "it was not made")
	s.Note(now, name, 1, now.Add(time.Minute))
	require.True(t, s.Stands(now, name, 1))
	require.False(t, s.Stands(now, name, 2))
	require.False(t, s.Stands(now, types.NamespacedName{Namespace: "b", Name: "b"}, 1))
	require.False(t, s.Stands(now.Add(time.Minute), name, 1))
	s.Note(now.Add(time.Minute), types.NamespacedName{Name: "c"}, 1, now.Add(time.Hour))
	require.Len(t, s.all, 1, "what no longer counts is forgotten")
}

package server

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHowManyFilesOfTheAuditLogAreKept(t *testing.T) {
	for text, want := range map[string]struct {
		file string
		keep int
	}{
		"": {"", 0}, "/a": {"/a", 0}, "/a,keep=6": {"/a", 6}, "/a,b": {"/a,b", 0}, "/a,keep=": {"/a,keep=", 0}, "/a,keep=6/b": {"/a,keep=6/b", 0},
	} {
		file, keep, err := (&auditFlags{file: text}).fileAndKeep()
		require.NoError(t, err)
		require.Equal(t, want.file, file)
		require.Equal(t, want.keep, keep)
	}
	_, _, err := (&auditFlags{file: "/a,keep=0"}).fileAndKeep()
	require.ErrorContains(t, err, "at least one file has to be kept")
	t.Setenv("POD_NAME", "refit-a")
	name, err := logName("/a")
	require.NoError(t, err)
	require.Equal(t, "refit-a", name)
	t.Setenv("POD_NAME", "")
	one, err := logName("/a")
	require.NoError(t, err)
	other, err := logName("/b")
	require.NoError(t, err)
	require.NotEqual(t, one, other)
}

package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestForeignProgramsAreNotRemembered(t *testing.T) {
	r := Root{Dir: t.TempDir()}
	at := filepath.Join(r.Dir, "/opt/talks")
	require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o750))
	require.NoError(t, os.WriteFile(at, []byte("#!/bin/sh\nyes line | head -n 100000 >&2\necho the end >&2\nexit 1\n"), 0o700))
	_, err := r.RunTelling(t.Context(), Command{Name: "/opt/talks", Foreign: true})
	var said *SaidError
	require.ErrorAs(t, err, &said)
	require.Len(t, said.Said, maxTail)
	require.EqualError(t, err, "/opt/talks: exit status 1: "+strings.Repeat("line; ", 2)+"the end")
	_, err = r.RunTelling(t.Context(), Command{Name: "/opt/none"})
	require.ErrorIs(t, err, ErrNoProgram)
}

func TestTail(t *testing.T) {
	var tail tail
	for _, part := range []string{strings.Repeat("a", maxTail-1), "bc", "", strings.Repeat("d", 3*maxTail) + "e"} {
		n, err := tail.Write([]byte(part))
		require.NoError(t, err)
		require.Equal(t, len(part), n)
		require.LessOrEqual(t, len(tail.Bytes()), maxTail)
	}
	require.Equal(t, strings.Repeat("d", maxTail-1)+"e", string(tail.Bytes()))
}

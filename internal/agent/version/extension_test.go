package version

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/agent/release"
)

const extensionLink = "/etc/extensions/kubernetes.raw"

// newExtended is a world whose Kubernetes is a system extension, with the genuine store of releases. An image is a directory.
func newExtended(t *testing.T) (*world, kind.Change) {
	t.Helper()
	w := newWorld(t)
	for _, v := range []string{oldVersion, newVersion} {
		w.Put(release.Dir+"/"+v+"/staged.json",
			fmt.Sprintf(`{"version": %q, "form": "extension", "extension": "kubernetes", "target": "/releases/%s"}`, v, v))
	}
	w.Program("systemd-sysext", `
[ -e $REFIT_ROOT/fail-refresh ] && { echo "no suitable extension" >&2; exit 1; }
cp $REFIT_ROOT$(readlink $REFIT_ROOT/etc/extensions/kubernetes.raw)/* $REFIT_ROOT/usr/bin/`)
	require.NoError(t, os.Mkdir(w.Path("/etc/extensions"), 0o750))
	w.lead(oldVersion)
	h := w.Host
	h.Clock, h.Units = w.clock, w
	w.kind = New(h, release.New(h))
	q := w.question(oldVersion, newVersion)
	q.Source = nil
	a, err := w.kind.Plan(t.Context(), q)
	require.NoError(t, err)
	require.Empty(t, a.Blocked)
	return w, kind.Change{Was: q.Was, Desired: q.Desired, Before: a.Before}
}

// lead has the link lead to the image of a version.
func (w *world) lead(version string) {
	w.Helper()
	w.remove(extensionLink)
	require.NoError(w, os.Symlink("/releases/"+version, w.Path(extensionLink)))
}

// What is merged does not tell what the next boot merges: that has to be the old image too once all is put back.
func TestUndoPutsBackWhatTheNextBootMerges(t *testing.T) {
	for name, fail := range map[string]func(w *world, c kind.Change){
		"the image can't be merged": func(w *world, c kind.Change) {
			w.Put("/fail-refresh", "")
			_, err := w.kind.Make(w.Context(), c)
			require.ErrorContains(w, err, "no suitable extension")
		},
		"dead between the link and the merge": func(w *world, _ kind.Change) { w.lead(newVersion) },
	} {
		t.Run(name, func(t *testing.T) {
			w, c := newExtended(t)
			fail(w, c)
			for range 2 {
				require.NoError(t, w.kind.Undo(t.Context(), c))
				leads, err := os.Readlink(w.Path(extensionLink))
				require.NoError(t, err)
				require.Equal(t, "/releases/"+oldVersion, leads)
				require.Equal(t, [2]string{oldVersion, oldVersion}, w.programs())
				require.Equal(t, oldVersion, w.runs())
				require.Empty(t, w.calls, "the kubelet was not touched")
			}
		})
	}
	w, c := newExtended(t)
	w.make(c)
	require.Equal(t, newVersion, w.runs())
	require.NoError(t, w.kind.Undo(t.Context(), c))
	require.Equal(t, oldVersion, w.runs())
}

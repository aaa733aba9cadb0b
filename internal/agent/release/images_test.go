package release

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/staticpod/staticpodtest"
	"github.com/capi-refit/refit/internal/node"
)

// withImages is a source of programs and of images.
func (x *fixture) withImages() node.Source {
	src := x.binaries()
	src.Images.Archives = []string{x.server.URL + "/a.tar?token=secret", x.server.URL + "/{version}/b.tar"}
	x.files["/a.tar"], x.files["/v1.36.3/b.tar"] = "images a", "images b"
	src.Checksums = append(src.Checksums, checksum("a.tar", "images a"), checksum("b.tar", "images b"))
	return src
}

func TestImageArchives(t *testing.T) {
	x := newFixture(t)
	x.script("ctr", `
for f; do :; done
[ "$f" = --help ] && { echo "   --local   run import locally"; exit; }
[ "$(cat $f)" = "images b" ] && [ -e $REFIT_ROOT/fail-import ] && { echo "ctr: no space" >&2; exit 1; }
cat $f >>$REFIT_ROOT/imported`)
	src := x.withImages()
	require.Equal(t, []string{"a.tar", "b.tar"}, x.missing(src)[3:])
	x.put("/fail-import", "", 0o644)
	err := x.stage(src)
	require.ErrorContains(t, err, "b.tar could not be imported")
	require.ErrorContains(t, err, "no space")
	require.Nil(t, x.find(target))

	require.NoError(t, os.Remove(x.path("/fail-import")))
	x.calls()
	require.NoError(t, x.stage(src))
	require.Empty(t, x.missing(src))
	require.Equal(t, "images aimages b", x.get("/imported"), "each is imported once")
	to := x.path(Dir + "/v1.36.3/images-" + sum("images b")[:12])
	require.Equal(t, []string{"ctr -n k8s.io images import --help", "ctr -n k8s.io images import --local " + to}, x.calls())
	entries, err := os.ReadDir(x.path(Dir + "/v1.36.3"))
	require.NoError(t, err)
	require.Len(t, entries, 4, "the archives are gone")

	// More images for a release that is complete leave it one.
	src.Images.Archives = append(src.Images.Archives, x.server.URL+"/c.tar")
	src.Checksums = append(src.Checksums, checksum("c.tar", "images c"))
	require.Equal(t, []string{"c.tar"}, x.missing(src))
	require.ErrorContains(t, x.stage(src), "answers 404")
	require.NotNil(t, x.find(target))
	x.files["/c.tar"] = "images c"
	require.NoError(t, x.stage(src))
	require.Equal(t, "images aimages bimages c", x.get("/imported"))
}

func TestImageArchivesOfAnOlderContainerd(t *testing.T) {
	x := newFixture(t)
	x.script("ctr", "")
	require.NoError(t, x.stage(x.withImages()))
	require.NotContains(t, x.calls(), "--local")
}

func TestImageArchivesWithoutContainerd(t *testing.T) {
	x := newFixture(t)
	require.ErrorContains(t, x.stage(x.withImages()), "use images.pull")
	require.NotContains(t, x.requests, "/a.tar", "what can't be imported is not fetched")
	x.script("ctr", "")
	x.store.free = func(string) (uint64, error) { return reserve + 12, nil }
	require.ErrorContains(t, x.stage(x.withImages()), "make room")
}

func TestPulling(t *testing.T) {
	x := newFixture(t)
	src := x.binaries()
	src.Images.Pull = true
	require.Equal(t, "images of the control plane", x.missing(src)[3])
	require.ErrorContains(t, x.stage(src), "kube-apiserver.yaml is missing")
	x.put(apiServerManifest, staticpodtest.Pod(apiServer, "kube-apiserver:v1.36.1"), 0o600)
	require.ErrorContains(t, x.stage(src), "not one of kube-apiserver in a registry")
	x.put(apiServerManifest, staticpodtest.Pod(apiServer, "mirror.example.com:5000/k8s/kube-apiserver:v1.36.1"), 0o600)
	require.NoError(t, x.stage(src))
	pulled := []string{"kubeadm config images pull --kubernetes-version v1.36.3 --image-repository mirror.example.com:5000/k8s"}
	require.Equal(t, pulled, x.calls())
	require.NoError(t, x.stage(src))
	require.Empty(t, x.calls())
	require.Empty(t, x.missing(src))

	x = newFixture(t)
	src.Binaries.URL = x.server.URL + "/{version}/{name}"
	require.NoError(t, x.store.Stage(t.Context(), src, false, nil), "a worker needs none of them")
	require.Empty(t, x.missing(src))
	require.Empty(t, x.calls())
}

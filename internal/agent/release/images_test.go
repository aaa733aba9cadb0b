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
	x.Put("/fail-import", "")
	err := x.stage(src)
	require.ErrorContains(t, err, "b.tar could not be imported")
	require.ErrorContains(t, err, "no space")
	require.Nil(t, x.find(target))

	require.NoError(t, os.Remove(x.Path("/fail-import")))
	x.calls()
	require.NoError(t, x.stage(src))
	require.Empty(t, x.missing(src))
	require.Equal(t, "images aimages b", x.Get("/imported"), "each is imported once")
	to := x.Path(Dir + "/v1.36.3/images-" + sum("images b")[:12])
	require.Equal(t, []string{"ctr -n k8s.io images import --help", "ctr -n k8s.io images import --local " + to}, x.calls())
	entries, err := os.ReadDir(x.Path(Dir + "/v1.36.3"))
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
	require.Equal(t, "images aimages bimages c", x.Get("/imported"))
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
	x.PutMode(apiServerManifest, staticpodtest.Pod(apiServer, "kube-apiserver:v1.36.1"), 0o600)
	require.ErrorContains(t, x.stage(src), "not one of kube-apiserver in a registry")
	x.PutMode(apiServerManifest, staticpodtest.Pod(apiServer, "mirror.example.com:5000/k8s/kube-apiserver:v1.36.1"), 0o600)
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

func TestPullingFromARegistryThatIsAway(t *testing.T) {
	x := newFixture(t)
	x.PutMode(apiServerManifest, staticpodtest.Pod(apiServer, "mirror.example.com/kube-apiserver:v1.36.1"), 0o600)
	// kubeadm says it like this.
	x.files["/v1.36.3/kubeadm"] = program(kubeadm, target) + `[ -e $REFIT_ROOT/away ] || exit 0
cat >&2 <<'EOC'
E1121 17:00:00.000000     123 log.go:32] "PullImage from image service failed" err="..." image="mirror.example.com/kube-apiserver:v1.36.3"
error: failed to pull image "mirror.example.com/kube-apiserver:v1.36.3": proxyconnect http://kate:hunter2@proxy.example:3128: token abcdef.0123456789abcdef: 503 Service Unavailable
To see the stack trace of this error execute with --v=5 or higher
EOC
exit 1
`
	src := x.binaries()
	src.Checksums[0] = checksum(kubeadm, x.files["/v1.36.3/kubeadm"])
	src.Images.Pull = true
	x.Put("/away", "")
	err := x.stage(src)
	require.ErrorContains(t, err, "could not be pulled from mirror.example.com: ")
	require.ErrorContains(t, err, ": 503 Service Unavailable", "the cause is told, and is not the last line")
	require.NotContains(t, err.Error(), "stack trace")
	require.NotContains(t, err.Error(), "hunter2")
	require.NotContains(t, err.Error(), "0123456789abcdef")
	require.Nil(t, x.find(target))

	require.NoError(t, os.Remove(x.Path("/away")))
	asked := len(x.requests)
	require.NoError(t, x.stage(src))
	require.NotNil(t, x.find(target))
	require.Len(t, x.requests, asked, "the programs are not fetched again")
}

// containerd stands in for ctr: it lists what was imported and not collected since, and says of an import what the genuine one does.
const containerd = `
for f; do :; done
case "$*" in
"-n k8s.io images ls -q") [ ! -e $REFIT_ROOT/away ] || exit 1; cat $REFIT_ROOT/listed;;
*--help) ;;
*)
	name="registry.example/$(tr ' ' - <$f):v1.36.3"
	echo "$name" >>$REFIT_ROOT/listed
	echo "unpacking $name (sha256:0123)...done";;
esac`

func TestImagesThatTheKubeletHasCollected(t *testing.T) {
	x := newFixture(t)
	x.script("ctr", containerd)
	x.Put("/listed", "registry.example/pause:3.10\n")
	src := x.withImages()
	require.NoError(t, x.stage(src))
	require.Empty(t, x.missing(src))
	asked := len(x.requests)

	x.Put("/listed", "registry.example/pause:3.10\nregistry.example/images-b:v1.36.3\n")
	x.Put("/away", "")
	require.Empty(t, x.missing(src), "what can't be asked counts as there")
	require.NoError(t, os.Remove(x.Path("/away")))
	require.Equal(t, []string{"a.tar"}, x.missing(src))
	require.NotNil(t, x.find(target), "the programs are there all the same")
	require.NoError(t, x.stage(src))
	require.Equal(t, []string{"/a.tar"}, x.requests[asked:], "only what is gone is fetched again")
	require.Contains(t, x.Get("/listed"), "registry.example/images-a:v1.36.3")
	require.Empty(t, x.missing(src))
	require.NotNil(t, x.find(target))
}

// TestImagesOfWhichTheNamesAreNotKnown has a record that does not say what was in an archive, as older agents wrote it.
func TestImagesOfWhichTheNamesAreNotKnown(t *testing.T) {
	for name, ctr := range map[string]string{
		"an import that says nothing":                `[ "$5" = -q ] || exit 0`,
		"an import that says other names":            `[ "$5" = -q ] && echo registry.example/a:v1.36.3 || echo unpacking docker.io/a`,
		"a containerd that does not list its images": `[ "$5" != -q ] || exit 1; echo unpacking registry.example/a:v1.36.3`,
	} {
		t.Run(name, func(t *testing.T) {
			x := newFixture(t)
			x.script("ctr", ctr)
			src := x.withImages()
			require.NoError(t, x.stage(src))
			require.NotContains(t, x.Get(Dir+"/v1.36.3/staged.json"), `"images"`)
			x.script("ctr", "")
			require.Empty(t, x.missing(src))
		})
	}
}

package release

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/node"
)

// Stand-ins for systemd's programs. An image is an archive of tar.
const (
	systemdSysext = `
[ -e $REFIT_ROOT/fail-refresh ] && { echo "no suitable extension" >&2; exit 1; }
image=$(readlink $REFIT_ROOT/etc/extensions/kubernetes.raw)
tar -xf $REFIT_ROOT$image -C $REFIT_ROOT`
	systemdDissect = `[ -e $REFIT_ROOT/fail-dissect ] && exit 1; tar -xOf $2 .$3 >$4 2>/dev/null`
)

// image is one with the programs of a version in it.
func image(t *testing.T, version string) string {
	var files []packed
	for _, name := range Programs {
		files = append(files, packed{name: "./usr/bin/" + name, content: program(name, version), mode: 0o755})
	}
	return tarred(t, files...)
}

func newSysext(t *testing.T) (*fixture, node.Source) {
	t.Helper()
	x := newFixture(t)
	x.script("systemd-sysext", systemdSysext)
	x.script("systemd-dissect", systemdDissect)
	x.Put("/opt/extensions/kubernetes-v1.36.1.raw", image(t, before))
	require.NoError(t, os.MkdirAll(x.Path("/etc/extensions"), 0o755))
	require.NoError(t, os.Symlink("/opt/extensions/kubernetes-v1.36.1.raw", x.Path("/etc/extensions/kubernetes.raw")))
	content := image(t, target)
	x.files["/kubernetes-v1.36.3.raw"] = content
	// The programs are on a read-only file system.
	x.store.writable = func(string) error { return os.ErrPermission }
	return x, node.Source{
		Name: "inside", Version: target, Checksums: []node.Checksum{checksum("kubernetes-v1.36.3.raw", content)},
		SystemExtension: &node.SystemExtension{URL: x.server.URL + "/kubernetes-{version}.raw", Name: "kubernetes"},
	}
}

func (x *fixture) leads() string {
	x.Helper()
	to, err := os.Readlink(x.Path("/etc/extensions/kubernetes.raw"))
	require.NoError(x, err)
	return to
}

func TestSystemExtensions(t *testing.T) {
	x, src := newSysext(t)
	require.Equal(t, []string{"system extension kubernetes v1.36.3"}, x.missing(src))
	require.NoError(t, x.stage(src))
	require.Empty(t, x.missing(src))
	require.Equal(t, &Release{Version: target, Kubeadm: x.Path(Dir + "/v1.36.3/kubeadm"), Extension: true}, x.find(target))
	require.Equal(t, &Release{Version: before, Extension: true}, x.find(before))
	require.Equal(t, "/opt/extensions/kubernetes-v1.36.1.raw", x.leads(), "staging disturbs nothing")
	x.calls()

	require.NoError(t, x.install(target, kubeadm))
	require.Equal(t, "v1.36.3,v1.36.3,v1.36.3", x.versions(), "an extension brings all of them")
	require.Equal(t, Dir+"/v1.36.3/kubernetes.raw", x.leads())
	require.NoError(t, x.install(target, kubelet, kubectl))
	require.Equal(t, []string{"systemd-sysext refresh"}, x.calls(), "nothing is done twice")
	require.NoError(t, x.store.Prune())
	require.NotNil(t, x.find(target), "the node uses it")
	require.Nil(t, x.find(before))
}

func TestSystemExtensionsGoBack(t *testing.T) {
	x, src := newSysext(t)
	require.NoError(t, x.stage(src))
	require.NoError(t, x.install(target, kubelet))
	require.NoError(t, x.install(before, kubelet))
	require.Equal(t, "/opt/extensions/kubernetes-v1.36.1.raw", x.leads())
	require.Equal(t, "v1.36.1,v1.36.1,v1.36.1", x.versions())
	require.NoError(t, x.install(target, kubelet))
	require.NoError(t, os.Remove(x.Path("/opt/extensions/kubernetes-v1.36.1.raw")))
	require.ErrorContains(t, x.install(before, kubelet), "is gone")

	x, src = newSysext(t)
	require.NoError(t, os.Remove(x.Path("/etc/extensions/kubernetes.raw")))
	x.Put("/etc/extensions/kubernetes.raw", image(t, before))
	require.NoError(t, x.stage(src))
	require.NoError(t, x.install(target, kubelet))
	require.NoError(t, x.install(before, kubelet))
	require.Equal(t, Dir+"/v1.36.1/kubernetes.raw", x.leads(), "one that was no link is kept as a copy")
	require.Equal(t, "v1.36.1,v1.36.1,v1.36.1", x.versions())
}

func TestSystemExtensionsOfAnotherNameAreNotAdded(t *testing.T) {
	x, src := newSysext(t)
	require.NoError(t, x.stage(src))
	src.SystemExtension.Name = "k8s"
	require.ErrorContains(t, x.stage(src), "the node has no /etc/extensions/k8s.raw")
	require.Nil(t, x.find(target))
}

// Whatever systemd-sysext does, the next boot merges what was merged before, and the next call goes on.
func TestSystemExtensionsThatWereNotMerged(t *testing.T) {
	const old = "/opt/extensions/kubernetes-v1.36.1.raw"
	x, src := newSysext(t)
	require.NoError(t, x.stage(src))
	x.Put("/fail-refresh", "")
	require.ErrorContains(t, x.install(target, kubelet), "no suitable extension")
	require.Equal(t, old, x.leads())
	require.Equal(t, "v1.36.1,v1.36.1,v1.36.1", x.versions())
	require.NoError(t, os.Remove(x.Path("/fail-refresh")))
	require.NoError(t, os.Symlink("nowhere", x.Path("/etc/extensions/.refit-link.tmp")))
	require.NoError(t, x.install(target, kubelet))
	require.Equal(t, "v1.36.3,v1.36.3,v1.36.3", x.versions())
	require.NoError(t, x.install(before, kubelet))
	left, err := filepath.Glob(x.Path("/etc/extensions/.*"))
	require.NoError(t, err)
	require.Empty(t, left)

	require.NoError(t, x.install(target, kubelet))
	x.Put("/fail-refresh", "")
	require.ErrorContains(t, x.install(before, kubelet), "no suitable extension")
	require.Equal(t, old, x.leads(), "going back does not end at the new one")
	require.NoError(t, os.Remove(x.Path("/fail-refresh")))

	require.NoError(t, x.install(before, kubelet))
	x.script("systemd-sysext", "")
	require.ErrorContains(t, x.install(target, kubelet), "the node's kubelet is v1.36.1, with system extension kubernetes merged: is it for this system")
	require.Equal(t, old, x.leads())

	x.script("systemd-sysext", "rm $REFIT_ROOT/usr/bin/kubelet") // as if it had unmerged the old one, and merged nothing
	err = x.install(target, kubelet)
	require.ErrorContains(t, err, "the node has no kubelet")
	require.ErrorContains(t, err, "is it for this system")
	require.Equal(t, old, x.leads())
	x.script("systemd-sysext", systemdSysext)
	require.NoError(t, x.install(before, kubelet))
	require.Equal(t, "v1.36.1,v1.36.1,v1.36.1", x.versions())
}

// Dead between the link and the merge: the old programs are merged, and the next boot would merge the new ones.
func TestSystemExtensionsAfterDeathBeforeTheMerge(t *testing.T) {
	for version, leads := range map[string]string{before: "/opt/extensions/kubernetes-v1.36.1.raw", target: Dir + "/v1.36.3/kubernetes.raw"} {
		x, src := newSysext(t)
		require.NoError(t, x.stage(src))
		require.NoError(t, os.Remove(x.Path("/etc/extensions/kubernetes.raw")))
		require.NoError(t, os.Symlink(Dir+"/v1.36.3/kubernetes.raw", x.Path("/etc/extensions/kubernetes.raw")))
		require.NoError(t, x.install(version, kubelet))
		require.Equal(t, leads, x.leads())
		require.Equal(t, strings.Repeat(version+",", 2)+version, x.versions())
	}
}

func TestForward(t *testing.T) {
	require.True(t, forward("v1.36.9", "v1.36.10"))
	require.True(t, forward("v1.37.0-rc.1", "v1.37.0"))
	require.False(t, forward("v1.37.0", "v1.37.0-rc.1"))
	require.False(t, forward("v1.36.3", "v1.36.3"))
	require.False(t, forward("", "v1.36.3"), "it is not known")
}

// An image that was no link went away with it, so its copy is what the next boot merges.
func TestSystemExtensionsThatWereNoLinkAndWereNotMerged(t *testing.T) {
	x, src := newSysext(t)
	require.NoError(t, os.Remove(x.Path("/etc/extensions/kubernetes.raw")))
	x.Put("/etc/extensions/kubernetes.raw", image(t, before))
	require.NoError(t, x.stage(src))
	x.Put("/fail-refresh", "")
	require.ErrorContains(t, x.install(target, kubelet), "no suitable extension")
	require.Equal(t, Dir+"/v1.36.1/kubernetes.raw", x.leads())
}

func TestSystemExtensionsThatCannotBeUsed(t *testing.T) {
	for name, c := range map[string]struct {
		change func(x *fixture, src *node.Source)
		err    string
	}{
		"another version": {func(x *fixture, src *node.Source) {
			x.files["/kubernetes-v1.36.3.raw"] = image(x.T, "v1.36.2")
			src.Checksums[0].SHA256 = sum(x.files["/kubernetes-v1.36.3.raw"])
		}, `kubeadm is of version "v1.36.2"`},
		"a checksum of nothing": {func(_ *fixture, src *node.Source) { src.Checksums[0].SHA256 = sum("") }, "it is not used"},
		"no checksum":           {func(_ *fixture, src *node.Source) { src.Checksums = nil }, "no checksum of kubernetes-v1.36.3.raw"},
		"a name with a path":    {func(_ *fixture, src *node.Source) { src.SystemExtension.Name = "../x" }, "not the name of a system extension"},
		"another one":           {func(_ *fixture, src *node.Source) { src.SystemExtension.Name = "k8s" }, "the node has no /etc/extensions/k8s.raw"},
		"no systemd-sysext":     {func(x *fixture, _ *node.Source) { require.NoError(x, os.Remove(x.Path("/usr/bin/systemd-sysext"))) }, "no such program"},
		"images to be pulled": {func(x *fixture, src *node.Source) {
			x.Put("/fail-dissect", "")
			src.Images.Pull = true
		}, "use images.archives"},
	} {
		t.Run(name, func(t *testing.T) {
			x, src := newSysext(t)
			c.change(x, &src)
			require.ErrorContains(t, x.stage(src), c.err)
			require.Nil(t, x.find(target))
		})
	}
}

func TestSystemExtensionsThatCannotBeLookedInto(t *testing.T) {
	x, src := newSysext(t)
	require.NoError(t, os.Remove(x.Path("/usr/bin/systemd-dissect")))
	require.NoError(t, x.stage(src))
	require.Equal(t, &Release{Version: target, Extension: true}, x.find(target))
	x.PutMode(Dir+"/v1.36.3/kubernetes.raw", image(t, "v1.36.2"), 0o600) // as long as before
	require.ErrorContains(t, x.install(target, kubelet), "no longer what was staged")
}

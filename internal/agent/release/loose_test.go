package release

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/node"
)

// inArchive is a source of an archive that the server has.
func (x *fixture) inArchive(content string) node.Source {
	x.files["/node.tar.gz"] = content
	return node.Source{
		Name: "inside", Version: target, Archive: &node.Archive{URL: x.server.URL + "/node.tar.gz"},
		Checksums: []node.Checksum{{Name: "node.tar.gz", SHA256: sum(content)}},
	}
}

// contents are those of an archive as Kubernetes publishes them.
func contents() []packed {
	return []packed{
		{name: "kubernetes/node/bin", kind: tar.TypeDir, mode: 0o755},
		{name: "kubernetes/node/bin/kubeadm", content: program(kubeadm, target), mode: 0o755},
		{name: "kubernetes/node/bin/kubelet", content: program(kubelet, target), mode: 0o755},
		{name: "kubernetes/node/bin/kube-proxy", content: "other", mode: 0o755},
		{name: "kubernetes/completion/kubelet", content: "other", mode: 0o644},
		{name: "kubernetes/LICENSES", content: "other", mode: 0o644},
	}
}

func TestArchives(t *testing.T) {
	for name, c := range map[string]struct {
		content func(t *testing.T) string
		kubectl string
		err     string
	}{
		"compressed":     {func(t *testing.T) string { return gzipped(t, tarred(t, contents()...)) }, "(missing)", ""},
		"not compressed": {func(t *testing.T) string { return tarred(t, contents()...) }, "(missing)", ""},
		"with kubectl": {func(t *testing.T) string {
			return tarred(t, append(contents(), packed{name: "./kubectl", content: program(kubectl, target), mode: 0o555})...)
		}, program(kubectl, target), ""},
		"without kubelet": {func(t *testing.T) string { return tarred(t, contents()[:2]...) }, "", "it has no kubelet"},
		"with a kubelet that can't be run": {func(t *testing.T) string {
			return tarred(t, append(contents()[:2], packed{name: "kubelet", content: "#!", mode: 0o644})...)
		}, "", "it has no kubelet"},
		"with a link for kubelet": {func(t *testing.T) string {
			return tarred(t, append(contents()[:2], packed{name: "kubelet", content: "/etc/shadow", mode: 0o755, kind: tar.TypeSymlink})...)
		}, "", "it has no kubelet"},
		"with two kubelets": {func(t *testing.T) string {
			return tarred(t, append(contents(), packed{name: "old/kubelet", content: "#!", mode: 0o755})...)
		}, "", "it has kubelet twice"},
		"with a name that leads out of it": {func(t *testing.T) string {
			return tarred(t, append(contents(), packed{name: "../../usr/bin/kubectl", content: "#!", mode: 0o755})...)
		}, "", "leads out of it"},
		"cut off": {func(t *testing.T) string { return tarred(t, contents()...)[:1800] }, "", "not a whole tar archive"},
		"cut off, compressed": {func(t *testing.T) string {
			all := gzipped(t, tarred(t, contents()...))
			return all[:len(all)-20]
		}, "", "unexpected EOF"},
		"none": {func(*testing.T) string { return strings.Repeat("not an archive", 99) }, "", "not a whole tar archive"},
		"of another version": {func(t *testing.T) string {
			all := contents()
			all[1].content = program(kubeadm, "v1.35.0")
			return tarred(t, all...)
		}, "", `kubeadm is of version "v1.35.0"`},
	} {
		t.Run(name, func(t *testing.T) {
			x := newFixture(t)
			src := x.inArchive(c.content(t))
			require.Equal(t, []string{"kubeadm v1.36.3", "kubelet v1.36.3"}, x.missing(src))
			err := x.stage(src)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				require.Nil(t, x.find(target))
				require.NotEmpty(t, x.missing(src))
				return
			}
			require.NoError(t, err)
			require.Empty(t, x.missing(src))
			require.Equal(t, c.kubectl, x.Get(Dir+"/v1.36.3/kubectl"))
			require.Equal(t, "(missing)", x.Get(Dir+"/v1.36.3/archive"))
			require.Equal(t, "(missing)", x.Get(Dir+"/v1.36.3/kube-proxy"))
			require.NoError(t, x.install(target, Programs...))
			want := "v1.36.3,v1.36.3," + map[bool]string{true: before, false: target}[c.kubectl == "(missing)"]
			require.Equal(t, want, x.versions())
			src.Checksums[0].SHA256 = sum("another archive")
			require.NotEmpty(t, x.missing(src))
		})
	}
}

func TestDirectories(t *testing.T) {
	x := newFixture(t)
	src := x.binaries()
	src.Binaries, src.Directory = nil, &node.Directory{Path: "/srv/{version}"}
	require.ErrorContains(t, x.stage(src), "the node has no /srv/v1.36.3/kubeadm")
	for _, name := range Programs {
		x.Put("/srv/v1.36.3/"+name, program(name, target))
	}
	x.PutMode("/srv/v1.36.3/kubelet", "another one", 0o755)
	require.ErrorContains(t, x.stage(src), "it is not used")
	require.Equal(t, "(missing)", x.Get(Dir+"/v1.36.3/kubelet"))
	x.PutMode("/srv/v1.36.3/kubelet", program(kubelet, target), 0o755)
	require.NoError(t, x.stage(src))
	require.NoError(t, x.install(target, Programs...))
	require.Equal(t, "v1.36.3,v1.36.3,v1.36.3", x.versions())

	src.Checksums = src.Checksums[:2]
	require.Empty(t, x.missing(src), "kubectl is one of the source only by its checksum")
}

func TestProgramsAreReplacedWhereTheyAre(t *testing.T) {
	x := newFixture(t)
	for _, name := range Programs {
		require.NoError(t, os.Remove(x.Path("/usr/bin/"+name)))
	}
	x.PutMode("/opt/kubernetes/kubelet", program(kubelet, before), 0o700)
	x.PutMode("/usr/local/bin/kubeadm", program(kubeadm, before), 0o755)
	require.NoError(t, os.Symlink("/opt/kubernetes/kubelet", x.Path("/usr/bin/kubelet")))
	require.NoError(t, x.stage(x.binaries()))
	for range 2 {
		require.NoError(t, x.install(target, Programs...))
		require.Equal(t, program(kubelet, target), x.Get("/opt/kubernetes/kubelet"))
		require.Equal(t, program(kubeadm, target), x.Get("/usr/local/bin/kubeadm"))
		require.Equal(t, "(missing)", x.Get("/usr/bin/kubectl"), "a node without kubectl stays without")
	}
	to, err := os.Readlink(x.Path("/usr/bin/kubelet"))
	require.NoError(t, err)
	require.Equal(t, "/opt/kubernetes/kubelet", to)
	info, err := os.Stat(x.Path("/opt/kubernetes/kubelet"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), info.Mode().Perm())

	was, err := os.Stat(x.Path("/usr/local/bin/kubeadm"))
	require.NoError(t, err)
	require.NoError(t, x.install(target, kubeadm))
	now, err := os.Stat(x.Path("/usr/local/bin/kubeadm"))
	require.NoError(t, err)
	require.True(t, os.SameFile(was, now), "what is there already stays")
}

func TestWhatWasAlteredIsNotInstalled(t *testing.T) {
	x := newFixture(t)
	require.NoError(t, x.stage(x.binaries()))
	other := strings.Replace(program(kubelet, target), "echo", "eval", 1) // as long as before
	x.PutMode(Dir+"/v1.36.3/kubelet", other, 0o700)
	require.ErrorContains(t, x.install(target, kubelet), "has to be")
	require.Equal(t, program(kubelet, before), x.Get("/usr/bin/kubelet"))
	left, err := filepath.Glob(x.Path("/usr/bin/.refit*"))
	require.NoError(t, err)
	require.Empty(t, left)

	x.PutMode(Dir+"/v1.36.3/kubelet", "shorter", 0o700)
	require.Nil(t, x.find(target), "without its kubelet it is no release")
	require.NotEmpty(t, x.missing(x.binaries()))
	require.NoError(t, x.stage(x.binaries()))
	require.NoError(t, x.install(target, kubelet))
	require.ErrorContains(t, x.install(target, "kube-proxy"), `"kube-proxy" is none of`)
	require.ErrorContains(t, x.install("v1.36.2", kubelet), "has to be staged first")
}

func TestAKubeadmOfAnotherVersionIsNotKept(t *testing.T) {
	x := newFixture(t)
	x.PutMode("/usr/bin/kubeadm", program(kubeadm, "v1.36.2"), 0o755)
	require.NoError(t, x.stage(x.binaries()))
	require.Equal(t, &Release{Version: before}, x.find(before))
	require.ErrorContains(t, x.install(before, kubeadm), "the release has no kubeadm")
}

func TestAKubeadmThatIsMissingComesBesideTheKubelet(t *testing.T) {
	x := newFixture(t)
	require.NoError(t, os.Remove(x.Path("/usr/bin/kubeadm")))
	require.NoError(t, x.stage(x.binaries()))
	require.NoError(t, x.install(target, kubeadm))
	require.Equal(t, program(kubeadm, target), x.Get("/usr/bin/kubeadm"))
}

func TestPrune(t *testing.T) {
	x := newFixture(t)
	require.NoError(t, x.store.Prune("v1.36.3"), "nothing was ever staged")
	require.NoError(t, x.stage(x.binaries()))
	x.PutMode(Dir+"/v1.36.0/staged.json", `{"version":"v1.36.0"}`, 0o600)
	x.PutMode(Dir+"/v1.35.9/image.raw", "", 0o600)
	require.NoError(t, os.MkdirAll(x.Path("/etc/extensions"), 0o755))
	require.NoError(t, os.Symlink(Dir+"/v1.35.9/image.raw", x.Path("/etc/extensions/image.raw")))
	x.PutMode(Dir+"/notes/of-somebody", "", 0o600)
	require.NoError(t, x.stage(x.binaries()), "makes room: one goes back from the one that is installed only")
	require.NoDirExists(t, x.Path(Dir+"/v1.36.0"))
	require.NoError(t, x.store.Prune(before, target))
	require.NotNil(t, x.find(before))
	require.NoError(t, x.store.Prune(target))
	names, err := filepath.Glob(x.Path(Dir + "/*"))
	require.NoError(t, err)
	require.Equal(t, []string{x.Path(Dir + "/notes"), x.Path(Dir + "/v1.35.9"), x.Path(Dir + "/v1.36.3")}, names)
}

// cpioOf makes an archive as rpm2cpio does.
func cpioOf(files ...packed) string {
	var b bytes.Buffer
	add := func(f packed) {
		fmt.Fprintf(&b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", 0, f.mode, 0, 0, 1, 0, len(f.content), 0, 0, 0, 0, len(f.name)+1, 0)
		b.WriteString(f.name + "\x00")
		b.Write(make([]byte, -b.Len()&3))
		b.WriteString(f.content)
		b.Write(make([]byte, -b.Len()&3))
	}
	for _, f := range files {
		add(f)
	}
	add(packed{name: "TRAILER!!!"})
	return b.String()
}

func TestReadCPIO(t *testing.T) {
	all := cpioOf(packed{"./usr/bin", "", 0o40755, 0}, packed{"./usr/bin/kubelet", "one", 0o100755, 0}, packed{"./usr/bin/kubeadm", "three", 0o100755, 0})
	var found []string
	read := func(text string) error {
		found = nil
		return readCPIO(strings.NewReader(text), func(e entry) error {
			data, err := io.ReadAll(e.data)
			found = append(found, fmt.Sprintf("%s %s %s", e.name, e.program(), data))
			return err
		})
	}
	require.NoError(t, read(all))
	require.Equal(t, []string{"./usr/bin/kubelet kubelet one", "./usr/bin/kubeadm kubeadm three"}, found)
	for n := range len(all) - 4 {
		require.Error(t, read(all[:n]), n)
	}
	require.ErrorContains(t, read("070707"+all[6:]), "invalid cpio header")
	require.ErrorContains(t, read(all[:94]+"ffffffff"+all[102:]), "invalid cpio header")
	require.ErrorContains(t, read(all[:54]+"-0000001"+all[62:]), "less than no bytes")
	require.NoError(t, read(cpioOf(packed{"./usr/bin/kubelet", "one", 0o104755, 0})))
	require.Equal(t, []string{"./usr/bin/kubelet kubelet one"}, found, "a bit more of the mode makes it no other kind of file")
}

func FuzzArchives(f *testing.F) {
	f.Add([]byte(tarred(f, contents()...)))
	f.Add([]byte(gzipped(f, tarred(f, contents()...))))
	one := cpioOf(packed{"./usr/bin/kubelet", "one", 0o100755, 0})
	f.Add([]byte(one))
	f.Add([]byte(one[:54] + "-0000001" + one[62:]))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, read := range []func(io.Reader, func(entry) error) error{readTar, readCPIO} {
			total := int64(0)
			_ = read(bytes.NewReader(data), func(e entry) error {
				if name := e.program(); name != "" {
					require.Contains(t, Programs, name)
				}
				n, err := io.Copy(io.Discard, e.data)
				require.LessOrEqual(t, n, e.size)
				total += n
				return err
			})
			require.LessOrEqual(t, total, int64(maxUnpacked))
		}
	})
}

func FuzzRecord(f *testing.F) {
	f.Add(`{"version":"v1.36.3","form":"programs","files":[{"name":"kubelet","sha256":"` + sum("") + `","size":1}]}`)
	f.Add(`{"version":"v1.36.3","form":"apt","files":[{"name":"../../kubelet","sha256":"` + sum("") + `"}],"packages":[{"name":"kubelet","file":"x"}]}`)
	f.Add(`{"version":"v1.36.3","form":"extension","extension":"../x"}`)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parseRecord([]byte(text), target)
		if err != nil {
			return
		}
		require.Equal(t, target, r.Version)
		for _, one := range r.Files {
			require.True(t, strings.HasPrefix(filepath.Join("/store/v1.36.3", one.Name), "/store/v1.36.3/"), one.Name)
		}
		for _, p := range r.Packages {
			require.NotNil(t, r.file(p.File))
		}
		require.NotContains(t, r.Extension, "/")
	})
}

func TestADamagedRecordIsNone(t *testing.T) {
	x := newFixture(t)
	require.NoError(t, x.stage(x.binaries()))
	x.PutMode(Dir+"/v1.36.3/staged.json", `{"version":"v1.36.3","form":"programs","files":[{"na`, 0o600)
	require.Nil(t, x.find(target))
	require.Len(t, x.missing(x.binaries()), 3)
	require.NoError(t, x.stage(x.binaries()))
	require.NotNil(t, x.find(target))
}

func TestInstallingThatIsCalledOff(t *testing.T) {
	x := newFixture(t)
	require.NoError(t, x.stage(x.binaries()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := x.store.Install(ctx, target, Programs...)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, "v1.36.1,v1.36.1,v1.36.1", x.versions())
	x.PutMode("/usr/bin/.refit-1.tmp", "half", 0o600) // as if the agent had died while it wrote
	require.NoError(t, x.install(target, Programs...))
	require.Equal(t, "v1.36.3,v1.36.3,v1.36.3", x.versions())
	require.Equal(t, "(missing)", x.Get("/usr/bin/.refit-1.tmp"))
}

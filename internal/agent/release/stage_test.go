package release

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/staticpod"
	"github.com/capi-refit/refit/internal/agent/staticpod/staticpodtest"
	"github.com/capi-refit/refit/internal/node"
)

func TestBinariesAreStagedAndInstalledAndTakenBack(t *testing.T) {
	x := newFixture(t)
	src := x.binaries()
	require.Equal(t, []string{"kubeadm v1.36.3", "kubelet v1.36.3", "kubectl v1.36.3"}, x.missing(src))
	require.Nil(t, x.find(target))

	require.NoError(t, x.stage(src))
	require.Empty(t, x.missing(src))
	require.Equal(t, &Release{Version: target, Kubeadm: x.Path(Dir + "/v1.36.3/kubeadm")}, x.find(target))
	require.Equal(t, &Release{Version: before, Kubeadm: x.Path(Dir + "/v1.36.1/kubeadm")}, x.find(before))
	require.Equal(t, "v1.36.1,v1.36.1,v1.36.1", x.versions(), "staging disturbs nothing")
	entries, err := os.ReadDir(x.Path(Dir + "/v1.36.3"))
	require.NoError(t, err)
	require.Len(t, entries, 4, "the programs and the record")

	asked := len(x.requests)
	require.NoError(t, x.stage(src))
	require.Len(t, x.requests, asked, "what is there is not fetched again")

	require.NoError(t, x.install(target, kubeadm))
	require.Equal(t, "v1.36.3,v1.36.1,v1.36.1", x.versions())
	require.NoError(t, x.install(target, kubelet, kubectl))
	require.Equal(t, "v1.36.3,v1.36.3,v1.36.3", x.versions())
	require.NoError(t, x.install(before, Programs...))
	require.Equal(t, "v1.36.1,v1.36.1,v1.36.1", x.versions())
}

func TestSourcesThatCannotBeUsed(t *testing.T) {
	for name, c := range map[string]struct {
		change func(x *fixture, src *node.Source)
		err    string
	}{
		"no checksum": {func(_ *fixture, src *node.Source) { src.Checksums = src.Checksums[:1] }, "no checksum of kubelet for"},
		"a checksum for another architecture": {func(_ *fixture, src *node.Source) { src.Checksums[0].Architecture = "s390x" },
			"no checksum of kubeadm for"},
		"a checksum that is none": {func(_ *fixture, src *node.Source) { src.Checksums[0].SHA256 = "sha256:1" }, "not a SHA-256 in hex"},
		"a wrong checksum": {func(_ *fixture, src *node.Source) { src.Checksums[1].SHA256 = sum("other") },
			"kubelet v1.36.3 can't be had from http://127.0.0.1:.*its SHA-256 is .* it is not used"},
		"something that is not there": {func(x *fixture, _ *node.Source) { delete(x.files, "/v1.36.3/kubelet") }, "answers 404"},
		"another version": {func(x *fixture, src *node.Source) {
			x.files["/v1.36.3/kubelet"] = program(kubelet, "v1.36.2")
			src.Checksums[1] = checksum(kubelet, program(kubelet, "v1.36.2"))
		}, `kubelet is of version "v1.36.2", not v1.36.3`},
		"a program that does not run": {func(x *fixture, src *node.Source) {
			x.files["/v1.36.3/kubeadm"] = "#!/bin/sh\necho not for this node >&2\nexit 1"
			src.Checksums[0] = checksum(kubeadm, x.files["/v1.36.3/kubeadm"])
		}, "kubeadm: exit status 1: not for this node"},
		"no form":                {func(_ *fixture, src *node.Source) { src.Binaries = nil }, "exactly one of"},
		"two forms":              {func(_ *fixture, src *node.Source) { src.Directory = &node.Directory{Path: "/srv"} }, "exactly one of"},
		"a version with a path":  {func(_ *fixture, src *node.Source) { src.Version = "v1.36.3/../x" }, "not a version"},
		"a URL of another kind":  {func(_ *fixture, src *node.Source) { src.Binaries.URL = "ftp://secret@x/{name}" }, "not one of http"},
		"a proxy that is no URL": {func(_ *fixture, src *node.Source) { src.Proxy = "secret:secret@proxy:3128" }, "not a URL of http"},
		"a full disk": {func(x *fixture, _ *node.Source) {
			x.store.free = func(string) (uint64, error) { return reserve, nil }
		}, "make room"},
		"a read-only /usr": {func(x *fixture, _ *node.Source) {
			x.store.writable = func(string) error { return syscall.EROFS }
		}, "read-only file system.*systemExtension"},
		"two kubelets": {func(x *fixture, _ *node.Source) { x.PutMode("/opt/bin/kubelet", "", 0o755) }, "more than one kubelet"},
		"no kubelet": {func(x *fixture, _ *node.Source) { require.NoError(x, os.Remove(x.Path("/usr/bin/kubelet"))) },
			"the node has no kubelet"},
	} {
		t.Run(name, func(t *testing.T) {
			x := newFixture(t)
			src := x.binaries()
			c.change(x, &src)
			err := x.stage(src)
			require.Error(t, err)
			require.Regexp(t, c.err, err.Error())
			require.NotContains(t, err.Error(), "secret")
			if versionForm.MatchString(src.Version) {
				require.Nil(t, x.find(src.Version))
			}
			require.ErrorContains(t, x.install(src.Version, kubelet), "can't be installed")
			for _, name := range []string{kubeadm, kubectl} {
				require.Equal(t, program(name, before), x.Get("/usr/bin/"+name))
			}
		})
	}
}

// Whenever the agent dies, nothing passes for a release that is none, and staging that is asked for again brings it.
func TestStagingSurvivesDeathAnywhere(t *testing.T) {
	images := strings.Repeat("image", 999)
	events := func(x *fixture, at func(n int) bool) (ctx context.Context, src node.Source, tell func(string)) {
		src = x.binaries()
		src.Images = node.Images{Archives: []string{x.server.URL + "/images.tar"}}
		src.Checksums = append(src.Checksums, checksum("images.tar", images))
		x.files["/images.tar"] = images
		x.script("ctr", "")
		ctx, die := context.WithCancel(x.Context())
		n := 0
		event := func() bool {
			n++
			if at(n) {
				die()
				return true
			}
			return false
		}
		x.answer = func(w http.ResponseWriter, r *http.Request) bool {
			content := x.files[r.URL.Path]
			if r.Header.Get("Range") != "" || !event() {
				return false
			}
			w.Header().Set("Content-Length", "99999")
			_, _ = io.WriteString(w, content[:len(content)/2])
			_ = http.NewResponseController(w).Flush()
			return true
		}
		return ctx, src, func(string) { event() }
	}
	deaths := 0
	for n := 1; ; n++ {
		x := newFixture(t)
		ctx, src, tell := events(x, func(now int) bool { return now == n })
		err := x.store.Stage(ctx, src, false, tell)
		if ctx.Err() == nil {
			require.NoError(t, err)
			break
		}
		deaths++
		if err == nil { // it died after the last thing that takes time
			require.NotNil(t, x.find(target))
			continue
		}
		require.ErrorIs(t, err, context.Canceled)
		require.Nil(t, x.find(target))
		require.NoError(t, x.store.Stage(t.Context(), src, false, nil))
		require.Empty(t, x.missing(src))
		require.NotNil(t, x.find(target))
		require.NotNil(t, x.find(before))
		left, err := filepath.Glob(x.Path(Dir + "/*/.*"))
		require.NoError(t, err)
		require.Empty(t, left)
	}
	require.GreaterOrEqual(t, deaths, 8)
}

// Names and passwords, and what is signed into a query, are in no message.
func TestMessagesHaveNoSecrets(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter, r *http.Request) bool{
		"refused": func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusForbidden); return true },
		"closed": func(w http.ResponseWriter, _ *http.Request) bool {
			c, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_ = c.Close()
			}
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newFixture(t)
			x.answer = answer
			src := x.binaries()
			src.Binaries.URL = strings.Replace(src.Binaries.URL, "//", "//me:secret@", 1) + "?signature=secret"
			err := x.stage(src)
			require.ErrorContains(t, err, "can't be had from "+x.server.URL)
			require.NotContains(t, err.Error()+strings.Join(x.told, ""), "secret")
			require.NotContains(t, err.Error()+strings.Join(x.told, ""), "me:")
		})
	}
	u, err := url.Parse("https://me:secret@example.com/a?token=secret#secret")
	require.NoError(t, err)
	require.Equal(t, "https://example.com/a", plain(u))
}

// A run may be about to go back to a release that is neither installed any more nor asked for, and has taken locks off.
func TestStageBesideARun(t *testing.T) {
	x, src := newAPT(t)
	require.NoError(t, x.stage(src))
	require.NoError(t, x.install(target, Programs...))
	for _, name := range Programs {
		x.Put("/pool/"+name+"_1.36.4-1.1_amd64.deb", deb(t, name, "v1.36.4"))
	}
	src.Version = "v1.36.4"
	x.Put("/holds", "")
	x.PutMode(Dir+"/held.json", `{"manager":"apt","packages":["kubelet"]}`, 0o600)
	require.NoError(t, x.store.StageBesideRun(t.Context(), src, true, nil))
	require.Empty(t, x.missing(src))
	require.NotNil(t, x.find(before))
	require.Empty(t, x.holds())
	require.NotEqual(t, "(missing)", x.Get(Dir+"/held.json"))

	require.NoError(t, x.stage(src))
	require.Nil(t, x.find(before), "without a run there is nothing to go back to but what is installed")
	require.Equal(t, []string{"kubelet"}, x.holds())
}

// TestTheReleaseOfTheKubeletThatRunsStays has a run before have installed a release that was never started, and could not be taken back.
func TestTheReleaseOfTheKubeletThatRunsStays(t *testing.T) {
	const next = "v1.36.4"
	for name, c := range map[string]struct {
		// running is what the Node says. Empty: the API server does not answer.
		running string
		stays   bool
	}{
		"when another one is installed":               {running: before, stays: true},
		"when it is not known which one runs":         {stays: true},
		"but not when the one that is installed runs": {running: target},
	} {
		t.Run(name, func(t *testing.T) {
			x, n := newFixture(t), staticpodtest.NewNode(t)
			n.Answer = func(w http.ResponseWriter, r *http.Request) bool {
				if c.running == "" || r.URL.Path != "/api/v1/nodes/"+staticpodtest.Name {
					return false
				}
				_, _ = io.WriteString(w, `{"status":{"nodeInfo":{"kubeletVersion":"`+c.running+`"}}}`)
				return true
			}
			for _, p := range []string{staticpod.KubeletConfig, "/var/lib/kubelet/pki/kubelet-client-current.pem"} {
				x.PutMode(p, n.Get(p), 0o600)
			}
			require.NoError(t, x.stage(x.binaries()))
			require.NoError(t, x.install(target, Programs...))

			src := x.binaries()
			src.Version, src.Checksums = next, nil
			for _, name := range Programs {
				x.files["/"+next+"/"+name] = program(name, next)
				src.Checksums = append(src.Checksums, checksum(name, program(name, next)))
			}
			require.NoError(t, x.stage(src))
			require.Equal(t, c.stays, x.find(before) != nil)
			require.NotNil(t, x.find(target), "one goes back to what is installed")
			require.NotNil(t, x.find(next))
		})
	}
}

package release

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/node"
)

func TestBinariesAreStagedAndInstalledAndTakenBack(t *testing.T) {
	x := newFixture(t)
	src := x.binaries()
	require.Equal(t, []string{"kubeadm v1.36.3", "kubelet v1.36.3", "kubectl v1.36.3"}, x.missing(src))
	require.Nil(t, x.find(target))

	require.NoError(t, x.stage(src))
	require.Empty(t, x.missing(src))
	require.Equal(t, &Release{Version: target, Kubeadm: x.path(Dir + "/v1.36.3/kubeadm")}, x.find(target))
	require.Equal(t, &Release{Version: before, Kubeadm: x.path(Dir + "/v1.36.1/kubeadm")}, x.find(before))
	require.Equal(t, "v1.36.1,v1.36.1,v1.36.1", x.versions(), "staging disturbs nothing")
	entries, err := os.ReadDir(x.path(Dir + "/v1.36.3"))
	require.NoError(t, err)
	require.Len(t, entries, 4, "the programs and the record")

	asked := len(x.requests)
	require.NoError(t, x.stage(src))
	require.Len(t, x.requests, asked, "what is there is not fetched again")

	require.NoError(t, x.store.Install(t.Context(), target, kubeadm))
	require.Equal(t, "v1.36.3,v1.36.1,v1.36.1", x.versions())
	require.NoError(t, x.store.Install(t.Context(), target, kubelet, kubectl))
	require.Equal(t, "v1.36.3,v1.36.3,v1.36.3", x.versions())
	require.NoError(t, x.store.Install(t.Context(), before, Programs...))
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
		}, "can't be run: exit status 1: not for this node"},
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
		"two kubelets": {func(x *fixture, _ *node.Source) { x.put("/opt/bin/kubelet", "", 0o755) }, "more than one kubelet"},
		"no kubelet": {func(x *fixture, _ *node.Source) { require.NoError(x, os.Remove(x.path("/usr/bin/kubelet"))) },
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
			require.ErrorContains(t, x.store.Install(t.Context(), src.Version, kubelet), "can't be installed")
			for _, name := range []string{kubeadm, kubectl} {
				require.Equal(t, program(name, before), x.get("/usr/bin/"+name))
			}
		})
	}
}

// A transfer that breaks off goes on where it was, until that has failed too often.
func TestTransfersGoOn(t *testing.T) {
	const size, half = 4000, 2000
	content := program(kubelet, target)
	content += strings.Repeat("#", size-len(content))
	// cut sends half of it, and says that there is more to come.
	cut := func(w http.ResponseWriter) {
		w.Header().Set("Content-Length", "9999999")
		_, _ = io.WriteString(w, content[:half])
	}
	for name, c := range map[string]struct {
		answer func(n int, w http.ResponseWriter, r *http.Request) bool
		err    string
		asked  []string
	}{
		"once": {
			answer: func(n int, w http.ResponseWriter, _ *http.Request) bool {
				if n == 0 {
					cut(w)
				}
				return n == 0
			},
			asked: []string{"", "bytes=2000-"},
		},
		"a server that is away for a while": {
			answer: func(n int, w http.ResponseWriter, _ *http.Request) bool {
				switch n {
				case 0:
					cut(w)
				case 1:
					w.WriteHeader(http.StatusServiceUnavailable)
				}
				return n < 2
			},
			asked: []string{"", "bytes=2000-", "bytes=2000-"},
		},
		"a server that knows no ranges": {
			answer: func(n int, w http.ResponseWriter, _ *http.Request) bool {
				if n == 0 {
					cut(w)
				} else {
					_, _ = io.WriteString(w, content)
				}
				return true
			},
			asked: []string{"", "bytes=2000-"},
		},
		"a server that sends another part": {
			answer: func(n int, w http.ResponseWriter, _ *http.Request) bool {
				switch n {
				case 0:
					cut(w)
				case 1:
					w.Header().Set("Content-Range", "bytes 1-2/9")
					w.WriteHeader(http.StatusPartialContent)
				}
				return n < 2
			},
			asked: []string{"", "bytes=2000-", ""},
		},
		"a beginning of another file": {
			answer: func(n int, w http.ResponseWriter, _ *http.Request) bool {
				if n == 0 {
					w.Header().Set("Content-Length", "9999999")
					_, _ = io.WriteString(w, strings.Repeat("x", half))
				}
				return n == 0
			},
			asked: []string{"", "bytes=2000-", ""},
		},
		"more than there is": {
			answer: func(n int, w http.ResponseWriter, _ *http.Request) bool {
				if n == 0 {
					w.Header().Set("Content-Length", "9999999")
					_, _ = io.WriteString(w, content+"x")
				}
				return n == 0
			},
			asked: []string{"", "bytes=4001-", ""},
		},
		"always": {
			answer: func(_ int, w http.ResponseWriter, _ *http.Request) bool {
				w.WriteHeader(http.StatusBadGateway)
				return true
			},
			err:   "answers 502",
			asked: []string{"", "", "", "", ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newFixture(t)
			src := x.binaries()
			x.files["/v1.36.3/kubelet"] = content
			src.Checksums[1] = checksum(kubelet, content)
			var asked []string
			x.answer = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != "/v1.36.3/kubelet" {
					return false
				}
				asked = append(asked, r.Header.Get("Range"))
				return c.answer(len(asked)-1, w, r)
			}
			err := x.stage(src)
			require.Equal(t, c.asked, asked)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				require.Nil(t, x.find(target))
				return
			}
			require.NoError(t, err)
			require.Equal(t, content, x.get(Dir+"/v1.36.3/kubelet"))
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
		left, err := filepath.Glob(x.path(Dir + "/*/.*"))
		require.NoError(t, err)
		require.Empty(t, left)
	}
	require.GreaterOrEqual(t, deaths, 8)
}

func TestFullDiskInTheMidstOfATransfer(t *testing.T) {
	f := fetcher{}
	part := thing{to: filepath.Join(t.TempDir(), "kubelet"), sha256: sum("")}
	require.NoError(t, os.WriteFile(part.part(), []byte("half"), 0o600))
	err := f.brokenOff(t.Context(), part, &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}, 4)
	require.EqualError(t, err, "the disk is full")
	require.NoFileExists(t, part.part())
}

func TestProxies(t *testing.T) {
	x := newFixture(t)
	var proxied []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x.mu.Lock()
		proxied = append(proxied, r.Method+" "+r.URL.String()+" "+r.Header.Get("Proxy-Authorization"))
		x.mu.Unlock()
		_, _ = io.WriteString(w, x.files[r.URL.Path])
	}))
	defer proxy.Close()
	src := x.binaries()
	src.Binaries.URL = "http://releases.example.com/{version}/{name}"
	src.Proxy = strings.Replace(proxy.URL, "//", "//me:secret@", 1)
	require.NoError(t, x.stage(src))
	require.Equal(t, "GET http://releases.example.com/v1.36.3/kubeadm Basic bWU6c2VjcmV0", proxied[0])
	require.Len(t, proxied, 3)

	client, err := newClient(src.Proxy, "example.com,10.0.0.0/8", nil)
	require.NoError(t, err)
	for to, want := range map[string]bool{
		"https://releases.example.com/x": false, "http://10.1.2.3/x": false, "https://releases.example.org/x": true, "http://11.1.2.3/x": true,
	} {
		r := httptest.NewRequest(http.MethodGet, to, nil)
		by, err := client.Transport.(*http.Transport).Proxy(r)
		require.NoError(t, err)
		require.Equal(t, want, by != nil, to)
	}
}

func TestRedirects(t *testing.T) {
	x := newFixture(t)
	to := ""
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if to == "" {
			_, _ = io.WriteString(w, x.files[r.URL.Path])
			return
		}
		http.Redirect(w, r, to+r.URL.Path, http.StatusFound)
	}))
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	trust := secure.Client().Transport.(*http.Transport).TLSClientConfig

	src := x.binaries()
	x.answer = func(w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, secure.URL+r.URL.Path, http.StatusFound)
		return true
	}
	require.ErrorContains(t, x.stage(src), "the server is not trusted")
	x.store.trust = trust
	require.NoError(t, x.stage(src), "from http to https")

	x = newFixture(t)
	x.store.trust = trust
	to = strings.Replace(x.server.URL, "//", "//me:secret@", 1)
	src = x.binaries()
	src.Binaries.URL = secure.URL + "/{version}/{name}"
	err := x.stage(src)
	require.ErrorContains(t, err, "redirects from https")
	require.NotContains(t, err.Error(), "secret")
	require.Empty(t, x.requests)
	to = ":bad secret"
	err = x.stage(src)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")
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

func TestWhatIsTooLarge(t *testing.T) {
	x := newFixture(t)
	x.answer = func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Length", "5000000000")
		_, _ = io.WriteString(w, "x")
		return true
	}
	require.ErrorContains(t, x.stage(x.binaries()), "larger than 4 GiB")
	b := &bounded{strings.NewReader("four"), 3}
	_, err := io.ReadAll(b)
	require.ErrorContains(t, err, "when it is unpacked")
}

func TestAStallingServerIsGivenUp(t *testing.T) {
	c := &deadlines{err: errors.New("stand-in")}
	_, err := impatient{c}.Read(nil)
	require.ErrorIs(t, err, c.err)
	require.Equal(t, 1, c.set)
}

// deadlines is a connection that can do nothing but have a deadline.
type deadlines struct {
	net.Conn
	set int
	err error
}

func (d *deadlines) SetReadDeadline(time.Time) error { d.set++; return nil }
func (d *deadlines) Read([]byte) (int, error)        { return 0, d.err }

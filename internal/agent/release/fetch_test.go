package release

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
			require.Equal(t, content, x.Get(Dir+"/v1.36.3/kubelet"))
		})
	}
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

package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/host/hosttest"
	"github.com/capi-refit/refit/internal/node"
)

const (
	before = "v1.36.1"
	target = "v1.36.3"
)

// skippedClock does not wait.
type skippedClock struct{}

func (skippedClock) Now() time.Time                                  { return time.Unix(0, 0) }
func (skippedClock) Wait(ctx context.Context, _ time.Duration) error { return ctx.Err() }

// fixture is a directory that stands for a node, and a server with releases.
type fixture struct {
	*testing.T
	hosttest.Files
	store  *Store
	server *httptest.Server

	mu sync.Mutex
	// files are what the server has, by path.
	files map[string]string
	// answer, if it is set, may answer a request first.
	answer func(w http.ResponseWriter, r *http.Request) bool
	// requests are what was asked of the server, with the range.
	requests []string
	// told is what was said to people.
	told []string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	x := &fixture{T: t, Files: hosttest.NewFiles(t, t.TempDir()), files: map[string]string{}}
	x.store = New(host.Host{
		Root: host.Root{Dir: x.Dir, Private: x.Path("var/lib/refit")}, Disk: host.Disk{NoSync: true}, Clock: skippedClock{},
	})
	x.store.free = func(string) (uint64, error) { return 1 << 40, nil }
	x.server = httptest.NewServer(http.HandlerFunc(x.serve))
	t.Cleanup(x.server.Close)
	x.Put("/etc/passwd", fmt.Sprintf("root:x:%d:%d:root:/root:/bin/sh\n", os.Getuid(), os.Getgid()))
	x.Put("/etc/group", fmt.Sprintf("root:x:%d:\n", os.Getgid()))
	for _, name := range Programs {
		x.PutMode("/usr/bin/"+name, program(name, before), 0o755)
		x.files["/"+target+"/"+name] = program(name, target)
	}
	return x
}

// program is a script that stands for one of Kubernetes': it says its version, and notes how it was called to pull images.
func program(name, version string) string {
	says := map[string]string{kubelet: "Kubernetes " + version, kubectl: "Client Version: " + version}[name]
	if name == kubeadm {
		return "#!/bin/sh\n[ $1 = version ] && { echo " + version + "; exit; }\necho kubeadm $* >>$REFIT_ROOT/calls\n"
	}
	return "#!/bin/sh\necho " + says + "\n"
}

func (x *fixture) serve(w http.ResponseWriter, r *http.Request) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.requests = append(x.requests, strings.TrimSpace(r.URL.Path+" "+r.Header.Get("Range")))
	if x.answer != nil && x.answer(w, r) {
		return
	}
	content, there := x.files[r.URL.Path]
	if !there {
		http.NotFound(w, r)
		return
	}
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(content))
}

// script puts a stand-in in the place of one of the node's programs. It notes how it was called, and fails when it is called for the time
// that /die says.
func (x *fixture) script(name, text string) {
	x.Helper()
	x.PutMode("/usr/bin/"+name, "#!/bin/sh\necho "+name+" $* >>$REFIT_ROOT/calls\n"+
		"if [ -e $REFIT_ROOT/die ] && [ $(wc -l <$REFIT_ROOT/calls) = $(cat $REFIT_ROOT/die) ]; then exit 137; fi\n"+text, 0o755)
}

// calls returns how the node's programs were called, and forgets it.
func (x *fixture) calls() []string {
	x.Helper()
	text := x.Get("/calls")
	if text == "(missing)" {
		return nil
	}
	require.NoError(x, os.Remove(x.Path("/calls")))
	return strings.Split(strings.TrimSpace(text), "\n")
}

func (x *fixture) stage(src node.Source) error {
	return x.store.Stage(x.Context(), src, true, func(s string) { x.told = append(x.told, s) })
}

// install notes what people are told.
func (x *fixture) install(version string, programs ...string) error {
	note, err := x.store.Install(x.Context(), version, programs...)
	if note != "" {
		x.told = append(x.told, note)
	}
	return err
}

func (x *fixture) missing(src node.Source) []string {
	x.Helper()
	all, err := x.store.Missing(src)
	require.NoError(x, err)
	return all
}

func (x *fixture) find(version string) *Release {
	x.Helper()
	r, err := x.store.Find(version)
	require.NoError(x, err)
	return r
}

// versions returns those that the node's kubeadm, kubelet and kubectl say.
func (x *fixture) versions() string {
	x.Helper()
	var all []string
	for _, name := range Programs {
		said, err := x.store.says(x.Context(), name, x.Path("/usr/bin/"+name))
		require.NoError(x, err)
		all = append(all, said)
	}
	return strings.Join(all, ",")
}

func sum(content string) string {
	s := sha256.Sum256([]byte(content))
	return hex.EncodeToString(s[:])
}

func checksum(name, content string) node.Checksum {
	return node.Checksum{Name: name, Architecture: runtime.GOARCH, SHA256: sum(content)}
}

// binaries is a source of programs one by one.
func (x *fixture) binaries() node.Source {
	src := node.Source{Name: "inside", Version: target, Binaries: &node.Binaries{URL: x.server.URL + "/{version}/{name}"}}
	for _, name := range Programs {
		src.Checksums = append(src.Checksums, checksum(name, program(name, target)))
	}
	return src
}

// packed is a file of a tar archive.
type packed struct {
	name, content string
	mode          int64
	kind          byte
}

func tarred(t testing.TB, files ...packed) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: f.mode, Typeflag: tar.TypeReg, Size: int64(len(f.content))}
		if f.kind != 0 {
			h.Typeflag, h.Linkname, h.Size = f.kind, f.content, 0
		}
		require.NoError(t, w.WriteHeader(h))
		if f.kind == 0 {
			_, err := w.Write([]byte(f.content))
			require.NoError(t, err)
		}
	}
	require.NoError(t, w.Close())
	return b.String()
}

func gzipped(t testing.TB, content string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(content))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

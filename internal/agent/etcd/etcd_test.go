package etcd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/staticpod/staticpodtest"
)

// member stands in for etcd's gateway.
type member struct {
	url     string
	members string
	status  string
	// snapshot is what is streamed.
	snapshot func(w io.Writer)
	// sick answers are given to a request for the health of a path.
	sick map[string]string
}

const dir = "/etc/kubernetes/pki/etcd"

func newMember(t *testing.T) (*member, host.Root) {
	t.Helper()
	ca := staticpodtest.NewAuthority(t)
	root := host.Root{Dir: t.TempDir()}
	require.NoError(t, os.MkdirAll(filepath.Join(root.Dir, dir), 0o755))
	put := func(name string, data []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(root.Dir, dir, name), data, 0o600))
	}
	cert, key := ca.Issue("kube-etcd-healthcheck-client")
	put("ca.crt", ca.PEM)
	put("healthcheck-client.crt", cert)
	put("healthcheck-client.key", key)
	m := &member{status: `{"dbSize":"1024"}`, sick: map[string]string{}}
	cert, key = ca.Issue("cp-1", "localhost", "127.0.0.1")
	pair, err := tls.X509KeyPair(cert, key)
	require.NoError(t, err)
	m.url = ca.Serve(http.HandlerFunc(m.serve), func() (tls.Certificate, error) { return pair, nil }).URL
	return m, root
}

func (m *member) serve(w http.ResponseWriter, r *http.Request) {
	if len(r.TLS.PeerCertificates) == 0 {
		http.Error(w, "", http.StatusUnauthorized)
		return
	}
	switch path := r.Method + " " + r.URL.Path; {
	case path == "POST /v3/cluster/member/list":
		body, _ := io.ReadAll(r.Body)
		if string(body) != `{"linearizable":true}` {
			http.Error(w, "", http.StatusBadRequest)
			return
		}
		_, _ = io.WriteString(w, m.members)
	case path == "POST /v3/maintenance/status":
		_, _ = io.WriteString(w, m.status)
	case path == "POST /v3/maintenance/snapshot":
		m.snapshot(w)
	case strings.HasSuffix(path, "/health"):
		answer := `{"health":"true","reason":""}`
		if s, ok := m.sick[strings.TrimSuffix(r.URL.Path, "/health")]; ok {
			w.WriteHeader(http.StatusServiceUnavailable)
			answer = s
		}
		_, _ = io.WriteString(w, answer)
	default:
		http.NotFound(w, r)
	}
}

// cluster makes members that all answer at the same server, under paths of their own.
func (m *member) cluster(names ...string) {
	type entry struct {
		Name       string   `json:"name,omitempty"`
		ClientURLs []string `json:"clientURLs,omitempty"`
		IsLearner  bool     `json:"isLearner,omitempty"`
	}
	var all []entry
	for _, n := range names {
		e := entry{Name: n, ClientURLs: []string{m.url + "/" + n}, IsLearner: strings.HasPrefix(n, "learner")}
		if strings.HasPrefix(n, "unstarted") {
			e = entry{}
		}
		all = append(all, e)
	}
	data, _ := json.Marshal(map[string]any{"members": all})
	m.members = string(data)
}

func TestHealthy(t *testing.T) {
	m, root := newMember(t)
	c, err := Connect(root, m.url+"/", dir)
	require.NoError(t, err)
	require.NoError(t, c.Healthy(t.Context()))
	m.sick[""] = `{"health":"false","reason":"RAFT NO LEADER"}`
	require.ErrorContains(t, c.Healthy(t.Context()), "the member at "+m.url+": it is not healthy")
}

func TestSize(t *testing.T) {
	m, root := newMember(t)
	c, err := Connect(root, m.url, dir)
	require.NoError(t, err)
	size, err := c.Size(t.Context())
	require.NoError(t, err)
	require.Equal(t, uint64(1024), size)
	m.status = "{}"
	_, err = c.Size(t.Context())
	require.ErrorContains(t, err, "does not say how large")
}

func TestSpare(t *testing.T) {
	const sick = `{"health":"false","reason":"RAFT NO LEADER"}`
	for name, tc := range map[string]struct {
		members []string
		sick    []string
		fails   string
		steady  bool // although it can spare none
	}{
		"three, all well":               {members: []string{"a", "b", "c"}},
		"three, one sick":               {members: []string{"a", "b", "c"}, sick: []string{"b"}, fails: "2 of 3 are healthy, and 2 must be while one is out (member b: it is not healthy); have it repaired first"},
		"three, one not started":        {members: []string{"a", "b", "unstarted"}, fails: "a member has not been started yet"},
		"two":                           {members: []string{"a", "b"}, fails: "in a control plane of three or more", steady: true},
		"two, one sick":                 {members: []string{"a", "b"}, sick: []string{"b"}, fails: "1 of 2 are healthy"},
		"one":                           {members: []string{"a"}, fails: "etcd has no member to spare: 1 of 1 are healthy, and 1 must be", steady: true},
		"one that is sick":              {members: []string{"a"}, sick: []string{"a"}, fails: "0 of 1 are healthy"},
		"five, one sick":                {members: []string{"a", "b", "c", "d", "e"}, sick: []string{"c"}},
		"five, two sick":                {members: []string{"a", "b", "c", "d", "e"}, sick: []string{"c", "d"}, fails: "member d"},
		"two and a learner":             {members: []string{"a", "b", "learner"}, fails: "2 of 2", steady: true},
		"three and a learner that fell": {members: []string{"a", "b", "c", "learner"}, sick: []string{"learner"}},
		"none":                          {fails: "etcd names no members"},
	} {
		t.Run(name, func(t *testing.T) {
			m, root := newMember(t)
			m.cluster(tc.members...)
			for _, s := range tc.sick {
				m.sick["/"+s] = sick
			}
			c, err := Connect(root, m.url, dir)
			require.NoError(t, err)
			spare, steady := c.Spare(t.Context()), c.Steady(t.Context())
			if tc.fails == "" {
				require.NoError(t, spare)
			} else {
				require.ErrorContains(t, spare, tc.fails)
			}
			if tc.steady {
				require.NoError(t, steady)
			} else {
				require.Equal(t, spare, steady)
			}
		})
	}
	t.Run("an etcd that does not answer", func(t *testing.T) {
		_, root := newMember(t)
		c, err := Connect(root, "https://127.0.0.1:1", dir)
		require.NoError(t, err)
		require.ErrorContains(t, c.Spare(t.Context()), "etcd does not answer at https://127.0.0.1:1")
	})
	t.Run("an etcd of somebody else", func(t *testing.T) {
		m, root := newMember(t)
		other := staticpodtest.NewAuthority(t)
		require.NoError(t, os.WriteFile(filepath.Join(root.Dir, dir, "ca.crt"), other.PEM, 0o600))
		c, err := Connect(root, m.url, dir)
		require.NoError(t, err)
		require.ErrorContains(t, c.Spare(t.Context()), "etcd does not answer")
	})
	t.Run("without certificates", func(t *testing.T) {
		_, err := Connect(host.Root{Dir: t.TempDir()}, "https://127.0.0.1:1", dir)
		require.ErrorContains(t, err, dir+"/ca.crt is missing")
	})
}

// streamed returns a stream of a database with its digest, as etcd sends one.
func streamed(database, digest []byte) func(w io.Writer) {
	return func(w io.Writer) {
		for piece := range slices.Chunk(database, 1000) {
			part(w, piece)
		}
		part(w, digest)
	}
}

func part(w io.Writer, blob []byte) {
	data, _ := json.Marshal(map[string]any{"result": map[string]any{"remaining_bytes": "1", "blob": blob}})
	_, _ = fmt.Fprintf(w, "%s\n", data)
}

func TestSave(t *testing.T) {
	database := bytes.Repeat([]byte("etcd"), 4096)
	digest := sha256.Sum256(database)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, tc := range map[string]struct {
		snapshot func(w io.Writer)
		fails    string
	}{
		"all of it": {snapshot: streamed(database, digest[:])},
		"cut off at the digest": {
			snapshot: streamed(database, nil), fails: "it is incomplete: 16384 bytes are not a database with its digest",
		},
		"cut off within": {snapshot: streamed(database[:5000], nil), fails: "incomplete"},
		"cut off within a part": {
			snapshot: func(w io.Writer) { _, _ = io.WriteString(w, `{"result":{"blob":"`) }, fails: "it breaks off",
		},
		"damaged":            {snapshot: streamed(append([]byte("x"), database[1:]...), digest[:]), fails: "its digest does not match"},
		"nothing":            {snapshot: func(io.Writer) {}, fails: "incomplete"},
		"an error of etcd's": {snapshot: func(w io.Writer) { part(w, database); _, _ = io.WriteString(w, `{"error":{"code":13}}`) }, fails: "could not go on"},
	} {
		t.Run(name, func(t *testing.T) {
			m, root := newMember(t)
			m.snapshot = tc.snapshot
			c, err := Connect(root, m.url, dir)
			require.NoError(t, err)
			s := Store{Dir: filepath.Join(t.TempDir(), "etcd"), Disk: host.Disk{NoSync: true}}
			file, err := s.Save(t.Context(), c, now)
			entries, readErr := os.ReadDir(s.Dir)
			require.NoError(t, readErr)
			if tc.fails != "" {
				require.ErrorContains(t, err, tc.fails)
				require.Empty(t, entries, "nothing is left behind")
				return
			}
			require.NoError(t, err)
			require.Equal(t, filepath.Join(s.Dir, fmt.Sprintf("20260102T030405Z-%x.db", digest[:6])), file)
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, append(bytes.Clone(database), digest[:]...), data)
			info, err := os.Stat(file)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode())
			info, err = os.Stat(s.Dir)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
		})
	}
}

// newStore is a store, and a member of etcd with a database that can be saved in it.
func newStore(t *testing.T) (database []byte, c *Client, s Store) {
	database = bytes.Repeat([]byte("etcd"), 4096)
	digest := sha256.Sum256(database)
	m, root := newMember(t)
	m.snapshot = streamed(database, digest[:])
	c, err := Connect(root, m.url, dir)
	require.NoError(t, err)
	return database, c, Store{Dir: t.TempDir(), Disk: host.Disk{NoSync: true}}
}

func TestTheNewestSnapshotsAreKept(t *testing.T) {
	database, c, s := newStore(t)
	require.NoError(t, os.WriteFile(filepath.Join(s.Dir, "mine.db"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(s.Dir, ".refit-1.tmp"), nil, 0o600))
	var files []string
	for i := range 5 {
		file, err := s.Save(context.Background(), c, time.Date(2026, 1, 1+i, 0, 0, 0, 0, time.UTC))
		require.NoError(t, err)
		files = append(files, filepath.Base(file))
	}
	entries, err := os.ReadDir(s.Dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	require.Equal(t, append(files[2:], "mine.db"), names)
	require.NoError(t, os.WriteFile(filepath.Join(s.Dir, "x"), make([]byte, 100), 0o600))
	size, err := s.Disk.Size(s.Dir)
	require.NoError(t, err)
	require.Equal(t, uint64(3*(len(database)+sha256.Size)+100), size)
}

// The clock of a node can be put back.
func TestASnapshotIsNotRemovedBecauseOthersSeemNewer(t *testing.T) {
	_, c, s := newStore(t)
	var files []string
	for _, year := range []int{2031, 2032, 2033, 2026} {
		file, err := s.Save(t.Context(), c, time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC))
		require.NoError(t, err)
		require.FileExists(t, file)
		files = append(files, filepath.Base(file))
	}
	names, err := s.names()
	require.NoError(t, err)
	require.Equal(t, []string{files[3], files[1], files[2]}, names)
}

package controlplane

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/agent/staticpod/staticpodtest"
	"github.com/capi-refit/refit/internal/disruption"
)

const (
	mebi = 1 << 20
	// database is what the stand-in for etcd says of its own.
	database = 16384
)

// sparse makes a file that has a size and takes no room.
func (x *fixture) sparse(p string, size int64) {
	x.Helper()
	x.Put(p, "")
	require.NoError(x, os.Truncate(x.Path(p), size))
}

// leave has kubeadm leave a copy of etcd's data, in a year before that of the run or after.
func (x *fixture) leave(year string, size int64) {
	x.Helper()
	p := leavings + "/kubeadm-backup-etcd-" + year + "-02-01-00-00-00"
	x.sparse(p+"/etcd/db", size)
	at, err := time.Parse("2006", year)
	require.NoError(x, err)
	require.NoError(x, os.Chtimes(x.Path(p), at, at))
}

// left returns what kubeadm's leavings are.
func (x *fixture) left() (names []string) {
	entries, err := os.ReadDir(x.Path(leavings))
	require.NoError(x, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// spaces gives the node one file system for snapshots and another for kubeadm's copies; with 0 for that it has one only.
func (x *fixture) spaces(snapshots, copies uint64) {
	x.kind.space = func(dir string) (host.Space, error) {
		if copies > 0 && strings.HasSuffix(dir, leavings) {
			return host.Space{Device: 2, Free: copies}, nil
		}
		return host.Space{Device: 1, Free: snapshots}, nil
	}
}

func TestRoom(t *testing.T) {
	const copied = 100 * mebi
	for name, tc := range map[string]struct {
		snapshots, copies uint64
		upgraded          bool
		prepare           func(x *fixture)
		fails             string
	}{
		"etcd stays":                         {snapshots: reserve + database},
		"etcd stays, and the other is full":  {snapshots: reserve + database, copies: 1},
		"etcd stays, but there is no room":   {snapshots: reserve + database - 1, fails: "no room on the node for a snapshot of etcd in /var/lib/refit/etcd: that takes 65 MiB, of which 64 stay free, and 64 MiB are free there; make room"},
		"etcd is upgraded":                   {upgraded: true, snapshots: reserve + database + copied},
		"etcd is upgraded, and there is not": {upgraded: true, snapshots: reserve + database + copied - 1, fails: "for a snapshot of etcd in /var/lib/refit/etcd and kubeadm's copy of etcd's data in /etc/kubernetes/tmp: that takes 165 MiB"},
		"two file systems":                   {upgraded: true, snapshots: reserve + database, copies: reserve + copied},
		"two file systems, and the first is full": {
			upgraded: true, snapshots: reserve, copies: 1 << 40, fails: "for a snapshot of etcd in /var/lib/refit/etcd: ",
		},
		"two file systems, and the second is full": {
			upgraded: true, snapshots: 1 << 40, copies: reserve + copied - mebi,
			fails: "for kubeadm's copy of etcd's data in /etc/kubernetes/tmp: that takes 164 MiB, of which 64 stay free, and 163 MiB are free there",
		},
		"what is going to be removed": {upgraded: true, snapshots: database, prepare: func(x *fixture) {
			x.leave("2023", copied)
			x.leave("2024", 0)
			x.leave("2025", 0)
			x.sparse("/var/lib/refit/etcd/.refit-1.tmp", reserve)
		}},
		"what stays": {upgraded: true, snapshots: reserve + database, fails: "no room", prepare: func(x *fixture) {
			for _, year := range []string{"2027", "2028", "2029"} { // after the time of the test
				x.leave(year, copied)
			}
		}},
		"an etcd that does not say how large it is": {snapshots: 1 << 40, fails: "404", prepare: func(x *fixture) {
			x.Answer = func(w http.ResponseWriter, r *http.Request) bool {
				http.NotFound(w, r)
				return true
			}
		}},
		"a disk that does not say how full it is": {fails: "how much room there is in /var/lib/refit/etcd is not known: statfs", prepare: func(x *fixture) {
			x.kind.space = func(string) (host.Space, error) { return host.Space{}, errors.New("statfs") }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			x := newFixture(t)
			x.sparse("/var/lib/etcd/member/snap/db", copied)
			x.spaces(tc.snapshots, tc.copies)
			if tc.prepare != nil {
				tc.prepare(x)
			}
			p, err := x.kind.Pods()
			require.NoError(t, err)
			err = p.Room(t.Context(), tc.upgraded)
			_, kept := p.Snapshot(t.Context(), tc.upgraded)
			if tc.fails == "" {
				require.NoError(t, err)
				require.NoError(t, kept)
				return
			}
			require.ErrorContains(t, err, tc.fails)
			require.ErrorContains(t, kept, tc.fails)
			require.NoDirExists(t, x.Path(snapshots), "nothing is begun")
		})
	}
}

func TestRoomIsAskedForBeforeTheNodeIsDrained(t *testing.T) {
	x := newFixture(t)
	x.Config = quotaConfig
	x.spaces(reserve, 0)
	require.Contains(t, x.ask(spec(nil), spec(quota)).Blocked, "no room on the node for a snapshot of etcd")
	a, err := x.kind.Plan(t.Context(), kind.Question{Was: spec(nil), Known: true, Desired: spec(quota), Rules: disruption.BuiltinRules(), UnderWay: true})
	require.NoError(t, err)
	require.Empty(t, a.Blocked, "what a run has taken does not stop it")
	x.Members = `{"name":"a"}`
	a, err = x.kind.Plan(t.Context(), kind.Question{Was: spec(nil), Known: true, Desired: spec(quota), Rules: disruption.BuiltinRules(), UnderWay: true})
	require.NoError(t, err)
	require.Empty(t, a.Blocked, "nor does what it has left of etcd: it looks itself")
	x.Config = auditConfig + etcdConfig
	require.Empty(t, x.ask(spec(nil), spec(audit)).Blocked, "etcd is left alone")
}

// TestAttemptsThatFailDoNotFillTheDisk has kubeadm fail with what it has left before.
func TestAttemptsThatFailDoNotFillTheDisk(t *testing.T) {
	x := newFixture(t)
	x.Config = quotaConfig
	c := x.change(spec(nil), spec(quota))
	x.Put("/fail-before", "")
	for _, year := range []string{"2023", "2024", "2025", "2027"} {
		x.leave(year, 0)
	}
	x.Put("/etc/kubernetes/tmp/of-somebody/a", "")
	_, err := x.kind.Make(t.Context(), c)
	require.ErrorContains(t, err, "timed out")
	require.Equal(t, []string{"kubeadm-backup-etcd-2025-02-01-00-00-00", "kubeadm-backup-etcd-2027-02-01-00-00-00", "of-somebody"}, x.left())
	for _, year := range []string{"2028", "2029"} {
		x.leave(year, 0)
	}
	_, err = x.kind.Make(t.Context(), c)
	require.ErrorContains(t, err, "timed out")
	require.Equal(t, []string{
		"kubeadm-backup-etcd-2027-02-01-00-00-00", "kubeadm-backup-etcd-2028-02-01-00-00-00", "kubeadm-backup-etcd-2029-02-01-00-00-00", "of-somebody",
	}, x.left(), "the run's own stay")
	files, err := filepath.Glob(x.Path(snapshots + "/*.db"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
}

// TestEtcdThatIsSlowAfterALossOfPower has the members of etcd not answer for some requests.
func TestEtcdThatIsSlowAfterALossOfPower(t *testing.T) {
	x := newFixture(t)
	x.Config = quotaConfig
	c := x.change(spec(nil), spec(quota))
	x.Put("/next/etcd.yaml", x.manifest(etcdMember, "--quota-backend-bytes=8589934592"))
	sick := 0
	x.Set(func(n *staticpodtest.Node) {
		n.Answer = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/health" && sick > 0 {
				sick--
				http.Error(w, "no", http.StatusServiceUnavailable)
				return true
			}
			return false
		}
		sick = 10
	})
	_, err := x.kind.Make(t.Context(), c)
	require.ErrorContains(t, err, "no member to spare")
	x.Set(func(*staticpodtest.Node) { sick = 10 })
	c.Again = true
	_, err = x.kind.Make(t.Context(), c)
	require.NoError(t, err)
}

package heads

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-refit/refit/internal/audit"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/workload/workloadtest"
)

var start = managementtest.Start

// world is an API server and the directory of a log.
type world struct {
	*testing.T
	client client.WithWatch
	down   error
	writes int
	path   string
	clock  *clocktesting.FakeClock
	said   []string
	events *events.FakeRecorder
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, path: filepath.Join(t.TempDir(), "audit.jsonl"), clock: clocktesting.NewFakeClock(start), events: events.NewFakeRecorder(100)}
	w.client = workloadtest.Before(managementtest.New(), func(verb string, _ runtime.Object) error {
		if verb == "patch" && w.down == nil {
			w.writes++
		}
		return w.down
	})
	return w
}

// begin starts a process in a pod.
func (w *world) begin(pod string) *Publisher {
	w.Helper()
	logger := funcr.New(func(_, args string) { w.said = append(w.said, args) }, funcr.Options{})
	l, err := audit.Open(w.path, w.clock, audit.Options{Instance: pod + "_1"})
	require.NoError(w, err)
	w.Cleanup(func() { _ = l.Close() })
	p := &Publisher{
		Client: w.client, Live: w.client, Namespace: "refit-system", Log: pod, Audit: l, Clock: w.clock, Logger: logger, Recorder: w.events,
	}
	p.Prepare(w.Context())
	return p
}

func (w *world) add(p *Publisher, n int) {
	w.Helper()
	for range n {
		_, err := p.Audit.Append(audit.Entry{Event: audit.EventSent, Verb: "apply"})
		require.NoError(w, err)
	}
}

func (w *world) configMap() map[string]string {
	w.Helper()
	var m corev1.ConfigMap
	require.NoError(w, w.client.Get(w.Context(), client.ObjectKey{Namespace: "refit-system", Name: Name}, &m))
	return m.Data
}

func (w *world) head(key string) audit.SignedHead {
	w.Helper()
	var h audit.SignedHead
	require.NoError(w, json.Unmarshal([]byte(w.configMap()[key]), &h), key)
	return h
}

func (w *world) publicKey() ed25519.PublicKey {
	w.Helper()
	key, err := audit.ParsePublicKey([]byte(w.configMap()[audit.PublicKeyKey]))
	require.NoError(w, err)
	return key
}

// verify checks the log against the head that is published.
func (w *world) verify(h audit.SignedHead) (audit.Report, error) {
	file, err := os.Open(w.path)
	require.NoError(w, err)
	defer file.Close()
	return audit.Published{Heads: []audit.SignedHead{h}, Key: w.publicKey()}.Verify(audit.File{Name: "log", Reader: file})
}

func TestAHeadIsPublishedWhenItHasMoved(t *testing.T) {
	w := newWorld(t)
	p := w.begin("refit-a")
	require.NotContains(t, w.configMap(), "refit-a.json", "there is nothing to tell of")
	require.Contains(t, strings.Join(w.said, "\n"), "publicKey")
	w.add(p, 3)
	p.step(t.Context())
	head := w.head("refit-a.json")
	require.NoError(t, head.Verify(w.publicKey()))
	require.Equal(t, int64(3), head.Seq)
	require.Equal(t, "refit-a_1", head.Instance)
	require.Equal(t, w.path, head.File)
	_, err := w.verify(head)
	require.NoError(t, err)
	p.step(t.Context())
	require.Equal(t, 1, w.writes, "nothing is written when nothing has changed")
	w.add(p, 1)
	_, err = w.verify(head)
	require.NoError(t, err, "the log may have gone on")
	require.NoError(t, testutil.CollectAndCompare(p, strings.NewReader(`
		# HELP refit_audit_log_lost 1 if the audit log that this process found at its start was not what had been published of it, else 0.
		# TYPE refit_audit_log_lost gauge
		refit_audit_log_lost 0
		# HELP refit_audit_unpublished_entries Entries of this process' audit log that its published head does not cover yet.
		# TYPE refit_audit_unpublished_entries gauge
		refit_audit_unpublished_entries 1
	`)))
}

func TestANewContainerGoesOn(t *testing.T) {
	w := newWorld(t)
	p := w.begin("refit-a")
	w.add(p, 2)
	p.step(t.Context())
	w.add(p, 1) // is not published before the crash
	require.NoError(t, p.Audit.Close())
	p = w.begin("refit-a")
	require.False(t, p.lost.Load())
	p.step(t.Context())
	require.Equal(t, int64(3), w.head("refit-a.json").Seq)
	require.Empty(t, w.events.Events)
}

func TestANewPodBeginsALog(t *testing.T) {
	w := newWorld(t)
	p := w.begin("refit-a")
	w.add(p, 2)
	p.step(t.Context())
	w.path = filepath.Join(t.TempDir(), "audit.jsonl")
	q := w.begin("refit-b")
	w.add(q, 1)
	q.step(t.Context())
	require.False(t, q.lost.Load())
	require.Equal(t, int64(2), w.head("refit-a.json").Seq)
	require.Equal(t, int64(1), w.head("refit-b.json").Seq)
	require.NoError(t, w.head("refit-b.json").Verify(w.publicKey()), "they have the same key")
}

func TestWhatWasDoneToALogIsRecorded(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(w *world)
		what string
		seq  int64
	}{
		"cut off":  {func(w *world) { w.keep(2) }, audit.LostTruncated, 4},
		"empty":    {func(w *world) { w.keep(0) }, audit.LostTruncated, 4},
		"removed":  {func(w *world) { require.NoError(w, os.Remove(w.path)) }, audit.LostTruncated, 4},
		"replaced": {func(w *world) { w.forge(4) }, audit.LostReplaced, 4},
		"longer":   {func(w *world) { w.forge(9) }, audit.LostReplaced, 4},
		"with a head that somebody has written": {func(w *world) {
			w.keep(1)
			h := w.head("refit-a.json")
			h.Seq = 1
			w.publish("refit-a.json", h)
		}, audit.LostHead, 0},
		"with the head of another log": {func(w *world) {
			h := w.head("refit-a.json")
			h.Log = "refit-b"
			w.publish("refit-a.json", h)
		}, audit.LostHead, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.begin("refit-a")
			w.add(p, 4)
			p.step(t.Context())
			require.NoError(t, p.Audit.Close())
			tc.do(w)
			before := w.configMap()["refit-a.json"]

			p = w.begin("refit-a")
			require.True(t, p.lost.Load())
			require.Contains(t, <-w.events.Events, "AuditLogLost")
			require.Contains(t, strings.Join(w.said, "\n"), "tampered with")
			require.Equal(t, before, w.configMap()[fmt.Sprintf("refit-a.lost-%d.json", start.Unix())], "the head that it does not fit is kept")
			w.add(p, 1)
			p.step(t.Context())
			head := w.head("refit-a.json")
			require.NoError(t, head.Verify(w.publicKey()))
			report, err := w.verify(head)
			require.NoError(t, err)
			require.Equal(t, []int64{head.Seq - 1}, report.Lost)
			data, err := os.ReadFile(w.path)
			require.NoError(t, err)
			require.Contains(t, string(data), fmt.Sprintf(`"lost":{"what":%q,"seq":%d,`, tc.what, tc.seq))
		})
	}
}

// keep cuts the log off.
func (w *world) keep(lines int) {
	data, err := os.ReadFile(w.path)
	require.NoError(w, err)
	require.NoError(w, os.WriteFile(w.path, []byte(strings.Join(strings.SplitAfter(string(data), "\n")[:lines], "")), 0o600))
}

// forge puts another log that holds together in the place of this one.
func (w *world) forge(entries int) {
	require.NoError(w, os.Remove(w.path))
	l, err := audit.Open(w.path, w.clock, audit.Options{Instance: "refit-a_1"})
	require.NoError(w, err)
	for range entries {
		_, err := l.Append(audit.Entry{Event: audit.EventSent, Verb: "status"})
		require.NoError(w, err)
	}
	require.NoError(w, l.Close())
}

func (w *world) publish(key string, h audit.SignedHead) {
	text, err := json.Marshal(h)
	require.NoError(w, err)
	p := &Publisher{Client: w.client, Namespace: "refit-system"}
	require.NoError(w, p.patch(w.Context(), map[string]*string{key: new(string(text))}))
}

func TestAnAPIServerThatIsAwayStopsNothing(t *testing.T) {
	w := newWorld(t)
	w.down = errors.New("connection refused")
	p := w.begin("refit-a")
	w.add(p, 2)
	for range 2 * complainEvery {
		p.step(t.Context())
	}
	require.Equal(t, 3, strings.Count(strings.Join(w.said, "\n"), "Could not publish"), "not each time")
	w.down = nil
	p.step(t.Context())
	require.Equal(t, int64(2), w.head("refit-a.json").Seq)

	require.NoError(t, w.client.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "refit-system", Name: Name}}))
	w.add(p, 1)
	p.step(t.Context())
	p.step(t.Context())
	require.Equal(t, int64(3), w.head("refit-a.json").Seq, "it is made again")
	require.False(t, p.lost.Load())
}

func TestALogThatWasCutOffWhileTheAPIServerWasAwayIsFoundLater(t *testing.T) {
	w := newWorld(t)
	p := w.begin("refit-a")
	w.add(p, 4)
	p.step(t.Context())
	require.NoError(t, p.Audit.Close())
	w.keep(2)
	w.down = errors.New("connection refused")
	w.clock.Step(time.Minute)
	p = w.begin("refit-a")
	w.add(p, 9)
	w.down = nil
	p.step(t.Context())
	require.True(t, p.lost.Load())
	require.Equal(t, int64(12), w.head("refit-a.json").Seq)
}

func TestOldHeadsMakeRoom(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.begin("refit-0").Audit.Close())
	for i := range 2 * Kept {
		w.publish(fmt.Sprintf("old-%02d.json", i), audit.SignedHead{Log: "old", Seq: 1, Time: start.Add(time.Duration(i) * time.Minute)})
	}
	p := w.begin("refit-a")
	w.add(p, 1)
	p.step(t.Context())
	data := w.configMap()
	require.Len(t, data, Kept, "with the public key")
	require.NotContains(t, data, "old-00.json")
	require.Contains(t, data, fmt.Sprintf("old-%02d.json", 2*Kept-1))
	require.Contains(t, data, "refit-a.json")
}

func TestTheKeyIsMadeOnce(t *testing.T) {
	w := newWorld(t)
	p, q := w.begin("refit-a"), (*Publisher)(nil)
	w.path = filepath.Join(t.TempDir(), "audit.jsonl")
	q = w.begin("refit-b")
	require.Equal(t, p.public(), q.public())
	var secret corev1.Secret
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: "refit-system", Name: KeyName}, &secret))
	require.NotContains(t, strings.Join(w.said, "\n"), strings.Split(string(secret.Data[privateKeyKey]), "\n")[1], "it is not logged")
	for _, bad := range []string{"", "no PEM", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"} {
		_, err := parseKey([]byte(bad))
		require.Error(t, err)
	}
}

func TestTheLastHeadIsPublishedAtTheEnd(t *testing.T) {
	w := newWorld(t)
	p := w.begin("refit-a")
	w.add(p, 2)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	p.Logger = logr.Discard()
	require.NoError(t, p.Start(ctx))
	require.Equal(t, int64(2), w.head("refit-a.json").Seq)
	require.False(t, p.NeedLeaderElection())
}

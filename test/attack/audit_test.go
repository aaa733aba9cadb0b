package attack

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2/textlogger"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-refit/refit/internal/audit"
	"github.com/capi-refit/refit/internal/audit/heads"
	"github.com/capi-refit/refit/internal/managementtest"
)

// auditedPod is a pod of refit's with its log, beside an API server that the attacker can't write to.
type auditedPod struct {
	*testing.T
	file   string
	server client.WithWatch
	clock  *clocktesting.FakeClock
	said   bytes.Buffer
}

func newAuditedPod(t *testing.T) *auditedPod {
	return &auditedPod{
		T: t, file: filepath.Join(t.TempDir(), "audit.jsonl"), server: managementtest.New(),
		clock: clocktesting.NewFakeClock(managementtest.Start),
	}
}

// run starts refit, has it send commands, and stops it.
func (p *auditedPod) run(commands ...string) {
	p.Helper()
	log, err := audit.Open(p.file, p.clock, audit.Options{
		Instance: "refit-a_1", Logger: textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&p.said))).WithName("audit"),
	})
	require.NoError(p, err)
	defer func() { require.NoError(p, log.Close()) }()
	publisher := &heads.Publisher{
		Client: p.server, Live: p.server, Namespace: "refit-system", Log: "refit-a", Audit: log, Clock: p.clock,
		Logger: logr.Discard(),
	}
	publisher.Prepare(p.Context())
	for _, verb := range commands {
		p.clock.Step(time.Second)
		_, err := log.Append(audit.Entry{Event: audit.EventSent, Address: "10.0.0.1:22", Verb: verb})
		require.NoError(p, err)
	}
	publisher.Prepare(p.Context()) // as it does each few seconds
}

// lines are those of the file.
func (p *auditedPod) lines() [][]byte {
	p.Helper()
	data, err := os.ReadFile(p.file)
	require.NoError(p, err)
	return bytes.SplitAfter(data, []byte("\n"))
}

// cut removes the end of the file.
func (p *auditedPod) cut(keep int) {
	p.Helper()
	require.NoError(p, os.WriteFile(p.file, bytes.Join(p.lines()[:keep], nil), 0o600))
}

// published is what is known of the log outside of the pod.
func (p *auditedPod) published() audit.Published {
	p.Helper()
	var m corev1.ConfigMap
	require.NoError(p, p.server.Get(p.Context(), client.ObjectKey{Namespace: "refit-system", Name: heads.Name}, &m))
	data, err := json.Marshal(m)
	require.NoError(p, err)
	all, err := audit.ParseHeads(data)
	require.NoError(p, err)
	key, err := audit.ParsePublicKey([]byte(m.Data[audit.PublicKeyKey]))
	require.NoError(p, err)
	return audit.Published{Heads: all, Key: key}
}

func (p *auditedPod) verify(against audit.Published) (audit.Report, error) {
	p.Helper()
	return against.Verify(audit.File{Name: "audit.jsonl", Reader: bytes.NewReader(bytes.Join(p.lines(), nil))})
}

func TestALogThatWasCutOffIsFound(t *testing.T) {
	p := newAuditedPod(t)
	p.run("plan", "apply", "push", "apply")
	_, err := p.verify(p.published())
	require.NoError(t, err)
	p.cut(2)
	_, err = p.verify(p.published())
	require.ErrorContains(t, err, "the log was cut off: it ends with entry 2")
	t.Run("and refit does not go on with it as if nothing had happened", func(t *testing.T) {
		before := p.published()
		p.run("status", "status", "status")
		report, err := p.verify(p.published())
		require.Error(t, err, "the head that it does not fit is still there")
		require.NotEmpty(t, report.Lost)
		_, err = p.verify(before)
		require.ErrorContains(t, err, "the log was replaced: its entry 4 is not the one")
	})
}

func TestALogThatWasDeletedIsFound(t *testing.T) {
	p := newAuditedPod(t)
	p.run("apply", "apply")
	require.NoError(t, os.Remove(p.file))
	p.run("status")
	require.Contains(t, string(p.lines()[0]), `"event":"lost"`)
	_, err := p.verify(p.published())
	require.Error(t, err)
}

func TestALogThatWasReplacedIsFound(t *testing.T) {
	p := newAuditedPod(t)
	p.run("plan", "apply")
	known := p.published()
	require.NoError(t, os.Remove(p.file))
	forger := newAuditedPod(t)
	forger.file = p.file
	forger.run("plan", "status", "status")
	_, err := p.verify(known)
	require.ErrorContains(t, err, "the log was replaced")
	t.Run("also with the name of another instance", func(t *testing.T) {
		data := bytes.ReplaceAll(bytes.Join(p.lines()[:1], nil), []byte("refit-a_1"), []byte("refit-b_1"))
		require.NoError(t, os.WriteFile(p.file, data, 0o600))
		_, err := p.verify(known)
		require.ErrorContains(t, err, "no head is of this log")
	})
}

func TestAForgedHeadIsRefused(t *testing.T) {
	p := newAuditedPod(t)
	p.run("plan", "apply")
	known := p.published()
	p.cut(1)
	for name, forge := range map[string]func(h *audit.SignedHead){
		"of an earlier entry": func(h *audit.SignedHead) { h.Seq = 1 },
		"by another key": func(h *audit.SignedHead) {
			_, key, err := ed25519.GenerateKey(rand.Reader)
			require.NoError(t, err)
			h.Seq = 1
			*h = h.Sign(key)
		},
		"of another log":      func(h *audit.SignedHead) { h.Log = "refit-z" },
		"of another time":     func(h *audit.SignedHead) { h.Time = h.Time.Add(time.Hour) },
		"without a signature": func(h *audit.SignedHead) { h.Signature = nil },
	} {
		t.Run(name, func(t *testing.T) {
			forged := known
			forged.Heads = []audit.SignedHead{known.Heads[0]}
			forge(&forged.Heads[0])
			_, err := p.verify(forged)
			require.ErrorContains(t, err, "is not signed by the key")
		})
	}
}

func TestTheLogIsInThatOfRefitWhenItsPodIsGone(t *testing.T) {
	p := newAuditedPod(t)
	p.run("plan", "apply", "status")
	known := p.published()
	require.NoError(t, os.Remove(p.file))
	// The command of docs/security.md does the same.
	lines := regexp.MustCompile(`(?m)^.*"Recorded" logger="audit" entry=(.*) hash="[0-9a-f]{64}"$`).FindAllSubmatch(p.said.Bytes(), -1)
	var log bytes.Buffer
	for _, line := range lines {
		log.Write(append(line[1], '\n'))
	}
	report, err := known.Verify(audit.File{Name: "log of refit", Reader: &log})
	require.NoError(t, err)
	require.Equal(t, 3, report.Entries)
}

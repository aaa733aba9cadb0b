package probe

import (
	"context"
	"encoding/pem"
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

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/staticpod/staticpodtest"
	"github.com/capi-refit/refit/internal/disruption"
)

// stubUnits stands in for systemd: units are in the states that a test gives them.
type stubUnits map[string]host.UnitState

func (stubUnits) System(context.Context) (string, error) { return "running", nil }

func (stubUnits) Do(context.Context, string, string) error { return nil }

func (s stubUnits) Show(_ context.Context, unit string) (host.UnitState, error) {
	if state, ok := s[unit]; ok {
		return state, nil
	}
	return host.UnitState{LoadState: "not-found", ActiveState: "inactive"}, nil
}

// program gives a node a program: a shell script.
func program(t *testing.T, dir, p, script string) {
	t.Helper()
	put(t, dir, p, "#!/bin/sh\n"+script+"\n")
	require.NoError(t, os.Chmod(filepath.Join(dir, p), 0o700))
}

// askOwn asks a probe of a policy's.
func askOwn(t *testing.T, h host.Host, p disruption.Probe) error {
	t.Helper()
	if p.Timeout == 0 {
		p.Timeout = 20 * time.Second
	}
	return Own(h, []disruption.Probe{p})[0].Ask(t.Context())
}

func TestOwnExec(t *testing.T) {
	h := host.Host{Root: host.Root{Dir: t.TempDir()}}
	exec := func(argv ...string) disruption.Probe { return disruption.Probe{Name: "app", Exec: argv} }
	program(t, h.Dir, "/opt/app/check", `[ "$1 $2" = "a b c" ] || { echo "no luck with token=hunter2" >&2; exit 3; }`)
	program(t, h.Dir, "/usr/bin/by-name", "exit 0")
	require.NoError(t, askOwn(t, h, exec("/opt/app/check", "a b", "c")), "no shell reads it")
	require.NoError(t, askOwn(t, h, exec("by-name")))
	require.EqualError(t, askOwn(t, h, exec("/opt/app/check", "a", "b")), "/opt/app/check: exit status 3: no luck with token=[redacted]")
	require.ErrorIs(t, askOwn(t, h, exec("/opt/app/none")), host.ErrNoProgram)
	require.ErrorIs(t, askOwn(t, h, exec("none")), host.ErrNoProgram)
}

func TestOwnExecIsKilledWithAllThatItHasStarted(t *testing.T) {
	h := host.Host{Root: host.Root{Dir: t.TempDir()}}
	program(t, h.Dir, "/usr/bin/hangs", "mkfifo "+h.Dir+"/pipe; cat "+h.Dir+"/pipe & wait")
	p := disruption.Probe{Name: "app", Exec: []string{"hangs"}, Timeout: 300 * time.Millisecond}
	require.EqualError(t, askOwn(t, h, p), "hangs had not ended after 300ms, and was killed")
	require.Eventually(t, func() bool {
		pipe, err := os.OpenFile(filepath.Join(h.Dir, "pipe"), os.O_WRONLY|syscall.O_NONBLOCK, 0) // which takes a reader
		if err == nil {
			_ = pipe.Close()
		}
		return err != nil
	}, time.Minute, 10*time.Millisecond)
}

func TestOwnHTTP(t *testing.T) {
	h := host.Host{Root: host.Root{Dir: t.TempDir()}}
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	t.Cleanup(elsewhere.Close)
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ok":
		case "/moved":
			http.Redirect(w, r, elsewhere.URL, http.StatusFound)
		default:
			http.Error(w, "secret", http.StatusServiceUnavailable)
		}
	})
	plain, secure := httptest.NewServer(serve), httptest.NewTLSServer(serve)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	get := func(p disruption.HTTPProbe) error { return askOwn(t, h, disruption.Probe{Name: "app", HTTP: &p}) }
	require.NoError(t, get(disruption.HTTPProbe{URL: plain.URL + "/ok"}))
	require.NoError(t, get(disruption.HTTPProbe{URL: plain.URL + "/moved"}), "it is an answer")
	require.EqualError(t, get(disruption.HTTPProbe{URL: plain.URL + "/bad"}), "it answers 503 Service Unavailable")

	put(t, h.Dir, "/etc/app/ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})))
	require.ErrorContains(t, get(disruption.HTTPProbe{URL: secure.URL + "/ok?token=hunter2"}), "it does not answer: tls: failed to verify certificate")
	require.NoError(t, get(disruption.HTTPProbe{URL: secure.URL + "/ok", CAFile: "/etc/app/ca.pem"}))
	require.NoError(t, get(disruption.HTTPProbe{URL: secure.URL + "/ok", InsecureSkipVerify: true}))
	require.EqualError(t, get(disruption.HTTPProbe{URL: secure.URL + "/ok", CAFile: "/etc/app/none.pem"}), "/etc/app/none.pem is missing")
	put(t, h.Dir, "/etc/ssl/certs/ca-certificates.crt", "nothing")
	require.EqualError(t, get(disruption.HTTPProbe{URL: secure.URL + "/ok"}), "/etc/ssl/certs/ca-certificates.crt holds no certificate")
	require.NoError(t, os.Rename(filepath.Join(h.Dir, "/etc/app/ca.pem"), filepath.Join(h.Dir, "/etc/ssl/certs/ca-certificates.crt")))
	require.NoError(t, get(disruption.HTTPProbe{URL: secure.URL + "/ok"}), "the node trusts it now")
}

func TestOwnTCP(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := disruption.Probe{Name: "db", TCP: l.Addr().String()}
	require.NoError(t, askOwn(t, host.Host{}, p))
	require.NoError(t, l.Close())
	require.ErrorContains(t, askOwn(t, host.Host{}, p), "connection refused")
}

func TestOwnUnit(t *testing.T) {
	h := host.Host{Units: stubUnits{"app.service": {ActiveState: "active"}, "bad.service": {ActiveState: "failed"}}}
	unit := func(name string) error { return askOwn(t, h, disruption.Probe{Name: "app", Unit: name}) }
	require.NoError(t, unit("app.service"))
	require.EqualError(t, unit("bad.service"), "bad.service is failed")
	require.EqualError(t, unit("none.service"), "the node does not have none.service")
	h.Units = nil
	require.ErrorContains(t, unit("app.service"), "no systemctl")
}

func TestOwnCondition(t *testing.T) {
	n := staticpodtest.NewNode(t)
	c := &cluster{ready: "False", message: "kubelet is stopped", renewed: "1"}
	n.Answer = c.answer
	has := func(kind, status string) error {
		return askOwn(t, n.Host, disruption.Probe{Name: "node", Condition: &disruption.ConditionProbe{Type: kind, Status: status}})
	}
	require.NoError(t, has("DiskPressure", "True"))
	require.NoError(t, has("Ready", "False"))
	require.EqualError(t, has("Ready", "True"), "Ready of the Node is False: kubelet is stopped")
	require.EqualError(t, has("ReadonlyFilesystem", "False"), "the Node has no condition ReadonlyFilesystem")
	require.ErrorIs(t, askOwn(t, host.Host{Root: host.Root{Dir: t.TempDir()}}, disruption.Probe{
		Name: "node", Condition: &disruption.ConditionProbe{Type: "Ready", Status: "True"},
	}), ErrAbsent)
}

func TestOwnProbesSayWhoseTheyAre(t *testing.T) {
	all := Own(host.Host{}, []disruption.Probe{
		{Name: "app", Exec: []string{"check", "--password=hunter2"}, Retries: 3, From: "fleet"},
		{Name: "app", TCP: "a:1", From: "other"},
	})
	require.Equal(t, "the probe of NodeDisruptionPolicy fleet: run check --password=[redacted]", all[0].Look)
	require.Equal(t, 4, all[0].Tries)
	require.NotEqual(t, all[0].Key(), all[1].Key(), "they are told apart by what they ask")
	require.True(t, strings.HasPrefix(all[0].Key(), "probe app "))
}

package attack_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/controlplane"
	"github.com/capi-refit/refit/updaters/declared"
	"github.com/capi-refit/refit/updaters/files"
	"github.com/capi-refit/refit/updaters/image"
	"github.com/capi-refit/refit/updaters/inert"
	"github.com/capi-refit/refit/updaters/kubelet"
	"github.com/capi-refit/refit/updaters/ntp"
	"github.com/capi-refit/refit/updaters/users"
	"github.com/capi-refit/refit/webhook"
)

// asking is policies that permit everything, and want to know all of what is proposed first.
type asking struct{ handlers.NoPolicies }

func (asking) Permit(_ context.Context, _ string, _ bool, proposal func() (inplace.Proposal, error)) error {
	_, err := proposal()
	return err
}

// updating takes every update for done.
type updating struct{}

func (updating) Update(context.Context, string, string, string) (inplace.Progress, error) {
	return inplace.Progress{Done: true}, nil
}

// canUpdate is the handlers as refit serve has them, but for policies and versions, which are in the management cluster.
func canUpdate(t testing.TB, reg prometheus.Registerer) *handlers.CanUpdate {
	rules := disruption.BuiltinRules()
	registry, err := updaters.NewRegistry(inert.New(true), declared.New(nil), files.New(rules), users.New(rules), ntp.New(rules),
		kubelet.New(rules), controlplane.New(rules), image.New(nil))
	require.NoError(t, err)
	return handlers.NewCanUpdate(handlers.NewEngine(inplace.Always(registry)), asking{}, handlers.NewMetrics(reg), "")
}

// register registers all hooks of refit, and returns the paths of all of them and of discovery.
func register(t testing.TB, on ctrlwebhook.Server, reg prometheus.Registerer) []string {
	h, update := canUpdate(t, reg), handlers.NewUpdate(updating{}, "")
	hooks := []webhook.Hook{
		{Hook: runtimehooksv1.CanUpdateMachine, Name: "can-update-machine", Handle: h.Machine},
		{Hook: runtimehooksv1.CanUpdateMachineSet, Name: "can-update-machine-set", Handle: h.MachineSet},
		{Hook: runtimehooksv1.UpdateMachine, Name: "update-machine", Handle: update.Machine},
	}
	for _, l := range handlers.NewLifecycle(asking{}, "").Hooks() {
		hooks = append(hooks, webhook.Hook{Hook: l.Hook, Name: l.Name, Handle: l.Handle})
	}
	for i := range hooks {
		hooks[i].Timeout = 5 * time.Minute // the race detector on a busy machine takes longer than a manager waits
	}
	server, err := webhook.NewServer(logr.Discard(), webhook.NewMetrics(reg))
	require.NoError(t, err)
	require.NoError(t, server.Register(on, hooks))
	const group = "/hooks.runtime.cluster.x-k8s.io/v1alpha1/"
	paths := []string{group + "discovery"}
	for _, h := range hooks {
		paths = append(paths, group+strings.ReplaceAll(h.Name, "-", "")+"/"+h.Name)
	}
	return paths
}

// port is refit's hook port.
type port struct {
	address string
	roots   *x509.CertPool
	metrics *prometheus.Registry
	paths   []string
}

// serve serves the hooks over HTTPS, with what refit serve serves them with.
func serve(t *testing.T) *port {
	dir := t.TempDir()
	bundle, err := webhook.WriteSelfSigned(dir, []string{"127.0.0.1"}, time.Now())
	require.NoError(t, err)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, free.Close())
	on := webhook.NewListener(ctrlwebhook.Options{Host: "127.0.0.1", Port: free.Addr().(*net.TCPAddr).Port, CertDir: dir}, logr.Discard())
	p := &port{address: free.Addr().String(), roots: x509.NewCertPool(), metrics: prometheus.NewRegistry()}
	p.roots.AppendCertsFromPEM(bundle)
	p.paths = register(t, on, p.metrics)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- on.Start(ctx) }()
	require.Eventually(t, func() bool { return on.StartedChecker()(nil) == nil }, time.Minute, time.Millisecond)
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	return p
}

// caller is a client with connections of its own.
func (p *port) caller(t *testing.T) *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: p.roots}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// answer is what all responses have.
type answer struct{ Status, Message string }

func (p *port) ask(t *testing.T, c *http.Client, path string, body []byte) answer {
	r, err := c.Post("https://"+p.address+path, "application/json", bytes.NewReader(body))
	require.NoError(t, err)
	defer r.Body.Close() //nolint:errcheck // it was only read
	var a answer
	require.NoError(t, json.NewDecoder(r.Body).Decode(&a))
	return a
}

// requireAnswers has a right caller ask, and be answered.
func (p *port) requireAnswers(t *testing.T) {
	a := p.ask(t, p.caller(t), p.paths[1], recorded(t, "canupdatemachine-file-content"))
	require.Equal(t, "Success", a.Status, a.Message)
}

// value returns the value of a metric without labels.
func (p *port) value(t *testing.T, name string) float64 {
	all, err := p.metrics.Gather()
	require.NoError(t, err)
	for _, m := range all {
		if m.GetName() == name {
			return m.GetMetric()[0].GetGauge().GetValue()
		}
	}
	require.Fail(t, "there is no metric "+name)
	return 0
}

// recorded is a request that a manager of Cluster API sent.
func recorded(t testing.TB, name string) []byte {
	body, err := os.ReadFile(filepath.Join("..", "..", "handlers", "testdata", name+".json"))
	require.NoError(t, err)
	return body
}

// sides are the fields of the specs of a request, as JSON without the braces.
type sides struct{ bootstrap, infrastructure, machine [2]string }

// request is a CanUpdateMachineSetRequest with the fields.
func (s sides) request() []byte {
	var b strings.Builder
	b.WriteString(`{"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1","kind":"CanUpdateMachineSetRequest"`)
	for i, side := range []string{"current", "desired"} {
		_, _ = fmt.Fprintf(&b, `,%q:{`, side)
		for j, o := range []struct{ field, version, kind, spec string }{
			{"machineSet", "cluster.x-k8s.io/v1beta2", "MachineSet", s.machine[i]},
			{"infrastructureMachineTemplate", "infrastructure.cluster.x-k8s.io/v1beta2", "AWSMachineTemplate", s.infrastructure[i]},
			{"bootstrapConfigTemplate", "bootstrap.cluster.x-k8s.io/v1beta2", "KubeadmConfigTemplate", s.bootstrap[i]},
		} {
			if j > 0 {
				b.WriteByte(',')
			}
			_, _ = fmt.Fprintf(&b, `%q:{"apiVersion":%q,"kind":%q,"metadata":{"name":"a","namespace":"b"},"spec":{"template":{"spec":{%s}}}}`,
				o.field, o.version, o.kind, o.spec)
		}
		b.WriteByte('}')
	}
	b.WriteByte('}')
	return []byte(b.String())
}

// each repeats an item with numbers in it, with commas between.
func each(n int, item string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strings.ReplaceAll(item, "%", strconv.Itoa(i)))
	}
	return b.String()
}

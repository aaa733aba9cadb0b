package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/release"
	"github.com/capi-refit/refit/internal/node"
)

// call carries out a command line as on a node. No runner is started: what is not done inline stays under way.
func (n *testNode) call(stdin string, args ...string) (node.Answer, int) {
	n.t.Helper()
	executable, err := os.Executable()
	require.NoError(n.t, err)
	cfg := n.agent.cfg
	cfg.Root, cfg.Executable, cfg.Hostname = "/nowhere", executable, "worker-1"
	cfg.Launcher = LauncherFunc(func(context.Context, string, string) error { return nil })
	var out bytes.Buffer
	status := Main(context.Background(), cfg, append([]string{"--root", n.root}, args...), strings.NewReader(stdin), &out)
	var ans node.Answer
	require.NoError(n.t, json.Unmarshal(out.Bytes(), &ans), out.String())
	return ans, status
}

func encode(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return string(data)
}

func TestCommands(t *testing.T) {
	n := newTestNode(t)
	req := encode(t, request(1, "/etc/quiet/a", "a"))

	ans, status := n.call("", "version")
	assert.Zero(t, status)
	assert.Equal(t, node.Protocol, ans.Identity.Protocol)
	assert.Len(t, ans.Identity.SHA256, 64)
	assert.Equal(t, "worker-1", ans.Identity.Hostname)

	ans, status = n.call(req, "plan")
	assert.Zero(t, status)
	assert.Len(t, ans.Plan.Changes, 1)

	ans, status = n.call(req, "apply")
	assert.Zero(t, status)
	assert.Equal(t, node.Running, ans.Status.State)

	ans, status = n.call("", "run")
	assert.Zero(t, status)
	assert.Equal(t, node.Succeeded, ans.Status.State)

	ask := encode(t, node.StatusRequest{Protocol: node.Protocol, Machine: machine, Digest: "digest-1"})
	ans, status = n.call(ask, "status")
	assert.Zero(t, status)
	assert.Equal(t, node.Succeeded, ans.Status.State)

	var out bytes.Buffer
	assert.Zero(t, Main(context.Background(), n.agent.cfg, []string{"journal"}, strings.NewReader(""), &out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	assert.Len(t, lines, len(n.events()))
	for _, line := range lines {
		assert.True(t, json.Valid([]byte(line)))
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	good := func(edit func(r *node.Request)) func(*testing.T) string {
		return func(t *testing.T) string {
			req := request(1, "/etc/quiet/a", "a secret")
			edit(&req)
			return encode(t, req)
		}
	}
	raw := func(s string) func(*testing.T) string { return func(*testing.T) string { return s } }
	for name, tc := range map[string]struct {
		stdin func(*testing.T) string
		want  string
	}{
		"nothing":                 {raw(""), "not the JSON document"},
		"no JSON":                 {raw("hello"), "not the JSON document"},
		"an unknown field":        {raw(`{"protocol":3,"color":"red"}`), `unknown field "color"`},
		"two documents":           {raw(`{"protocol":3} {"protocol":3}`), "not the JSON document"},
		"another protocol":        {raw(`{"protocol":4,"color":"red"}`), "the request is of protocol 4, this agent speaks protocol 3"},
		"no Machine":              {good(func(r *node.Request) { r.Machine.UID = "" }), "machine.uid is empty"},
		"a digest that is a path": {good(func(r *node.Request) { r.Digest = "../a" }), "digest"},
		"no conflict policy":      {good(func(r *node.Request) { r.OnConflict = "" }), "onConflict"},
		"a negative wait":         {good(func(r *node.Request) { r.WaitSeconds = -1 }), "negative"},
		"an unknown resource":     {good(func(r *node.Request) { r.Resources[0].File = nil }), "of no kind"},
		"a path twice":            {good(func(r *node.Request) { r.Resources = append(r.Resources, r.Resources[0]) }), "wanted twice"},
		"a relative path":         {good(func(r *node.Request) { r.Resources[0].File.Path = "etc/a" }), "not absolute"},
		"a path with dots":        {good(func(r *node.Request) { r.Resources[0].File.Path = "/etc/quiet/../shadow" }), "not clean"},
		"a mode that is none":     {good(func(r *node.Request) { r.Resources[0].File.Mode = "rw" }), "permissions in octal"},
		"a mode that is too much": {good(func(r *node.Request) { r.Resources[0].File.Mode = "100644" }), "permissions in octal"},
		"a baseline with a relative path": {good(func(r *node.Request) {
			r.Baseline.Files = []node.BaselineFile{{Path: "a"}}
		}), "baseline"},
	} {
		for _, command := range []string{"plan", "apply"} {
			t.Run(name+", "+command, func(t *testing.T) {
				n := newTestNode(t)
				ans, status := n.call(tc.stdin(t), command)
				assert.Equal(t, 1, status)
				require.NotNil(t, ans.Error)
				assert.Equal(t, node.ReasonInvalid, ans.Error.Reason)
				assert.Contains(t, ans.Error.Message, tc.want)
				assert.NotContains(t, ans.Error.Message, "secret")
				assert.NoDirExists(t, n.agent.state.dir)
			})
		}
	}
}

func TestCommandLinesThatAreRefused(t *testing.T) {
	for name, args := range map[string][]string{
		"no command":         {},
		"an unknown command": {"destroy"},
		"two commands":       {"plan", "apply"},
		"an unknown flag":    {"--force", "apply"},
		"a relative root":    {"--root", "here", "plan"},
	} {
		t.Run(name, func(t *testing.T) {
			ans, status := newTestNode(t).call("{}", args...)
			assert.Equal(t, 1, status)
			require.NotNil(t, ans.Error)
			assert.Equal(t, node.ReasonInvalid, ans.Error.Reason)
		})
	}
}

func TestAPanicIsAnAnswer(t *testing.T) {
	n := newTestNode(t)
	var out bytes.Buffer
	status := Main(context.Background(), n.agent.cfg, []string{"plan"}, panicking{}, &out)
	assert.Equal(t, 1, status)
	assert.Contains(t, out.String(), string(node.ReasonInternal))
}

type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic(io.ErrNoProgress) }

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"protocol":3,"machine":{"uid":"u"},"digest":"d","onConflict":"Refuse","resources":[{"file":{"path":"/a"}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var req node.Request
		if err := decode(bytes.NewReader(data), &req); err != nil {
			require.Equal(t, node.ReasonInvalid, asAgentError(err).Reason)
			return
		}
		a := &Agent{kinds: kinds(host.Host{}, release.New(host.Host{}))}
		want, err := a.validate(req)
		if err != nil {
			require.Equal(t, node.ReasonInvalid, asAgentError(err).Reason)
			return
		}
		require.Equal(t, len(req.Resources), len(want.files)+len(want.others))
	})
}

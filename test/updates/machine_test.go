//go:build e2e

package updates

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/test/nodes"
	"github.com/capi-refit/refit/test/nodes/nodestest"
	"github.com/capi-refit/refit/test/program"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/controlplane"
	"github.com/capi-refit/refit/updaters/files"
	"github.com/capi-refit/refit/updaters/inert"
	"github.com/capi-refit/refit/updaters/kubelet"
	"github.com/capi-refit/refit/updaters/ntp"
	"github.com/capi-refit/refit/updaters/users"
)

// machine is a real Debian machine, and what its KubeadmConfig says.
type machine struct {
	t     *testing.T
	node  *nodes.Node
	agent *remote.Client
	rules disruption.Rules
	spec  string // in JSON
	token int64
	// connect comes in by a new connection. Nil: as the tests do.
	connect func() (remote.Conn, *remote.Client, error)
}

// newMachine starts a machine whose bootstrap has laid down nothing.
func newMachine(t *testing.T) *machine {
	t.Helper()
	return newMachineWith(t)
}

// newMachineWith starts one that has more of Debian's packages.
func newMachineWith(t *testing.T, packages ...string) *machine {
	t.Helper()
	f := nodestest.Start(t, nodes.Options{Names: []string{"debian"}, Packages: packages})
	n := f.Node("debian")
	to, err := n.Target()
	require.NoError(t, err)
	c, err := remote.SSHDialer{}.Dial(t.Context(), to)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	agents, err := builtAgents()
	require.NoError(t, err)
	client, err := remote.NewClient(c, n.ClientOptions(agents))
	require.NoError(t, err)
	rules := disruption.BuiltinRules()
	rules.Files = append(rules.Files,
		disruption.Rule{Path: "/opt/quiet", Actions: []disruption.Action{{Type: disruption.None}}},
		disruption.Rule{Path: "/etc/sudoers.d", Actions: []disruption.Action{{Type: disruption.None}}},
	)
	return &machine{t: t, node: n, agent: client, rules: rules, spec: `{}`}
}

var builtAgent = sync.OnceValues(func() ([]byte, error) {
	return program.Build(context.Background(), "github.com/capi-refit/refit/cmd/refit-node", "-tags", "grpcnotrace")
})

var builtAgents = sync.OnceValues(func() (*remote.Agents, error) {
	agent, err := builtAgent()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "refit-agents-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.WriteFile(filepath.Join(dir, "refit-node-linux-"+runtime.GOARCH), agent, 0o600); err != nil {
		return nil, err
	}
	return remote.LoadAgents(dir)
})

func digest(spec string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(spec))) }

func (m *machine) registry() *updaters.Registry {
	r, err := updaters.NewRegistry(inert.New(false), files.New(m.rules), users.New(m.rules), ntp.New(m.rules), kubelet.New(m.rules), controlplane.New(m.rules))
	require.NoError(m.t, err)
	return r
}

func bootstrap(t *testing.T, text string) fieldset.Spec {
	t.Helper()
	v, err := fieldset.Decode([]byte(text))
	require.NoError(t, err)
	return fieldset.Spec{APIVersion: "bootstrap.cluster.x-k8s.io/v1beta2", Kind: "KubeadmConfig", Value: v}
}

// claimed returns the actions that Cluster API's question about the change is answered with.
func (m *machine) claimed(desired string) []string {
	m.t.Helper()
	oc, differs := fieldset.NewObjectChange(fieldset.BootstrapConfig, bootstrap(m.t, m.spec), bootstrap(m.t, desired))
	require.True(m.t, differs)
	decision, err := m.registry().Decide(m.t.Context(), fieldset.Change{oc})
	require.NoError(m.t, err)
	var lists [][]disruption.Action
	for _, v := range decision {
		require.True(m.t, v.Covered(), "%s: %s", v.Field, v.Reason)
		lists = append(lists, v.Actions)
	}
	return names(disruption.Merge(lists...))
}

// names has the program that keeps the time under the name that it goes by before the node is known.
func names(actions []disruption.Action) []string {
	out := []string{}
	for _, a := range actions {
		out = append(out, strings.Replace(a.String(), "chrony.service", disruption.TimeSyncUnit, 1))
	}
	return out
}

func (m *machine) request(desired string) node.Request {
	m.t.Helper()
	resources, err := m.registry().Desire(updaters.Desired{
		BootstrapConfig: bootstrap(m.t, desired),
		Secret: func(name, key string) ([]byte, error) {
			return nil, fmt.Errorf("no Secret %s with %s here", name, key)
		},
	})
	require.NoError(m.t, err)
	m.token++
	return node.Request{
		Protocol: node.Protocol, Machine: node.MachineID{Namespace: "default", Name: "debian", UID: "1"},
		Digest: digest(desired), Token: m.token, Resources: resources, Baseline: &node.Baseline{},
		Rules: m.rules, OnConflict: node.Refuse, WaitSeconds: 120, Login: m.login(),
	}
}

// update changes the spec and requires that the claim, the plan and what then happens are the same, and that a second time
// nothing happens.
func (m *machine) update(desired string) {
	m.t.Helper()
	claimed := m.claimed(desired)
	req := m.request(desired)
	plan := m.plan(req)
	require.Empty(m.t, plan.Blocked)
	require.Equal(m.t, claimed, names(plan.Actions), "what is claimed is what the node plans")
	status := m.apply(req)
	require.Equal(m.t, node.Succeeded, status.State, status.Message)
	m.requireShown(desired)
	m.spec = desired
}

// plan has the node plan what a request asks for. A connection of an earlier part of the test has ended with that.
func (m *machine) plan(req node.Request) node.Plan {
	m.t.Helper()
	plan, err := m.agent.Plan(m.t.Context(), req)
	if errors.Is(err, remote.ErrConnectionLost) {
		m.agent = m.again()
		plan, err = m.agent.Plan(m.t.Context(), req)
	}
	require.NoError(m.t, err)
	return plan
}

// apply has the node do what a request asks for, and waits for its end as refit does: on a busy machine a run may begin late.
func (m *machine) apply(req node.Request) node.Status {
	m.t.Helper()
	for {
		status, err := m.agent.Apply(m.t.Context(), req)
		if errors.Is(err, remote.ErrConnectionLost) || errors.Is(err, remote.ErrUnauthorized) { // it may put that right by itself
			m.agent = m.again()
			continue
		}
		require.NoError(m.t, err)
		if status.AwaitsLogin {
			m.confirm(status)
		} else if status.State != node.Running {
			return status
		}
	}
}

// confirm logs in, as refit does when a node waits for that.
func (m *machine) confirm(status node.Status) {
	m.t.Helper()
	err := m.fresh(func(c *remote.Client) error {
		_, err := c.Status(m.t.Context(), node.StatusRequest{
			Machine: node.MachineID{Namespace: "default", Name: "debian", UID: "1"}, Digest: status.Digest, Token: status.Token, Confirm: true,
		})
		return err
	})
	if err != nil {
		time.Sleep(6 * time.Second) // sshd turns away for a while who fails more often
	}
}

// fresh does something over a connection of its own.
func (m *machine) fresh(do func(*remote.Client) error) error {
	m.t.Helper()
	c, client, err := m.dialAgain()
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // it was for this
	return do(client)
}

// again connects again, when the machine lets one in.
func (m *machine) again() *remote.Client {
	m.t.Helper()
	var client *remote.Client
	require.Eventually(m.t, func() bool {
		c, again, err := m.dialAgain()
		if err != nil {
			return false
		}
		if _, err := again.Identity(m.t.Context()); err != nil {
			_ = c.Close()
			return false
		}
		m.t.Cleanup(func() { _ = c.Close() })
		client = again
		return true
	}, 5*time.Minute, 6*time.Second)
	return client
}

func (m *machine) dialAgain() (remote.Conn, *remote.Client, error) {
	if m.connect != nil {
		return m.connect()
	}
	to, err := m.node.Target()
	if err != nil {
		return nil, nil, err
	}
	to.Timeouts = remote.Timeouts{Dial: 2 * time.Second, Handshake: 5 * time.Second}
	c, err := remote.SSHDialer{}.Dial(m.t.Context(), to)
	if err != nil {
		return nil, nil, err
	}
	agents, err := builtAgents()
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	client, err := remote.NewClient(c, m.node.ClientOptions(agents))
	return c, client, err
}

// requireShown requires that the node shows the spec, and that asking for it again runs nothing.
func (m *machine) requireShown(spec string) {
	m.t.Helper()
	req := m.request(spec)
	plan := m.plan(req)
	require.Empty(m.t, plan.Changes)
	require.Empty(m.t, plan.Drift)
	journal := m.steps()
	status := m.apply(req)
	require.Equal(m.t, node.Succeeded, status.State, status.Message)
	require.Equal(m.t, journal, m.steps(), "the second time no step runs")
}

// steps returns how many steps of changes and actions the node has ever run.
func (m *machine) steps() int {
	m.t.Helper()
	journal, err := m.node.Journal(m.t.Context())
	require.NoError(m.t, err)
	n := 0
	for _, e := range journal {
		if e.Event == "step-done" && e.Step != "keep copies" && e.Step != "verify" && e.Step != "record" {
			n++
		}
	}
	return n
}

// fail requires that the change fails and is rolled back, and that the node then shows the spec of before.
func (m *machine) fail(desired string) node.Status {
	m.t.Helper()
	status := m.apply(m.request(desired))
	require.Equal(m.t, node.Failed, status.State)
	require.True(m.t, status.RolledBack, status.Message)
	plan := m.plan(m.request(m.spec))
	require.Empty(m.t, plan.Changes, "the node is as it was")
	require.Empty(m.t, plan.Drift)
	return status
}

// blocked requires that the node refuses the change before anything is done.
func (m *machine) blocked(desired string) string {
	m.t.Helper()
	steps := m.steps()
	plan := m.plan(m.request(desired))
	require.NotEmpty(m.t, plan.Blocked)
	require.Equal(m.t, steps, m.steps())
	return plan.Blocked[0].Reason
}

// sh runs a shell command on the machine and returns what it wrote.
func (m *machine) sh(command string) string {
	m.t.Helper()
	out, err := m.node.Exec(m.t.Context(), "sh", "-c", command)
	require.NoError(m.t, err, command)
	return strings.TrimSpace(string(out))
}

// sshAs tries to log in.
func (m *machine) sshAs(user string, key ssh.Signer) error {
	to, err := m.node.Target()
	require.NoError(m.t, err)
	to.User, to.Signers, to.PrivateKey = user, []ssh.Signer{key}, nil
	c, err := remote.SSHDialer{}.Dial(m.t.Context(), to)
	if err != nil {
		return err
	}
	return c.Close()
}

// login returns how the tests come in.
func (m *machine) login() node.Login {
	m.t.Helper()
	to, err := m.node.Target()
	require.NoError(m.t, err)
	key, err := ssh.ParsePrivateKey(to.PrivateKey)
	require.NoError(m.t, err)
	return node.Login{User: to.User, Keys: []string{authorized(key)}}
}

func authorized(key ssh.Signer) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key.PublicKey())))
}

// newKey makes a key to log in with.
func newKey(t *testing.T) ssh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	signer, err := ssh.NewSignerFromKey(private)
	require.NoError(t, err)
	return signer
}

// run runs a part of a test, which is told what fails in it.
func (m *machine) run(name string, f func(t *testing.T)) {
	m.t.Helper()
	parent := m.t
	defer func() { m.t = parent }()
	parent.Run(name, func(t *testing.T) {
		m.t = t
		f(t)
	})
}

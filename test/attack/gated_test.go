package attack_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/nodetest"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/test/program"
)

// builtAgent is refit-node, which is the gate and the agent.
var builtAgent = sync.OnceValues(func() ([]byte, error) {
	return program.Build(context.Background(), "github.com/capi-refit/refit/cmd/refit-node")
})

// gated is a node to which the gate is the only way in, for a key and for the certificates of an authority.
type gated struct {
	*nodetest.Node
	t         *testing.T
	signing   ed25519.PrivateKey
	authority []byte
	agent     []byte
	// agents is a directory with the agent and its signature.
	agents string
}

func newGated(t *testing.T) *gated {
	t.Helper()
	agent, err := builtAgent()
	require.NoError(t, err)
	g := &gated{t: t, agent: agent, agents: t.TempDir()}
	public, signing, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	g.signing = signing
	g.authority, err = nodetest.NewKey()
	require.NoError(t, err)
	ca, err := ssh.ParsePrivateKey(g.authority)
	require.NoError(t, err)
	root := t.TempDir()
	require.NoError(t, os.Chmod(root, 0o755)) // whatever the umask is
	g.Node, err = nodetest.Start(nodetest.Options{
		Root: root, UserCA: string(ssh.MarshalAuthorizedKey(ca.PublicKey())), Forward: true, ForceCommand: forced(root),
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = g.Close() })
	g.write("usr/local/sbin/refit-node", agent, 0o755)
	g.trust(public)
	g.sign(g.signing, 0)
	return g
}

func forced(root string) string {
	return fmt.Sprintf("%s/usr/local/sbin/refit-node --root %s gate", root, root)
}

func (g *gated) write(name string, data []byte, mode os.FileMode) {
	g.t.Helper()
	file := filepath.Join(g.Root(), name)
	require.NoError(g.t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(g.t, os.WriteFile(file, data, mode))
}

// trust has the node trust who signs agents.
func (g *gated) trust(keys ...ed25519.PublicKey) {
	g.t.Helper()
	var text []byte
	for _, k := range keys {
		public, err := ssh.NewPublicKey(k)
		require.NoError(g.t, err)
		text = append(text, ssh.MarshalAuthorizedKey(public)...)
	}
	g.write("etc/refit/agent-signers", text, 0o644)
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func (g *gated) signature(key ed25519.PrivateKey, agent []byte, index int64) node.AgentSignature {
	g.t.Helper()
	s, err := node.SignAgent(key, node.AgentStatement{OS: "linux", Architecture: runtime.GOARCH, Version: "test", RollbackIndex: index, SHA256: digestOf(agent)})
	require.NoError(g.t, err)
	return s
}

// sign puts the server's agent and its signature into a directory.
func (g *gated) sign(key ed25519.PrivateKey, index int64) {
	g.t.Helper()
	text, err := json.Marshal(g.signature(key, g.agent, index))
	require.NoError(g.t, err)
	name := filepath.Join(g.agents, "refit-node-linux-"+runtime.GOARCH)
	require.NoError(g.t, os.WriteFile(name, g.agent, 0o600))
	require.NoError(g.t, os.WriteFile(name+".sig", text, 0o600))
}

// dial logs in by a certificate of the node's authority, or by the key.
func (g *gated) dial(certificate bool) remote.Conn {
	g.t.Helper()
	to, err := g.Target()
	require.NoError(g.t, err)
	if certificate {
		to.PrivateKey = nil
		to.Certificates = g.certificates(g.authority, remote.CertificateOptions{Principal: g.User(), ForceCommand: forced(g.Root())})
	}
	c, err := remote.SSHDialer{}.Dial(g.t.Context(), to)
	require.NoError(g.t, err)
	g.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (g *gated) certificates(authority []byte, o remote.CertificateOptions) *remote.UserCertificates {
	g.t.Helper()
	c, err := remote.NewUserCertificates(authority, o)
	require.NoError(g.t, err)
	return c
}

func (g *gated) client(c remote.Conn) *remote.Client {
	g.t.Helper()
	agents, err := remote.LoadAgents(g.agents)
	require.NoError(g.t, err)
	client, err := remote.NewClient(c, remote.ClientOptions{Agents: agents, Gate: true})
	require.NoError(g.t, err)
	return client
}

// request is for a file below a directory that needs no action.
func request(digest string) node.Request {
	return node.Request{
		Machine: node.MachineID{Namespace: "default", Name: "worker-1", UID: "uid-1"}, Digest: digest, Token: 1, OnConflict: node.Refuse,
		Baseline: &node.Baseline{}, WaitSeconds: 60,
		Resources: []node.Resource{{File: &node.File{Path: "/opt/app.conf", Content: []byte(digest), Owner: "root:root", Mode: "0644"}}},
		Rules:     disruption.Rules{Files: disruption.Table{{Path: "/opt", Actions: []disruption.Action{{Type: disruption.None}}}}},
	}
}

// ask sends a request to the gate as a client of one's own would.
func ask(t *testing.T, c remote.Conn, r node.GateRequest, body []byte) (node.Answer, string) {
	t.Helper()
	r.Gate = node.GateProtocol
	line, err := json.Marshal(r)
	require.NoError(t, err)
	return raw(t, c, append(append(line, '\n'), body...))
}

func raw(t *testing.T, c remote.Conn, stdin []byte) (node.Answer, string) {
	t.Helper()
	var out bytes.Buffer
	_ = c.Run(t.Context(), node.GateCommand, bytes.NewReader(stdin), &out) // a refusal ends with a status
	var a node.Answer
	require.NoError(t, json.Unmarshal(out.Bytes(), &a), out.String())
	if a.Error == nil {
		return a, ""
	}
	return a, a.Error.Message
}

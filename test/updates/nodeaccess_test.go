//go:build e2e

package updates

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/nodetest"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/test/nodes"
)

const gatePath = "/usr/local/sbin/refit-node"

// gatedMachine is a machine with a gate, as docs/node-access.md has it installed: for the user ops with sudo for the gate alone, and for root.
type gatedMachine struct {
	*machine
	authority []byte
	signing   ed25519.PrivateKey
	key       []byte
}

func newGatedMachine(t *testing.T) *gatedMachine {
	t.Helper()
	g := &gatedMachine{machine: newMachine(t)}
	public, signing, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	g.signing = signing
	signer, err := ssh.NewPublicKey(public)
	require.NoError(t, err)
	g.authority, err = nodetest.NewKey()
	require.NoError(t, err)
	g.key, err = nodetest.NewKey()
	require.NoError(t, err)
	agent, err := builtAgent()
	require.NoError(t, err)
	bound := func(command string) string {
		return fmt.Sprintf("restrict,command=\"%s\" %s\n", command, authorized(parsed(t, g.key)))
	}
	for path, f := range map[string]nodes.File{
		gatePath:                            {Content: agent, Mode: "0755"},
		"/etc/refit/agent-signers":          {Content: ssh.MarshalAuthorizedKey(signer)},
		"/etc/refit/user-ca.pub":            {Content: []byte(authorized(parsed(t, g.authority)) + "\n")},
		"/etc/refit/principals/ops":         {Content: []byte("ops\n")},
		"/etc/refit/principals/root":        {Content: []byte("root\n")},
		"/etc/ssh/authorized_keys.d/ops":    {Content: []byte(bound("sudo -n " + node.DefaultGate))},
		"/etc/ssh/authorized_keys.d/root":   {Content: []byte(bound(node.DefaultGate))},
		"/etc/sudoers.d/ops":                {Content: []byte("ops ALL=(root) NOPASSWD: " + node.DefaultGate + "\n"), Mode: "0440"},
		"/etc/ssh/sshd_config.d/10-a.conf":  {Content: []byte("TrustedUserCAKeys /etc/refit/user-ca.pub\nAuthorizedPrincipalsFile /etc/refit/principals/%u\nPermitRootLogin forced-commands-only\n")},
		"/etc/ssh/sshd_config.d/11-us.conf": {Content: []byte("Match User ops\n  ForceCommand sudo -n " + node.DefaultGate + "\n  AllowTcpForwarding no\n  PermitTTY no\n")},
	} {
		require.NoError(t, g.node.WriteFile(t.Context(), path, f))
	}
	g.sh("useradd --create-home --shell /bin/sh ops && visudo -cq && sshd -t && systemctl restart ssh")
	return g
}

func parsed(t *testing.T, key []byte) ssh.Signer {
	t.Helper()
	s, err := ssh.ParsePrivateKey(key)
	require.NoError(t, err)
	return s
}

// way is how one comes in.
type way struct {
	user        string
	certificate bool
}

func (w way) command() string {
	if w.user == "root" {
		return node.DefaultGate
	}
	return "sudo -n " + node.DefaultGate
}

var ways = map[string]way{
	"by certificates, with sudo":         {user: "ops", certificate: true},
	"by certificates, as root":           {user: "root", certificate: true},
	"by a key that is bound, with sudo":  {user: "ops"},
	"by a key that is bound, being root": {user: "root"},
}

func (g *gatedMachine) target(w way, edit func(*remote.CertificateOptions)) remote.Target {
	g.t.Helper()
	to, err := g.node.Target()
	require.NoError(g.t, err)
	to.User, to.PrivateKey = w.user, g.key
	if w.certificate {
		o := remote.CertificateOptions{Principal: w.user, KeyID: "refit:default/debian", ForceCommand: w.command()}
		if edit != nil {
			edit(&o)
		}
		to.PrivateKey = nil
		to.Certificates, err = remote.NewUserCertificates(g.authority, o)
		require.NoError(g.t, err)
	}
	return to
}

func (g *gatedMachine) dial(to remote.Target) (remote.Conn, error) {
	c, err := remote.SSHDialer{}.Dial(g.t.Context(), to)
	if err == nil {
		g.t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

// client brings agents that key has signed, or that nobody has.
func (g *gatedMachine) client(c remote.Conn, key ed25519.PrivateKey) *remote.Client {
	g.t.Helper()
	agent, err := builtAgent()
	require.NoError(g.t, err)
	file := filepath.Join(g.t.TempDir(), "refit-node-linux-"+runtime.GOARCH)
	require.NoError(g.t, os.WriteFile(file, agent, 0o600))
	if key != nil {
		text, err := json.Marshal(g.signed(key, agent))
		require.NoError(g.t, err)
		require.NoError(g.t, os.WriteFile(file+".sig", text, 0o600))
	}
	agents, err := remote.LoadAgents(filepath.Dir(file))
	require.NoError(g.t, err)
	client, err := remote.NewClient(c, remote.ClientOptions{Agents: agents, Gate: true})
	require.NoError(g.t, err)
	return client
}

func (g *gatedMachine) signed(key ed25519.PrivateKey, agent []byte) node.AgentSignature {
	g.t.Helper()
	sum := sha256.Sum256(agent)
	s, err := node.SignAgent(key, node.AgentStatement{OS: "linux", Architecture: runtime.GOARCH, Version: "test", SHA256: hex.EncodeToString(sum[:])})
	require.NoError(g.t, err)
	return s
}

func TestAMachineIsUpdatedThroughItsGate(t *testing.T) {
	t.Parallel()
	g := newGatedMachine(t)
	round := 0
	for name, w := range ways {
		g.run(name, func(t *testing.T) {
			c, err := g.dial(g.target(w, nil))
			require.NoError(t, err)
			g.agent = g.client(c, g.signing)
			for range 2 {
				round++
				text := fmt.Sprintf("round %d", round)
				g.update(quietFile(text))
				require.Equal(t, text, g.sh("cat /opt/quiet/a"))
			}
			require.Equal(t, "root:root 700", g.sh("stat -c '%U:%G %a' /var/lib/refit/gate"))
		})
	}
	require.Contains(t, g.sh("journalctl --no-pager -t sshd"), "ID refit:default/debian (serial ")
	require.Contains(t, g.sh("journalctl --no-pager SYSLOG_IDENTIFIER=refit-node-gate"), "runs apply of the agent ")
}

// quietFile is a spec with /opt/quiet/a, which no service reads.
func quietFile(content string) string {
	return fmt.Sprintf(`{"files":[{"path":"/opt/quiet/a","content":%q,"owner":"root:root","permissions":"0644"}]}`, content)
}

func TestALoginByTheGateRunsNothingElse(t *testing.T) {
	t.Parallel()
	g := newGatedMachine(t)
	for name, w := range ways {
		g.run(name, func(t *testing.T) {
			to := g.target(w, nil)
			c, err := g.dial(to)
			require.NoError(t, err)
			for _, command := range []string{
				"touch /tmp/hacked", "sudo -n touch /tmp/hacked", "sh", "bash -i", "internal-sftp", "scp -t /tmp",
				gatePath + " plan", node.GateCommand + "; touch /tmp/hacked", "$(touch /tmp/hacked)",
			} {
				var out bytes.Buffer
				require.Error(t, c.Run(t.Context(), command, strings.NewReader("touch /tmp/hacked\n"), &out), command)
				require.Contains(t, out.String(), "only refit can come in here", command)
			}
			g.sh("test ! -e /tmp/hacked")

			behind, err := g.node.Target()
			require.NoError(t, err)
			behind.Addresses, behind.Jump = []remote.Address{{Host: "127.0.0.1", Port: 22}}, &to
			_, err = g.dial(behind)
			require.ErrorIs(t, err, remote.ErrUnauthorized, "nothing is forwarded")
			require.ErrorContains(t, err, "forbids forwarding")

			_, stranger, err := ed25519.GenerateKey(rand.Reader)
			require.NoError(t, err)
			_, err = g.client(c, nil).Plan(t.Context(), g.request(`{}`))
			require.ErrorContains(t, err, "has no signature", "an agent that nobody has signed")
			_, err = g.client(c, stranger).Plan(t.Context(), g.request(`{}`))
			require.ErrorContains(t, err, "none of the keys that are trusted", "an agent that a stranger has signed")
			require.Empty(t, g.sh("ls /var/lib/refit/gate | grep refit-node- || true"))
		})
	}
	g.run("and sudo is for the gate alone", func(*testing.T) {
		for _, command := range []string{"id", gatePath, gatePath + " plan", gatePath + " --root /tmp gate", gatePath + " gate x"} {
			g.sh("! su ops -c 'sudo -n " + command + "' </dev/null 2>/dev/null")
		}
		require.Contains(t, g.sh(`echo '{"gate":1,"do":"Hello"}' | su ops -c 'sudo -n `+node.DefaultGate+`'`), `"protocol":1`)
	})
	require.Contains(t, g.sh("journalctl --no-pager SYSLOG_IDENTIFIER=refit-node-gate"), "refused: ")
}

func TestCertificatesThatAreNotGoodLetNobodyIn(t *testing.T) {
	t.Parallel()
	g := newGatedMachine(t)
	stranger, err := nodetest.NewKey()
	require.NoError(t, err)
	for name, w := range map[string]way{"with sudo": ways["by certificates, with sudo"], "as root": ways["by certificates, as root"]} {
		g.run(name, func(t *testing.T) {
			for _, edit := range []func(*remote.CertificateOptions){
				func(o *remote.CertificateOptions) { o.Principal = "refit" },
				func(o *remote.CertificateOptions) { o.Principal = "somebody" },
				func(o *remote.CertificateOptions) { o.Sources = []string{"192.0.2.0/24"} },
			} {
				_, err := g.dial(g.target(w, edit))
				require.ErrorIs(t, err, remote.ErrUnauthorized)
			}
			to := g.target(w, nil)
			to.Certificates, err = remote.NewUserCertificates(stranger, remote.CertificateOptions{Principal: w.user, ForceCommand: w.command()})
			require.NoError(t, err)
			_, err = g.dial(to)
			require.ErrorIs(t, err, remote.ErrUnauthorized, "another authority's")

			now := time.Now()
			for when, tc := range map[string]struct {
				after, before time.Duration
				good          bool
			}{
				"now":       {-time.Minute, time.Minute, true},
				"expired":   {-time.Hour, -time.Second, false},
				"not begun": {time.Hour, 2 * time.Hour, false},
			} {
				to := g.target(w, nil)
				to.Certificates = nil
				to.Signers = []ssh.Signer{g.certificate(w, func(c *ssh.Certificate) {
					c.ValidAfter, c.ValidBefore = uint64(now.Add(tc.after).Unix()), uint64(now.Add(tc.before).Unix())
				})}
				_, err := g.dial(to)
				require.Equal(t, tc.good, err == nil, "%s: %v", when, err)
			}
		})
	}
	for user, want := range map[string]string{
		"ops":  "the node's gate: no request came", // by ForceCommand
		"root": "",                                 // by PermitRootLogin forced-commands-only, which ends the connection
	} {
		g.run("one without a command runs nothing else than the gate, as "+user, func(t *testing.T) {
			w := way{user: user, certificate: true}
			to := g.target(w, nil)
			to.Certificates, to.Signers = nil, []ssh.Signer{g.certificate(w, func(c *ssh.Certificate) {
				c.CriticalOptions, c.Extensions = nil, map[string]string{"permit-pty": "", "permit-port-forwarding": ""}
			})}
			c, err := g.dial(to)
			var out bytes.Buffer
			if err == nil {
				err = c.Run(t.Context(), "id", nil, &out)
			}
			require.Error(t, err)
			require.NotContains(t, out.String(), "uid=")
			require.Contains(t, out.String(), want)
		})
	}
}

// certificate signs as the authority's thief would.
func (g *gatedMachine) certificate(w way, edit func(*ssh.Certificate)) ssh.Signer {
	g.t.Helper()
	own := newKey(g.t)
	c := &ssh.Certificate{
		Key: own.PublicKey(), CertType: ssh.UserCert, ValidPrincipals: []string{w.user}, ValidBefore: ssh.CertTimeInfinity,
		Permissions: ssh.Permissions{CriticalOptions: map[string]string{"force-command": w.command()}},
	}
	edit(c)
	require.NoError(g.t, c.SignCert(rand.Reader, parsed(g.t, g.authority)))
	s, err := ssh.NewCertSigner(c, own)
	require.NoError(g.t, err)
	return s
}

func TestTheAgentsDirectory(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.update(quietFile("one"))
	const agent = "$(ls /var/lib/refit/bin/refit-node-*)"
	for name, spoil := range map[string]string{
		"it belongs to another user":                  "chown daemon /var/lib/refit/bin",
		"the one above it belongs to another user":    "chown daemon /var/lib/refit",
		"a group may write it":                        "chmod 0770 /var/lib/refit/bin",
		"it is a link into another user's directory":  "cp -a /var/lib/refit/bin /home/refit/ && mv /var/lib/refit/bin /var/lib/refit/away && ln -s /home/refit/bin /var/lib/refit/bin",
		"it was removed, and its parent is another's": "mv /var/lib/refit/bin /var/lib/refit/away && chown daemon /var/lib/refit",
	} {
		m.run(name, func(t *testing.T) {
			m.sh("cp -a /var/lib/refit /root/before; " + spoil)
			_, err := m.agent.Plan(t.Context(), m.request(m.spec))
			require.ErrorContains(t, err, "belong to root")
			m.sh("rm -rf /var/lib/refit /home/refit/bin && mv /root/before /var/lib/refit")
		})
	}
	m.run("another program in the agent's place is replaced", func(t *testing.T) {
		m.sh("printf '#!/bin/sh\\ntouch /root/hacked\\n' >/root/evil && install -m 0755 /root/evil " + agent)
		m.update(quietFile("two"))
		m.sh("test ! -e /root/hacked")
	})
	m.run("and one that its owner can change while it is verified", func(t *testing.T) {
		m.sh("chown daemon " + agent)
		m.update(quietFile("three"))
		require.Equal(t, "root", m.sh("stat -c %U "+agent))
	})
}

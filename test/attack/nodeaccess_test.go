package attack_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/nodetest"
	"github.com/capi-refit/refit/internal/node/remote"
)

func TestAMachineIsUpdatedThroughTheGateAlone(t *testing.T) {
	for name, certificate := range map[string]bool{"by a key that is bound to it": false, "by certificates of five minutes": true} {
		t.Run(name, func(t *testing.T) {
			g := newGated(t)
			c := g.client(g.dial(certificate))
			for _, digest := range []string{"digest-1", "digest-2"} {
				plan, err := c.Plan(t.Context(), request(digest))
				require.NoError(t, err)
				require.Len(t, plan.Changes, 1)
				status, err := c.Apply(t.Context(), request(digest))
				require.NoError(t, err)
				require.Equal(t, node.Succeeded, status.State, status.Message)
				data, err := os.ReadFile(filepath.Join(g.Root(), "opt/app.conf"))
				require.NoError(t, err)
				require.Equal(t, digest, string(data))
			}
			id, err := c.Identity(t.Context())
			require.NoError(t, err)
			require.Equal(t, digestOf(g.agent), id.SHA256)
			for _, command := range g.Commands() {
				require.Equal(t, node.GateCommand, command, "nothing else is ever asked for")
			}
			require.Len(t, g.Commands(), 4+4, "the first plan brings the agent; a call takes one round trip")
		})
	}
}

func TestTheGateRunsNoCommand(t *testing.T) {
	g := newGated(t)
	for _, certificate := range []bool{false, true} {
		c := g.dial(certificate)
		marker := filepath.Join(g.Root(), "the-attacker-was-here")
		for _, command := range []string{"touch " + marker, "sudo touch " + marker, "sh", "internal-sftp", "usr/local/sbin/refit-node plan; touch " + marker, "scp -t /"} {
			var out bytes.Buffer
			require.Error(t, c.Run(t.Context(), command, strings.NewReader("touch "+marker+"\n"), &out), command)
			require.Contains(t, out.String(), "only refit can come in here", command)
			require.NoFileExists(t, marker)
		}
	}
}

func TestTheGateRefuses(t *testing.T) {
	g := newGated(t)
	c := g.dial(true)
	_, err := g.client(c).Plan(t.Context(), request("digest-1"))
	require.NoError(t, err)
	_, stranger, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	marker := filepath.Join(g.Root(), "the-attacker-was-here")
	evil := fmt.Appendf(nil, "#!/bin/sh\n: >%s\n", marker)
	push := func(s node.AgentSignature, body []byte) (node.Answer, string) {
		return ask(t, c, node.GateRequest{Do: node.GatePush, Size: int64(len(body)), Signature: &s}, body)
	}
	run := func(digest, verb string) (node.Answer, string) {
		return ask(t, c, node.GateRequest{Do: node.GateRun, Agents: map[string]string{runtime.GOARCH: digest}, Verb: verb}, nil)
	}
	statement := func(edit func(*node.AgentSignature)) node.AgentSignature {
		s := g.signature(g.signing, evil, 0)
		edit(&s)
		return s
	}
	for name, attack := range map[string]struct {
		try  func() (node.Answer, string)
		says string
	}{
		"an agent that nobody has signed": {func() (node.Answer, string) {
			return ask(t, c, node.GateRequest{Do: node.GatePush, Size: int64(len(evil))}, evil)
		}, "without a signature"},
		"an agent that somebody else has signed": {func() (node.Answer, string) { return push(g.signature(stranger, evil, 0), evil) }, "none of the keys"},
		"an agent with the signature of another": {func() (node.Answer, string) { return push(g.signature(g.signing, g.agent, 1), evil) }, "not what was signed"},
		"a statement that was changed": {func() (node.Answer, string) {
			return push(statement(func(s *node.AgentSignature) { s.RollbackIndex = 9 }), evil)
		}, "none of the keys"},
		"a statement whose parts were moved": {func() (node.Answer, string) {
			return push(statement(func(s *node.AgentSignature) { s.Version = "test\x000" }), evil)
		}, "can't be signed"},
		"a signature of something else with the same key": {func() (node.Answer, string) {
			return push(statement(func(s *node.AgentSignature) { s.Signature = ed25519.Sign(g.signing, []byte(s.SHA256)) }), evil)
		}, "none of the keys"},
		"an agent that is endless": {func() (node.Answer, string) {
			s := g.signature(g.signing, evil, 0)
			return ask(t, c, node.GateRequest{Do: node.GatePush, Size: 1 << 40, Signature: &s}, evil)
		}, "is not taken"},
		"an agent for another machine": {func() (node.Answer, string) {
			s, err := node.SignAgent(g.signing, node.AgentStatement{OS: "linux", Architecture: "riscv64", Version: "test", SHA256: digestOf(evil)})
			require.NoError(t, err)
			return push(s, evil)
		}, "this node is linux/" + runtime.GOARCH},
		"an agent that was never brought":        {func() (node.Answer, string) { return run(digestOf(evil), "plan") }, "has to be brought"},
		"a path in place of a digest":            {func() (node.Answer, string) { return run("../../../../bin/sh", "plan") }, "no agent for"},
		"the verb of what the agent itself runs": {func() (node.Answer, string) { return run(digestOf(g.agent), "run") }, "can't be told"},
		"an option in place of a verb":           {func() (node.Answer, string) { return run(digestOf(g.agent), "--root=/") }, "can't be told"},
		"a request that is none":                 {func() (node.Answer, string) { return raw(t, c, []byte("touch "+marker+"\n")) }, "only refit can come in"},
		"a request without an end":               {func() (node.Answer, string) { return raw(t, c, bytes.Repeat([]byte("["), 1<<20)) }, "longer than"},
		"something else than it can do":          {func() (node.Answer, string) { return ask(t, c, node.GateRequest{Do: "Shell"}, nil) }, "does not know"},
		"a protocol that it does not speak":      {func() (node.Answer, string) { return raw(t, c, []byte("{\"gate\":2,\"do\":\"Run\"}\n")) }, "version 2"},
	} {
		t.Run(name, func(t *testing.T) {
			answer, says := attack.try()
			require.NotNil(t, answer.Error)
			require.Contains(t, says, attack.says)
			require.NoFileExists(t, marker)
			entries, err := os.ReadDir(filepath.Join(g.Root(), "var/lib/refit/gate"))
			require.NoError(t, err)
			for _, e := range entries {
				require.NotContains(t, e.Name(), ".incoming-", "nothing is left of it")
				require.NotContains(t, e.Name(), digestOf(evil))
			}
		})
	}
	_, err = g.client(c).Plan(t.Context(), request("digest-1"))
	require.NoError(t, err, "who may come in still can")
}

func TestTheGateDoesNotGoBackToAnAgentThatWasWithdrawn(t *testing.T) {
	g := newGated(t)
	old := g.signature(g.signing, g.agent, 0)
	c := g.dial(true)
	_, err := g.client(c).Plan(t.Context(), request("digest-1"))
	require.NoError(t, err)
	previous := g.agent
	g.agent = append(bytes.Clone(previous), "a newer one"...)
	g.sign(g.signing, 1)
	_, err = g.client(c).Plan(t.Context(), request("digest-1"))
	require.NoError(t, err)

	a, says := ask(t, c, node.GateRequest{Do: node.GatePush, Size: int64(len(previous)), Signature: &old}, previous)
	require.NotNil(t, a.Error)
	require.Contains(t, says, "rollback index")
	a, says = ask(t, c, node.GateRequest{Do: node.GateRun, Agents: map[string]string{runtime.GOARCH: digestOf(previous)}, Verb: "version"}, nil)
	require.NotNil(t, a.Error, "it is still there, and does not run")
	require.Contains(t, says, "rollback index")
}

func TestTheGateVerifiesWhatItRunsEachTime(t *testing.T) {
	stored := func(g *gated) string {
		return filepath.Join(g.Root(), "var/lib/refit/gate", "refit-node-"+digestOf(g.agent))
	}
	for name, attack := range map[string]struct {
		spoil func(t *testing.T, g *gated)
		says  string // empty: the agent is brought again
	}{
		"another program in its place": {spoil: func(t *testing.T, g *gated) {
			require.NoError(t, os.WriteFile(stored(g), fmt.Appendf(nil, "#!/bin/sh\n: >%s/the-attacker-was-here\n", g.Root()), 0o700))
		}},
		"a link in its place": {spoil: func(t *testing.T, g *gated) {
			require.NoError(t, os.Remove(stored(g)))
			require.NoError(t, os.Symlink("/bin/sh", stored(g)))
		}},
		"a file that others may write": {spoil: func(t *testing.T, g *gated) { require.NoError(t, os.Chmod(stored(g), 0o777)) }},
		"a signature that is gone":     {spoil: func(t *testing.T, g *gated) { require.NoError(t, os.Remove(stored(g)+".sig")) }},
		"a directory that others may write": {func(t *testing.T, g *gated) {
			require.NoError(t, os.Chmod(filepath.Dir(stored(g)), 0o777))
		}, "others than root can change"},
		"a key that is not trusted any more": {func(t *testing.T, g *gated) {
			other, _, err := ed25519.GenerateKey(rand.Reader)
			require.NoError(t, err)
			g.trust(other)
		}, "none of the keys"},
		"keys that others may write": {func(t *testing.T, g *gated) {
			require.NoError(t, os.Chmod(filepath.Join(g.Root(), "etc/refit/agent-signers"), 0o666))
		}, "others than root can change"},
		"no keys at all": {func(t *testing.T, g *gated) {
			require.NoError(t, os.RemoveAll(filepath.Join(g.Root(), "etc/refit")))
		}, "can't be read"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGated(t)
			c := g.client(g.dial(true))
			_, err := c.Plan(t.Context(), request("digest-1"))
			require.NoError(t, err)
			attack.spoil(t, g)
			_, err = c.Plan(t.Context(), request("digest-1"))
			if attack.says != "" {
				require.ErrorContains(t, err, attack.says)
			} else {
				require.NoError(t, err)
			}
			require.NoFileExists(t, filepath.Join(g.Root(), "the-attacker-was-here"))
		})
	}
}

func TestACertificateIsGoodForWhatItSaysOnly(t *testing.T) {
	g := newGated(t)
	stranger, err := nodetest.NewKey()
	require.NoError(t, err)
	dial := func(c *remote.UserCertificates) (remote.Conn, error) {
		to, err := g.Target()
		require.NoError(t, err)
		to.PrivateKey, to.Certificates = nil, c
		return remote.SSHDialer{}.Dial(t.Context(), to)
	}
	for name, c := range map[string]*remote.UserCertificates{
		"another principal": g.certificates(g.authority, remote.CertificateOptions{Principal: "somebody-else", ForceCommand: forced(g.Root())}),
		"another authority": g.certificates(stranger, remote.CertificateOptions{Principal: g.User(), ForceCommand: forced(g.Root())}),
	} {
		_, err := dial(c)
		require.ErrorIs(t, err, remote.ErrUnauthorized, name)
		require.ErrorContains(t, err, "TrustedUserCAKeys", name)
	}
	_, err = remote.NewUserCertificates(g.authority, remote.CertificateOptions{Principal: g.User(), ForceCommand: " "})
	require.ErrorContains(t, err, "good for a shell")
	_, err = remote.NewUserCertificates(g.authority, remote.CertificateOptions{ForceCommand: "gate"})
	require.ErrorContains(t, err, "good for every user")

	behind := newGated(t)
	through := func(o remote.CertificateOptions) error {
		to, err := behind.Target()
		require.NoError(t, err)
		jump, err := g.Target()
		require.NoError(t, err)
		o.Principal = g.User()
		jump.PrivateKey, jump.Certificates = nil, g.certificates(g.authority, o)
		to.Jump = &jump
		c, err := remote.SSHDialer{}.Dial(t.Context(), to)
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	require.Error(t, through(remote.CertificateOptions{ForceCommand: forced(g.Root())}), "one for a node forwards nothing")
	require.NoError(t, through(remote.CertificateOptions{JumpHost: true}))

	c, err := dial(g.certificates(g.authority, remote.CertificateOptions{Principal: g.User(), JumpHost: true}))
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	require.Error(t, c.Run(t.Context(), "true", nil, nil), "one for a jump host runs nothing")
}

func TestCertificatesForAShellAreNotSigned(t *testing.T) {
	authority, err := nodetest.NewKey()
	require.NoError(t, err)
	for _, command := range []string{"/bin/sh", "sudo -n sh", "sudo -n /bin/bash", node.DefaultGate + "; sh gate", "/bin/sh -c $SSH_ORIGINAL_COMMAND gate", "true\nsh gate"} {
		_, err := remote.NewUserCertificates(authority, remote.CertificateOptions{Principal: "refit", ForceCommand: command})
		require.ErrorContains(t, err, "must be the gate", command)
	}
}

func TestALoginThatIsNotBoundToTheGateIsNotTakenForOne(t *testing.T) {
	n, err := nodetest.Start(nodetest.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = n.Close() })
	to, err := n.Target()
	require.NoError(t, err)
	c, err := remote.SSHDialer{}.Dial(t.Context(), to)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	g := newGated(t)
	_, err = g.client(c).Plan(t.Context(), request("digest-1"))
	require.ErrorIs(t, err, remote.ErrUnauthorized)
	require.ErrorContains(t, err, "not bound to the gate")
}

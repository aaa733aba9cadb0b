package node

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
)

func TestAgentSignatures(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	other, _, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	statement := AgentStatement{OS: "linux", Architecture: "amd64", Version: "v1.2.3-4-g0", RollbackIndex: 3, SHA256: strings.Repeat("a", 64)}
	signature, err := SignAgent(private, statement)
	require.NoError(t, err)
	text, err := json.Marshal(signature)
	require.NoError(t, err)
	read, err := ParseAgentSignature(text)
	require.NoError(t, err)
	assert.Equal(t, signature, read)
	require.NoError(t, read.Verify([]ed25519.PublicKey{other, public}), "one of several keys is enough: keys are rotated")
	require.ErrorContains(t, read.Verify([]ed25519.PublicKey{other}), "none of the keys")
	require.ErrorContains(t, read.Verify(nil), "none of the keys")
	for name, change := range map[string]func(*AgentSignature){
		"os":             func(s *AgentSignature) { s.OS = "freebsd" },
		"architecture":   func(s *AgentSignature) { s.Architecture = "arm64" },
		"version":        func(s *AgentSignature) { s.Version = "v9" },
		"rollback index": func(s *AgentSignature) { s.RollbackIndex++ },
		"digest":         func(s *AgentSignature) { s.SHA256 = strings.Repeat("b", 64) },
		"signature":      func(s *AgentSignature) { s.Signature = nil },
	} {
		changed := signature
		change(&changed)
		require.Error(t, changed.Verify([]ed25519.PublicKey{public}), name)
	}
	for _, bad := range []AgentStatement{
		{}, {OS: "linux", Architecture: "amd64", Version: "v 1", SHA256: statement.SHA256},
		{OS: "linux", Architecture: "amd64", Version: "v1", SHA256: "AB"}, {OS: "linux\x00x", Architecture: "amd64", Version: "v1", SHA256: statement.SHA256},
		{OS: "linux", Architecture: "amd64", Version: "v1", SHA256: statement.SHA256, RollbackIndex: -1},
	} {
		_, err := SignAgent(private, bad)
		require.Error(t, err)
	}
	for _, bad := range []string{"", "{}{}", `{"a":1}`, strings.Repeat(" ", 5000)} {
		_, err := ParseAgentSignature([]byte(bad))
		require.Error(t, err)
	}
}

func TestAgentSigningKeys(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	for name, text := range map[string][]byte{
		"of ssh-keygen": pemOf(t, private, ""), "of openssl": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
	} {
		key, err := ParseAgentSigningKey(text)
		require.NoError(t, err, name)
		assert.Equal(t, private, key, name)
	}
	ecdsaKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	for want, text := range map[string][]byte{
		"has a passphrase": pemOf(t, private, "secret"), "can't be read": []byte("secret"), "is not an Ed25519 key": pemOf(t, ecdsaKey, ""),
	} {
		_, err := ParseAgentSigningKey(text)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}

	line := func(key any) string {
		k, err := ssh.NewPublicKey(key)
		require.NoError(t, err)
		return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(k)))
	}
	keys, err := ParseAgentSigners([]byte("# agents\n\n" + line(public) + " releases 2026\n" + line(public) + "\n"))
	require.NoError(t, err)
	assert.Equal(t, []ed25519.PublicKey{public, public}, keys)
	for want, text := range map[string]string{
		"there is no key":               "# none\n",
		"line 2 is not a public key":    line(public) + "\nssh-ed25519 AAAA\n",
		"line 1 is not a public key as": `no-pty ` + line(public),
		"can't sign agents":             line(&ecdsaKey.PublicKey),
	} {
		_, err := ParseAgentSigners([]byte(text))
		require.ErrorContains(t, err, want)
	}
}

func TestLoadSignedAgents(t *testing.T) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	agents, signatures := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(agents, "refit-node-linux-amd64"), []byte("agent"), 0o600))
	loaded, err := LoadSignedAgents(agents, signatures)
	require.NoError(t, err)
	assert.Nil(t, loaded.binaries[0].Signature)

	write := func(s AgentStatement) {
		signature, err := SignAgent(private, s)
		require.NoError(t, err)
		text, err := json.Marshal(signature)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(signatures, "refit-node-linux-amd64.sig"), text, 0o600))
	}
	statement := AgentStatement{OS: "linux", Architecture: "amd64", Version: "v1", SHA256: digest([]byte("agent"))}
	write(statement)
	loaded, err = LoadSignedAgents(agents, signatures)
	require.NoError(t, err)
	assert.Equal(t, statement, loaded.binaries[0].Signature.AgentStatement)

	statement.SHA256 = digest([]byte("the one before"))
	write(statement)
	_, err = LoadSignedAgents(agents, signatures)
	require.ErrorContains(t, err, "signature of another agent")
}

package node

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
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

func TestAgentSigners(t *testing.T) {
	public, _, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	ecdsaKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
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

// FuzzAgentSigners compares with the SSH library's reading: a key that is trusted is the one that is written there.
func FuzzAgentSigners(f *testing.F) {
	key, err := ssh.NewPublicKey(ed25519.PublicKey(strings.Repeat("k", ed25519.PublicKeySize)))
	require.NoError(f, err)
	line := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
	for _, seed := range []string{
		line, line + " a comment", "  " + line, "\t" + strings.Replace(line, " ", "\t", 1), line + "=", line[:len(line)-4], "no-pty " + line,
		strings.Replace(line, "ssh-ed25519", "ssh-rsa", 1), strings.Replace(line, "AAAAC", "AAAAD", 1), "ssh-ed25519", "ssh-ed25519 AAAA", "\u00a0" + line,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "\n") {
			return
		}
		keys, err := ParseAgentSigners([]byte(text))
		if err != nil {
			return
		}
		require.Len(t, keys, 1)
		theirs, _, options, _, err := ssh.ParseAuthorizedKey([]byte(text))
		require.NoError(t, err)
		require.Empty(t, options)
		require.Equal(t, theirs.(ssh.CryptoPublicKey).CryptoPublicKey(), keys[0])
	})
}

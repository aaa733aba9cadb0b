package remote

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/node"
)

func TestLoadSignedAgents(t *testing.T) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	agents, signatures := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(agents, "refit-node-linux-amd64"), []byte("agent"), 0o600))
	loaded, err := LoadSignedAgents(agents, signatures)
	require.NoError(t, err)
	assert.Nil(t, loaded.binaries[0].Signature)

	write := func(s node.AgentStatement) {
		signature, err := node.SignAgent(private, s)
		require.NoError(t, err)
		text, err := json.Marshal(signature)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(signatures, "refit-node-linux-amd64.sig"), text, 0o600))
	}
	statement := node.AgentStatement{OS: "linux", Architecture: "amd64", Version: "v1", SHA256: digest([]byte("agent"))}
	write(statement)
	loaded, err = LoadSignedAgents(agents, signatures)
	require.NoError(t, err)
	assert.Equal(t, statement, loaded.binaries[0].Signature.AgentStatement)

	statement.SHA256 = digest([]byte("the one before"))
	write(statement)
	_, err = LoadSignedAgents(agents, signatures)
	require.ErrorContains(t, err, "signature of another agent")
}

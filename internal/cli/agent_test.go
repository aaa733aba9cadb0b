package cli

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"debug/elf"
	"encoding/binary"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
)

// program is a header that says for which machine a program is.
func program(t *testing.T, machine elf.Machine) []byte {
	t.Helper()
	var out bytes.Buffer
	header := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT)}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS], header.Ident[elf.EI_DATA], header.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	require.NoError(t, binary.Write(&out, binary.LittleEndian, header))
	return out.Bytes()
}

func TestSignAgents(t *testing.T) {
	dir := t.TempDir()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKey(private, "")
	require.NoError(t, err)
	write := func(name string, data []byte) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, data, 0o600))
		return file
	}
	key := write("key", pem.EncodeToMemory(block))
	sign := func(args ...string) error {
		cmd := newAgentCommand()
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetArgs(append([]string{"sign"}, args...))
		return cmd.Execute()
	}
	amd64, arm64 := write("refit-node-linux-amd64", program(t, elf.EM_X86_64)), write("refit-node-linux-arm64", program(t, elf.EM_AARCH64))
	require.NoError(t, sign("--key", key, "--rollback-index", "7", amd64, arm64))
	agents, err := remote.LoadAgents(dir)
	require.NoError(t, err, "the signatures fit the agents")
	for machine, arch := range map[string]string{"x86_64": "amd64", "aarch64": "arm64"} {
		binary, err := agents.For(machine)
		require.NoError(t, err)
		require.NoError(t, binary.Signature.Verify([]ed25519.PublicKey{public}))
		require.Equal(t, node.AgentStatement{OS: "linux", Architecture: arch, Version: "dev", RollbackIndex: 7, SHA256: binary.SHA256}, binary.Signature.AgentStatement)
	}

	other := t.TempDir()
	require.NoError(t, sign("--key", key, "--output-dir", other, amd64))
	require.FileExists(t, filepath.Join(other, "refit-node-linux-amd64.sig"))

	require.ErrorContains(t, sign(amd64), `"key" not set`)
	require.ErrorContains(t, sign("--key", amd64, amd64), "can't be read")
	require.ErrorContains(t, sign("--key", key, key), "is not a program for Linux")
	require.ErrorContains(t, sign("--key", key, write("riscv", program(t, elf.EM_RISCV))), "amd64 and arm64 only")
	require.ErrorContains(t, sign("--key", key, "--rollback-index", "-1", amd64), "negative")
}

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

// program is what says for which machine a program is, and which main package it was built from, as Go's linker writes it.
func program(t *testing.T, machine elf.Machine, mainPackage string) []byte {
	t.Helper()
	const headers, sentinel = 64 + 56, "0123456789abcdef"
	info := append([]byte("\xff Go buildinf:\x08\x02"), make([]byte, 16)...) // what follows is text, each with its length
	for _, text := range []string{"go1.26.0", sentinel + "path\t" + mainPackage + "\nmod\tm\t(devel)\t\n" + sentinel} {
		info = append(binary.AppendUvarint(info, uint64(len(text))), text...)
	}
	var out bytes.Buffer
	header := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Phoff: 64, Phentsize: 56, Phnum: 1, Shentsize: 64,
	}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS], header.Ident[elf.EI_DATA], header.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	size := uint64(len(info))
	data := elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_W), Off: headers + 8, Vaddr: 4096, Paddr: 4096, Filesz: size, Memsz: size, Align: 16}
	for _, part := range []any{header, data, uint64(0), info} {
		require.NoError(t, binary.Write(&out, binary.LittleEndian, part))
	}
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
	amd64, arm64 := write("refit-node-linux-amd64", program(t, elf.EM_X86_64, agentPackage)), write("refit-node-linux-arm64", program(t, elf.EM_AARCH64, agentPackage))
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
	require.ErrorContains(t, sign("--key", key, write("riscv", program(t, elf.EM_RISCV, agentPackage))), "amd64 and arm64 only")
	require.ErrorContains(t, sign("--key", key, write("server", program(t, elf.EM_X86_64, "github.com/capi-refit/refit/cmd/refit"))), "is not an agent: it was built from")
	require.NoFileExists(t, filepath.Join(dir, "server.sig"))
	require.ErrorContains(t, sign("--key", key, write("other", program(t, elf.EM_X86_64, "example.com/cmd/refit-node"))), "is not an agent")
	ls, err := os.ReadFile("/bin/ls")
	require.NoError(t, err)
	require.ErrorContains(t, sign("--key", key, write("ls", ls)), "is not an agent: it does not say what it was built from")
	require.ErrorContains(t, sign("--key", key, "--rollback-index", "-1", amd64), "negative")
}

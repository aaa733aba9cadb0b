package remote

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/node"
)

// architectures maps what `uname -m` says to the names that Go has for it.
var architectures = []struct{ name, machines string }{
	{"amd64", "x86_64|amd64"},
	{"arm64", "aarch64|arm64"},
}

// AgentBinary is the agent for one architecture.
type AgentBinary struct {
	// Arch is GOARCH.
	Arch string
	// SHA256 is the digest of the binary, in hex.
	SHA256 string
	// Signature is nil for an agent that nobody has signed.
	Signature *node.AgentSignature
	// file stays open: a file that is put in its place would not be what was hashed. Nodes refuse what does not have the digest.
	file *os.File
	size int64
}

// Name is the file's name on the node. It has the digest in it, so that servers of different versions don't get into each
// other's way.
func (b AgentBinary) Name() string { return agentPrefix + b.SHA256[:16] }

const agentPrefix = "refit-node-"

// Agents are the agent binaries that the server brings to nodes.
type Agents struct {
	dir      string
	binaries []AgentBinary
}

// LoadAgents opens refit-node-linux-amd64 and refit-node-linux-arm64 in dir, whichever are there, and reads their signatures if there are
// any. They stay open.
func LoadAgents(dir string) (*Agents, error) { return LoadSignedAgents(dir, dir) }

// LoadSignedAgents is LoadAgents with the signatures in a directory of their own.
func LoadSignedAgents(dir, signatures string) (*Agents, error) {
	agents := &Agents{dir: dir}
	for _, arch := range architectures {
		name := "refit-node-linux-" + arch.name
		binary, err := openAgent(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the agent for %s: %w", arch.name, err)
		}
		binary.Arch = arch.name
		if err := binary.loadSignature(filepath.Join(signatures, name+".sig")); err != nil {
			return nil, err
		}
		agents.binaries = append(agents.binaries, binary)
	}
	if len(agents.binaries) == 0 {
		return nil, fmt.Errorf("no agent in %q: want refit-node-linux-amd64 or refit-node-linux-arm64 there; `make build` makes them, --agent-dir says where they are", dir)
	}
	return agents, nil
}

// openAgent opens the file of an agent.
func openAgent(name string) (AgentBinary, error) {
	file, err := os.Open(name)
	if err != nil {
		return AgentBinary{}, err
	}
	sum := sha256.New()
	size, err := io.Copy(sum, file)
	if err != nil {
		_ = file.Close()
		return AgentBinary{}, err
	}
	return AgentBinary{SHA256: hex.EncodeToString(sum.Sum(nil)), file: file, size: size}, nil
}

// loadSignature reads the signature of an agent, if there is one. Who has made it is for the nodes to judge.
func (b *AgentBinary) loadSignature(file string) error {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the signature of the agent for %s: %w", b.Arch, err)
	}
	s, err := node.ParseAgentSignature(data)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if s.SHA256 != b.SHA256 || s.Architecture != b.Arch {
		return fmt.Errorf("%s is the signature of another agent (%s, SHA-256 %.16s…) than the one for %s (%.16s…); sign that with refit agent sign, or take the file away",
			file, begin(s.Architecture, 40), begin(s.SHA256, 64), b.Arch, b.SHA256)
	}
	b.Signature = &s
	return nil
}

// For returns the agent for a machine as `uname -m` names it.
func (a *Agents) For(machine string) (AgentBinary, error) {
	for _, arch := range architectures {
		if !slices.Contains(strings.Split(arch.machines, "|"), machine) {
			continue
		}
		for _, b := range a.binaries {
			if b.Arch == arch.name {
				return b, nil
			}
		}
		return AgentBinary{}, fmt.Errorf("no agent for %s in %q: want refit-node-linux-%s there; `make build` makes it", arch.name, a.dir, arch.name)
	}
	return AgentBinary{}, fmt.Errorf("the node's architecture is %q, and there are agents for amd64 and arm64 only", begin(machine, 40))
}

// has reports whether an agent that gives itself this digest is one of ours.
func (a *Agents) has(sha256 string) bool {
	return slices.ContainsFunc(a.binaries, func(b AgentBinary) bool { return b.SHA256 == sha256 })
}

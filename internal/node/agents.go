package node

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	data   []byte
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

// LoadAgents reads refit-node-linux-amd64 and refit-node-linux-arm64 from dir, whichever are there. They are read once: a
// file that is replaced later would not be what was hashed.
func LoadAgents(dir string) (*Agents, error) {
	agents := &Agents{dir: dir}
	for _, arch := range architectures {
		data, err := os.ReadFile(filepath.Join(dir, "refit-node-linux-"+arch.name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the agent for %s: %w", arch.name, err)
		}
		sum := sha256.Sum256(data)
		agents.binaries = append(agents.binaries, AgentBinary{Arch: arch.name, SHA256: hex.EncodeToString(sum[:]), data: data})
	}
	if len(agents.binaries) == 0 {
		return nil, fmt.Errorf("no agent in %q: want refit-node-linux-amd64 or refit-node-linux-arm64 there; `make build` makes them, --agent-dir says where they are", dir)
	}
	return agents, nil
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

// has says whether an agent that gives itself this digest is one of ours.
func (a *Agents) has(sha256 string) bool {
	return slices.ContainsFunc(a.binaries, func(b AgentBinary) bool { return b.SHA256 == sha256 })
}

package cli

import (
	"crypto/ed25519"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/capi-refit/refit/internal/node"
)

func newAgentCommand() *cobra.Command {
	return subcommands(&cobra.Command{Use: "agent", Short: "Sign the agents that refit brings to nodes"}, newAgentSignCommand())
}

func newAgentSignCommand() *cobra.Command {
	var keyFile, agentVersion, outputDir string
	var index int64
	cmd := &cobra.Command{
		Use:   "sign --key FILE AGENT...",
		Short: "Sign agents for nodes that refit comes in to by a gate",
		Long: "Sign agents for nodes that refit comes in to by a gate; other programs are refused. The signature of refit-node-linux-amd64 is put beside it, as\n" +
			"refit-node-linux-amd64.sig. Nodes trust the public half of the key when it is in /etc/refit/agent-signers. The key is needed\n" +
			"nowhere else: keep it away from the cluster.",
		Example: "  ssh-keygen -t ed25519 -N '' -C agents -f agent-signing\n" +
			"  refit agent sign --key agent-signing bin/agents/refit-node-linux-amd64 bin/agents/refit-node-linux-arm64",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := os.ReadFile(keyFile)
			if err != nil {
				return fmt.Errorf("read the signing key: %w", err)
			}
			key, err := parseSigningKey(data)
			if err != nil {
				return err
			}
			for _, file := range args {
				written, err := signAgent(key, file, outputDir, node.AgentStatement{Version: agentVersion, RollbackIndex: index})
				if err != nil {
					return err
				}
				cmd.Println(written)
			}
			return nil
		},
	}
	cmd.SetOut(os.Stdout)
	fs := cmd.Flags()
	fs.StringVar(&keyFile, "key", "", "File with the private key, Ed25519 in PEM, as ssh-keygen -t ed25519 writes it.")
	fs.StringVar(&agentVersion, "agent-version", version, "Version of the agents, for the nodes' logs.")
	fs.StringVar(&outputDir, "output-dir", "", "Directory for the signatures. Unset: that of each agent.")
	fs.Int64Var(&index, "rollback-index", 0, "Raise it when agents that were signed before must not run any more. A node that has had an agent with an index takes none with a lower one.")
	if err := cmd.MarkFlagRequired("key"); err != nil {
		panic(err) // there is such a flag
	}
	return cmd
}

// signAgent signs one agent and returns the file that it has written.
func signAgent(key ed25519.PrivateKey, file, dir string, s node.AgentStatement) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the agent: %w", err)
	}
	if s.OS, s.Architecture, err = platformOf(file); err != nil {
		return "", err
	}
	if err := checkAgent(file); err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	s.SHA256 = hex.EncodeToString(sum[:])
	signature, err := node.SignAgent(key, s)
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	text, err := json.Marshal(signature)
	if err != nil {
		return "", err
	}
	if dir == "" {
		dir = filepath.Dir(file)
	}
	target := filepath.Join(dir, filepath.Base(file)+".sig")
	return target, os.WriteFile(target, append(text, '\n'), 0o644) //nolint:gosec // everybody may read a signature
}

// agentPackage is the main package of agents.
const agentPackage = "github.com/capi-refit/refit/cmd/refit-node"

// checkAgent returns an error for a program that is no agent: nodes run what is signed as root, for whoever comes in to them.
func checkAgent(file string) error {
	info, err := buildinfo.ReadFile(file)
	switch {
	case err != nil:
		return fmt.Errorf("%s is not an agent: it does not say what it was built from: %w", file, err)
	case info.Path != agentPackage:
		return fmt.Errorf("%s is not an agent: it was built from %q, and agents are from %q", file, info.Path, agentPackage)
	}
	return nil
}

// platformOf reads what a program was built for.
func platformOf(file string) (goos, goarch string, err error) {
	f, err := elf.Open(file)
	if err != nil {
		return "", "", fmt.Errorf("%s is not a program for Linux: %w", file, err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	switch f.Machine {
	case elf.EM_X86_64:
		return "linux", "amd64", nil
	case elf.EM_AARCH64:
		return "linux", "arm64", nil
	default:
		return "", "", fmt.Errorf("%s is for %s, and there are agents for amd64 and arm64 only", file, f.Machine)
	}
}

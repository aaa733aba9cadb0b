package nodes

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
)

// User is who is let into nodes. In containers it may use sudo without a password.
const User = "refit"

// JournalPath is where the agent keeps its journal.
const JournalPath = "/var/lib/refit/journal.jsonl"

// Node is a running node.
type Node struct {
	name    string
	fleet   *Fleet
	machine machine
	hostKey string

	mu      sync.Mutex
	address remote.Address
}

// machine is what a node really is.
type machine interface {
	// exec runs a command as root, as far as the machine has that.
	exec(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error)
	// read returns fs.ErrNotExist if there is no such file.
	read(ctx context.Context, path string) (File, error)
	// power pauses, unpauses or restarts it. It returns where it can be reached after that.
	power(ctx context.Context, verb string) (remote.Address, error)
}

// File is a file on a node.
type File struct {
	Content []byte
	// Mode is in octal with four digits: "0644".
	Mode string
	// Owner is "user:group".
	Owner string
}

// Name is the node's host name.
func (n *Node) Name() string { return n.name }

// Kind returns what the node is.
func (n *Node) Kind() Kind { return n.fleet.kind }

// Address is where its sshd listens.
func (n *Node) Address() remote.Address {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.address
}

// KnownHosts is its line of known_hosts.
func (n *Node) KnownHosts() []byte {
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(n.hostKey))
	if err != nil {
		return nil
	}
	return []byte(knownhosts.Line([]string{n.Address().String()}, key) + "\n")
}

// Target returns how to reach the node.
func (n *Node) Target() (remote.Target, error) {
	keys, err := remote.KnownHosts(n.KnownHosts())
	if err != nil {
		return remote.Target{}, err
	}
	return remote.Target{Addresses: []remote.Address{n.Address()}, User: User, PrivateKey: n.fleet.key, HostKeys: keys}, nil
}

// ClientOptions say how the agent is run on this kind of node.
func (n *Node) ClientOptions(agents *remote.Agents) remote.ClientOptions {
	if n.fleet.kind == StandIns {
		return remote.ClientOptions{Agents: agents, Dir: "bin-refit"}
	}
	return remote.ClientOptions{Agents: agents, Sudo: true}
}

// Exec runs a command on the node as root, not over SSH, and returns its stdout.
func (n *Node) Exec(ctx context.Context, args ...string) ([]byte, error) {
	return n.machine.exec(ctx, nil, args...)
}

// ReadFile reads a file of the node. A missing one is fs.ErrNotExist.
func (n *Node) ReadFile(ctx context.Context, path string) (File, error) {
	f, err := n.machine.read(ctx, path)
	if err != nil {
		return File{}, fmt.Errorf("node %s: read %s: %w", n.name, path, err)
	}
	return f, nil
}

// WriteFile makes a file on the node, with its directory, as bootstrap or a person does: not over SSH. Mode and owner are
// 0644 and root:root where f has none.
func (n *Node) WriteFile(ctx context.Context, path string, f File) error {
	const script = `mkdir -p "$(dirname "$1")" && cat >"$1" && chmod "$2" "$1" && { [ "$3" = root:root ] || chown "$3" "$1"; }`
	target := path
	if s, ok := n.machine.(standIn); ok {
		target = filepath.Join(s.Root(), path)
	}
	args := []string{"sh", "-c", script, "sh", target, cmp.Or(f.Mode, "0644"), cmp.Or(f.Owner, "root:root")}
	if _, err := n.machine.exec(ctx, bytes.NewReader(f.Content), args...); err != nil {
		return fmt.Errorf("node %s: write %s: %w", n.name, path, err)
	}
	return nil
}

// Journal reads what the agent has written down. No journal is an empty one.
func (n *Node) Journal(ctx context.Context) ([]node.JournalEntry, error) {
	f, err := n.ReadFile(ctx, JournalPath)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var entries []node.JournalEntry
	for line := range bytes.Lines(f.Content) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // it is being written
		}
		var e node.JournalEntry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("node %s: line %d of the journal: %w", n.name, len(entries)+1, err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// Pause makes the node answer nothing, as a machine without power. Nothing is lost.
func (n *Node) Pause(ctx context.Context) error { return n.power(ctx, "pause") }

// Unpause ends Pause.
func (n *Node) Unpause(ctx context.Context) error { return n.power(ctx, "unpause") }

// Restart reboots the node, hard, and waits until it lets us in again. Stand-ins can't.
func (n *Node) Restart(ctx context.Context) error {
	if err := n.power(ctx, "restart"); err != nil {
		return err
	}
	return n.await(ctx)
}

func (n *Node) power(ctx context.Context, verb string) error {
	address, err := n.machine.power(ctx, verb)
	if err != nil {
		return fmt.Errorf("node %s: %s: %w", n.name, verb, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.address = address
	return nil
}

// await connects until it works.
func (n *Node) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Minute, errors.New("not within ten minutes"))
	defer cancel()
	to, err := n.Target()
	if err != nil {
		return err
	}
	to.Timeouts = remote.Timeouts{Dial: time.Second, Handshake: 5 * time.Second}
	for {
		c, err := remote.SSHDialer{}.Dial(ctx, to)
		if err == nil {
			return c.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("node %s does not let us in: %w: %w", n.name, context.Cause(ctx), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// octal makes stat's mode the four digits that the wire format has.
func octal(mode string) string { return strings.Repeat("0", max(0, 4-len(mode))) + mode }

// Reloaded reports whether the unit was reloaded since the node started, as its systemd tells it. Of a stand-in it is what the
// fake of systemctl was asked for.
func (n *Node) Reloaded(ctx context.Context, unit string) (bool, error) {
	if s, ok := n.machine.(standIn); ok {
		return strings.Contains(s.SystemctlLog(), "reload "+unit), nil
	}
	out, err := n.Exec(ctx, "journalctl", "--unit", unit, "--no-pager", "--output", "cat")
	return strings.Contains(string(out), "Reloaded "+unit), err
}

// Shell is the command that opens a shell on the node.
func (n *Node) Shell() string {
	switch m := n.machine.(type) {
	case container:
		if m.engine.Host != "" {
			return "docker --host " + m.engine.Host + " exec -it " + m.name + " bash"
		}
		return "docker exec -it " + m.name + " bash"
	case standIn:
		return "cd " + m.Root()
	default:
		return ""
	}
}

package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/capi-refit/refit/internal/node/nodetest"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/test/lab"
	"github.com/capi-refit/refit/test/process"
)

// separation is the directory that an sshd of root wants to be there, and that is empty. Packages leave making it to systemd.
const separation = "/run/sshd"

// fleet is a number of OpenSSH's servers on loopback. Each has a directory of its own, which is the root of the node that it
// stands for; what is run runs on this machine and as this user.
type fleet struct {
	dir      string
	user     string
	key      []byte
	hosts    []*host
	launcher *process.Launcher
	undo     []func() error
}

type host struct {
	name, root string
	port       int
	known      []byte
	server     *process.Process
}

// startFleet starts n servers. An error that is exec.ErrNotFound says that there is no sshd on this machine.
func startFleet(ctx context.Context, n int) (*fleet, error) {
	f := &fleet{}
	if err := f.start(ctx, n); err != nil {
		return nil, errors.Join(err, f.stop())
	}
	return f, nil
}

func (f *fleet) start(ctx context.Context, n int) (err error) {
	program, err := findSSHD()
	if err != nil {
		return err
	}
	if err := f.prepare(); err != nil {
		return err
	}
	ports, err := lab.FreePorts(n)
	if err != nil {
		return err
	}
	f.launcher = process.NewLauncher()
	f.undo = append(f.undo, func() error { f.launcher.Close(); return nil })
	for i, port := range ports {
		h := &host{name: fmt.Sprintf("node-%d", i), port: port}
		h.root = filepath.Join(f.dir, h.name)
		if err := f.run(program, h); err != nil {
			return err
		}
		f.hosts = append(f.hosts, h)
	}
	f.undo = append(f.undo, func() error {
		var servers []*process.Process
		for _, h := range f.hosts {
			servers = append(servers, h.server)
		}
		return process.StopAll(servers, 5*time.Second)
	})
	for _, h := range f.hosts {
		if err := h.await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stop ends the servers with all that runs below them.
func (f *fleet) stop() error {
	var errs []error
	for i := len(f.undo) - 1; i >= 0; i-- {
		errs = append(errs, f.undo[i]())
	}
	return errors.Join(errs...)
}

// findSSHD returns the absolute path that sshd insists on.
func findSSHD() (string, error) {
	for _, name := range []string{"sshd", "/usr/sbin/sshd", "/usr/local/sbin/sshd"} {
		if found, err := exec.LookPath(name); err == nil {
			return filepath.Abs(found)
		}
	}
	return "", fmt.Errorf("sshd: %w", exec.ErrNotFound)
}

// prepare makes what all servers share.
func (f *fleet) prepare() error {
	me, err := user.Current()
	if err != nil {
		return err
	}
	f.user = me.Username
	if f.dir, err = os.MkdirTemp("", "refit-bench-"); err != nil {
		return err
	}
	f.undo = append(f.undo, func() error { return os.RemoveAll(f.dir) })
	if os.Getuid() == 0 {
		err := os.Mkdir(separation, 0o755)
		if err == nil {
			f.undo = append(f.undo, func() error { return os.Remove(separation) })
		} else if !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if f.key, err = nodetest.NewKey(); err != nil {
		return err
	}
	signer, err := ssh.ParsePrivateKey(f.key)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(f.path("key"), f.key, 0o600),
		os.WriteFile(f.path("authorized_keys"), ssh.MarshalAuthorizedKey(signer.PublicKey()), 0o600),
	)
}

func (f *fleet) path(name string) string { return filepath.Join(f.dir, name) }

// run starts the server of one host. The agent finds its root in the environment, which sshd sets. So is the user's home: what
// the shells of this machine's user read when they start has nothing to do with nodes, and can take longer than all else.
func (f *fleet) run(program string, h *host) error {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return err
	}
	hostKey, err := ssh.NewPublicKey(public)
	if err != nil {
		return err
	}
	h.known = []byte(knownhosts.Line([]string{h.address().String()}, hostKey) + "\n")
	if err := h.layOut(f.user); err != nil {
		return err
	}
	key, config := h.path("host_key"), h.path("sshd_config")
	text := fmt.Sprintf(`ListenAddress 127.0.0.1:%d
HostKey %s
PidFile none
AuthorizedKeysFile %s
AuthenticationMethods publickey
StrictModes no
PermitRootLogin prohibit-password
UsePAM no
PrintMotd no
UseDNS no
Subsystem sftp internal-sftp
SetEnv REFIT_ROOT=%s HOME=%s
`, h.port, key, f.path("authorized_keys"), h.root, filepath.Join(h.root, "root"))
	if err := errors.Join(os.WriteFile(key, pem.EncodeToMemory(block), 0o600), os.WriteFile(config, []byte(text), 0o600)); err != nil {
		return err
	}
	h.server, err = f.launcher.Start("sshd of "+h.name, h.path("sshd.log"), program, []string{"-D", "-e", "-f", config}, os.Environ())
	return err
}

func (h *host) path(name string) string { return h.root + "." + name }

func (h *host) address() remote.Address { return remote.Address{Host: "127.0.0.1", Port: h.port} }

// layOut makes the root as far as the agent looks at it. This user is taken for the node's root.
func (h *host) layOut(name string) error {
	uid, gid := os.Getuid(), os.Getgid()
	passwd := fmt.Sprintf("root:x:%d:%d::/root:/bin/sh\n", uid, gid)
	if name != "root" {
		passwd += fmt.Sprintf("%s:x:%d:%d::/:/bin/sh\n", name, uid, gid)
	}
	return errors.Join(
		os.MkdirAll(filepath.Join(h.root, "etc", "app"), 0o755),
		os.MkdirAll(filepath.Join(h.root, "tmp"), 0o755),
		os.MkdirAll(filepath.Join(h.root, "root"), 0o755),
		os.WriteFile(filepath.Join(h.root, "etc", "passwd"), []byte(passwd), 0o644),
		os.WriteFile(filepath.Join(h.root, "etc", "group"), fmt.Appendf(nil, "root:x:%d:\n", gid), 0o644),
	)
}

// await returns when the server listens.
func (h *host) await(ctx context.Context) error {
	for {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", h.address().String())
		if err == nil {
			return c.Close()
		}
		select {
		case <-h.server.Done():
			return h.server.Died()
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", h.server.Name, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// target returns how refit reaches the host.
func (f *fleet) target(h *host) (remote.Target, error) {
	keys, err := remote.KnownHosts(h.known)
	return remote.Target{Addresses: []remote.Address{h.address()}, User: f.user, PrivateKey: f.key, HostKeys: keys}, err
}

// knownHosts writes the file that ssh recognizes the hosts by.
func (f *fleet) knownHosts() (string, error) {
	var all []byte
	for _, h := range f.hosts {
		all = append(all, h.known...)
	}
	file := f.path("known_hosts")
	return file, os.WriteFile(file, all, 0o600)
}

// sshArgs are for ssh to any of the hosts.
func (f *fleet) sshArgs(known string) []string {
	return []string{
		"-F", "none", "-i", f.path("key"), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-o", "UserKnownHostsFile=" + known,
	}
}

func (f *fleet) ssh(ctx context.Context, program, known string, h *host, command string) error {
	args := append(f.sshArgs(known), "-p", strconv.Itoa(h.port), f.user+"@127.0.0.1", command)
	if output, err := exec.CommandContext(ctx, program, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ssh to %s: %w: %s", h.name, err, process.LastLines(output, 3))
	}
	return nil
}

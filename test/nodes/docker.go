package nodes

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/capi-refit/refit/internal/node/nodetest"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/test/engine"
)

// label is on all containers of a fleet. Its value is the id of the fleet's run.
const label = "dev.capi-refit.test"

// docker runs the docker command. It is the one that the user has set up, with its context and credentials.
func docker(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	return engine.Engine{}.Run(ctx, stdin, args...)
}

// preparing lets one fleet at a time look for the image, and make it.
var preparing sync.Mutex

func (f *Fleet) prepareContainers(ctx context.Context, o Options) error {
	preparing.Lock()
	defer preparing.Unlock()
	if err := sweep(ctx, o.Progress); err != nil {
		return err
	}
	image, err := ensureImage(ctx, o)
	if err != nil {
		return err
	}
	run := randomID()
	f.remove = func(ctx context.Context) error { return removeRun(ctx, run) }
	own, err := newNetwork(ctx, run)
	if err != nil {
		return err
	}
	f.start = func(ctx context.Context, name string) (*Node, error) {
		return f.startContainer(ctx, image, run, name, append(o.devices(), "--network", own.name, "--ip", own.next()))
	}
	say(o.Progress, "starting %d containers of %s (run %s)", len(o.Names), image, run)
	return nil
}

// firmware has the engine start a container again after it has ended by itself, as a machine's firmware does after a reboot. The
// container keeps its disk and its address, and loses what is in memory. It comes back from a power-off too: engines don't
// tell one from the other.
const firmware = "--restart=unless-stopped"

// devices has the engine let a container make the nodes of devices in its own /dev: it has no others but those.
func (o Options) devices() []string {
	if !o.LoopDevices {
		return nil
	}
	return []string{"--device-cgroup-rule", "b 7:* rmw", "--device-cgroup-rule", "c 10:237 rmw"}
}

func (f *Fleet) startContainer(ctx context.Context, image, run, name string, more []string) (*Node, error) {
	c := container{name: "refit-" + run + "-" + name}
	create := []string{
		"create", "--name", c.name, "--hostname", name,
		"--label", label + "=" + run, "--label", ownerLabel + "=" + owner(),
		// What systemd takes as pid 1, and less than --privileged, which some engines refuse.
		"--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE", "--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined",
		"--cgroupns", "private", "--tmpfs", "/run", "--tmpfs", "/tmp:exec", "--stop-signal", "SIGRTMIN+3",
		firmware,
	}
	if runtime.GOOS != "linux" {
		create = append(create, "--publish", "127.0.0.1::22")
	}
	keys, hostKey, err := f.keyFiles()
	if err != nil {
		return nil, err
	}
	steps := []func() error{
		func() error {
			// Not interrupted: the engine would go on alone, and Stop could come too early to see what it makes.
			_, err := docker(context.WithoutCancel(ctx), nil, slices.Concat(create, more, []string{image})...)
			return err
		},
		func() error { _, err := docker(ctx, bytes.NewReader(keys), "cp", "-", c.name+":/"); return err },
		func() error { _, err := docker(ctx, nil, "start", c.name); return err },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, fmt.Errorf("node %s: %w", name, err)
		}
	}
	address, err := c.address(ctx)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", name, err)
	}
	return &Node{name: name, fleet: f, machine: c, hostKey: hostKey, address: address}, nil
}

// keyFiles makes a host key for a container and returns it, with who may log in, as a tar archive. So a host is known
// before it is connected to for the first time.
func (f *Fleet) keyFiles() (archive []byte, hostKey string, err error) {
	pem, err := nodetest.NewKey()
	if err != nil {
		return nil, "", err
	}
	host, err := ssh.ParsePrivateKey(pem)
	if err != nil {
		return nil, "", err
	}
	user, err := ssh.ParsePrivateKey(f.key)
	if err != nil {
		return nil, "", err
	}
	hostKey = string(ssh.MarshalAuthorizedKey(host.PublicKey()))
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, file := range []struct {
		name string
		mode int64
		data []byte
	}{
		{"etc/ssh/ssh_host_ed25519_key", 0o600, pem},
		{"etc/ssh/ssh_host_ed25519_key.pub", 0o644, []byte(hostKey)},
		{"etc/ssh/authorized_keys.d/" + User, 0o644, ssh.MarshalAuthorizedKey(user.PublicKey())},
	} {
		if err := w.WriteHeader(&tar.Header{Name: file.name, Mode: file.mode, Size: int64(len(file.data))}); err != nil {
			return nil, "", err
		}
		if _, err := w.Write(file.data); err != nil {
			return nil, "", err
		}
	}
	return buf.Bytes(), hostKey, w.Close()
}

// container is a node by its name in an engine.
type container struct {
	engine engine.Engine
	name   string
}

func (c container) exec(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	return c.engine.Run(ctx, stdin, append([]string{"exec", "--interactive", c.name}, args...)...)
}

func (c container) read(ctx context.Context, name string) (File, error) {
	const missing = 44
	out, err := c.exec(ctx, nil, "sh", "-c", `[ -e "$1" ] || exit 44; stat -Lc '%a %U:%G' "$1" && cat "$1"`, "sh", path.Clean("/"+name))
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == missing:
		return File{}, fs.ErrNotExist
	case err != nil:
		return File{}, err
	}
	head, content, _ := bytes.Cut(out, []byte("\n"))
	mode, owner, _ := strings.Cut(string(head), " ")
	return File{Content: content, Mode: octal(mode), Owner: owner}, nil
}

func (c container) power(ctx context.Context, verb string) (remote.Address, error) {
	args := []string{verb, c.name}
	if verb == "restart" {
		args = []string{verb, "--time", "0", c.name}
	}
	if _, err := c.engine.Run(ctx, nil, args...); err != nil {
		return remote.Address{}, err
	}
	return c.address(ctx)
}

// address is the container's own on Linux. Elsewhere containers are in a virtual machine, and a port of the host leads to them.
func (c container) address(ctx context.Context) (remote.Address, error) {
	if runtime.GOOS != "linux" {
		out, err := c.engine.Run(ctx, nil, "port", c.name, "22/tcp")
		if err != nil {
			return remote.Address{}, err
		}
		first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return remote.ParseAddress(first)
	}
	out, err := c.engine.Run(ctx, nil, "inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}", c.name)
	if err != nil {
		return remote.Address{}, err
	}
	ips := strings.Fields(string(out))
	if len(ips) == 0 {
		return remote.Address{}, errors.New("the container has no address; has it ended? See `docker logs " + c.name + "`")
	}
	return remote.ParseAddress(ips[0])
}

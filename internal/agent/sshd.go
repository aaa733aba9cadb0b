package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/capi-refit/refit/internal/agent/host"
)

// sshRuntime is the directory without which Debian's sshd does not even test its configuration. systemd makes it when it starts the service,
// which it does not where connections are accepted by a socket.
const sshRuntime = "/run/sshd"

// sshSocket is the socket that starts sshd where sshSocketGenerators are, and has its ports from sshd's configuration then: they are read at a
// daemon-reload, as at a boot.
const sshSocket = "ssh.socket"

var sshSocketGenerators = []string{
	"/usr/lib/systemd/system-generators/sshd-socket-generator", "/lib/systemd/system-generators/sshd-socket-generator",
}

// renewSSHSocket has the socket of the SSH server listen where its configuration says, and reports whether it did. Else that would be seen at
// the next boot, and a login before says nothing of it. Sessions go on. A socket that has failed is one that was renewed to what it can't
// listen on, unless the server runs without it.
func (a *Agent) renewSSHSocket(ctx context.Context, unit string, state host.UnitState) (bool, error) {
	if !slices.Contains(sshUnits, unit) || a.root.Find(sshSocketGenerators...) == "" {
		return false, nil
	}
	socket, err := a.cfg.Units.Show(ctx, sshSocket)
	if err != nil || socket.Missing() {
		return false, err
	}
	failed := socket.ActiveState == "failed" && !state.Running()
	if !socket.Running() && !failed {
		return false, nil
	}
	if failed {
		a.forgiveStarts(ctx, sshSocket)
	}
	if err := a.cfg.Units.Do(ctx, "daemon-reload", ""); err != nil {
		return false, err
	}
	return true, a.cfg.Units.Do(ctx, "restart", sshSocket)
}

// testReload tests the SSH server's configuration before a reload, also where there is nothing to reload: by a socket, each connection reads
// it. A node may have neither the unit nor the program.
func (a *Agent) testReload(ctx context.Context, unit string, state host.UnitState) error {
	if state.Missing() && a.sshd() == "" {
		return nil
	}
	return a.testSSH(ctx, unit)
}

func (a *Agent) sshd() string { return a.root.Find("/usr/sbin/sshd", "/usr/bin/sshd") }

// testSSH keeps the SSH server from reading a configuration that it would not come back with: it is the way in. What
// sshd says about it is not repeated, since it quotes the configuration.
func (a *Agent) testSSH(ctx context.Context, unit string) error {
	if !slices.Contains(sshUnits, unit) {
		return nil
	}
	sshd := a.sshd()
	if sshd == "" {
		return fmt.Errorf("the configuration can't be tested: the node has no /usr/sbin/sshd")
	}
	err := a.runSSHTest(ctx, sshd)
	if _, missing := a.root.Stat(sshRuntime); err != nil && errors.Is(missing, fs.ErrNotExist) {
		if a.disk.Mkdirs(a.cfg.Root+sshRuntime, 0o755) == nil { // what can't be made is no reason that the test knows of
			err = a.runSSHTest(ctx, sshd)
		}
	}
	if err != nil {
		return fmt.Errorf("sshd -t does not accept the configuration: %w", err)
	}
	return nil
}

func (a *Agent) runSSHTest(ctx context.Context, sshd string) error {
	_, err := a.root.Run(ctx, host.Command{Name: "sshd", At: sshd, Args: []string{"-t"}})
	return err
}

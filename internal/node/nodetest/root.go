package nodetest

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

//go:embed fake-systemctl.sh
var fakeSystemctl []byte

//go:embed fake-sshd.sh
var fakeSSHD []byte

// makeRoot lays out what the agent looks at. All files are those of the user who runs the test, so root is mapped to them.
func (n *Node) makeRoot() error {
	if n.opts.Root == "" {
		dir, err := os.MkdirTemp("", "refit-"+filepath.Base(n.opts.Name)+"-")
		if err != nil {
			return err
		}
		n.opts.Root, n.ownRoot = dir, true
	}
	uid, gid := os.Getuid(), os.Getgid()
	passwd := fmt.Sprintf("root:x:%d:%d:root:/root:/bin/sh\n", uid, gid)
	if n.opts.User != "root" {
		passwd += fmt.Sprintf("%s:x:%d:%d::/:/bin/sh\n", n.opts.User, uid, gid)
	}
	files := map[string]string{
		"etc/passwd":   passwd,
		"etc/group":    fmt.Sprintf("root:x:%d:\n", gid),
		"etc/hostname": n.opts.Name + "\n",
	}
	for _, dir := range []string{"etc", "tmp", "usr/bin", "usr/sbin", "var/lib/refit", "var/log", "run"} {
		if err := os.MkdirAll(filepath.Join(n.opts.Root, dir), 0o755); err != nil {
			return err
		}
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(n.opts.Root, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return errors.Join(
		os.WriteFile(filepath.Join(n.opts.Root, "usr/bin/systemctl"), fakeSystemctl, 0o755),
		os.WriteFile(filepath.Join(n.opts.Root, "usr/sbin/sshd"), fakeSSHD, 0o755),
	)
}

// SystemctlLog is what the fake systemctl was asked, a line a call.
func (n *Node) SystemctlLog() string {
	log, err := os.ReadFile(filepath.Join(n.opts.Root, "var/log/fake-systemctl.log"))
	if err != nil {
		return ""
	}
	return string(log)
}

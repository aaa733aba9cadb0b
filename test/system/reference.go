package system

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/capi-refit/refit/test/lab"
	"github.com/capi-refit/refit/test/process"
	"github.com/capi-refit/refit/webhook"
)

// nowhere is a kubeconfig of an API server that is not there: the hooks for updates in place don't ask it.
const nowhere = `apiVersion: v1
kind: Config
clusters: [{name: none, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: none, context: {cluster: none, user: none}}]
users: [{name: none, user: {}}]
current-context: none
`

// Reference is Cluster API's reference extension. It takes some seconds after it was started until it answers.
type Reference struct {
	*process.Process
	// Host is where it answers, over TLS, and Bundle is with what that is verified.
	Host   string
	Bundle []byte

	launcher *process.Launcher
	log      string
	path     string
	args     []string
}

// StartReference builds and starts it. What it needs, and its log, are in a directory. Whoever starts it closes it.
func StartReference(ctx context.Context, dir string, progress io.Writer) (*Reference, error) {
	programs, err := lab.Build(ctx, progress, lab.ReferenceExtension)
	if err != nil {
		return nil, err
	}
	r := &Reference{log: filepath.Join(dir, "reference.log"), path: programs[lab.ReferenceExtension]}
	if r.Bundle, err = webhook.WriteSelfSigned(dir, []string{"127.0.0.1"}, time.Now()); err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(nowhere), 0o600); err != nil {
		return nil, err
	}
	ports, err := lab.FreePorts(3)
	if err != nil {
		return nil, err
	}
	at := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	r.Host = at(ports[0])
	r.args = []string{
		"--kubeconfig=" + kubeconfig, "--webhook-port=" + strconv.Itoa(ports[0]), "--webhook-cert-dir=" + dir,
		"--health-addr=" + at(ports[1]), "--diagnostics-address=" + at(ports[2]), "--insecure-diagnostics",
	}
	r.launcher = process.NewLauncher()
	if err := r.Restart(); err != nil {
		r.launcher.Close()
		return nil, err
	}
	return r, nil
}

// Restart starts it again after it was stopped, at the same address.
func (r *Reference) Restart() (err error) {
	r.Process, err = r.launcher.Start("reference extension", r.log, r.path, r.args, os.Environ())
	return err
}

// Close ends it.
func (r *Reference) Close() error {
	err := r.Stop(time.Minute)
	r.launcher.Close()
	return err
}

package system

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/capi-refit/refit/test/lab"
	"github.com/capi-refit/refit/test/process"
)

const (
	// replicaTimeout is what a replica gets to become ready.
	replicaTimeout = 2 * time.Minute
	// replicaGrace is what a replica gets to end by itself.
	replicaGrace = 40 * time.Second
	// leaderNamespace is where the replicas elect their leader.
	leaderNamespace = "refit-system"
)

// Replica is one running refit server.
type Replica struct {
	// Process is the one that runs, or ran last.
	*process.Process

	name                   string
	starts                 int
	hooks, health, metrics string // addresses
}

// newReplica starts a replica at addresses of its own.
func (s *System) newReplica(ctx context.Context, name string) (*Replica, error) {
	free, err := lab.FreePorts(3)
	if err != nil {
		return nil, err
	}
	at := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	r := &Replica{name: name, hooks: at(free[0]), health: at(free[1]), metrics: at(free[2])}
	s.onStop(func() error { return r.Stop(replicaGrace) })
	return r, s.Restart(ctx, r)
}

// Restart starts a replica that has ended again, at the same addresses. It is ready when Restart returns.
func (s *System) Restart(ctx context.Context, r *Replica) error {
	r.starts++
	log := filepath.Join(s.Lab.LogDir, fmt.Sprintf("%s.%d.log", r.name, r.starts))
	_, port, err := net.SplitHostPort(r.hooks)
	if err != nil {
		return err
	}
	args := []string{
		"serve", "--kubeconfig=" + s.kubeconfig, "--leader-elect", "--leader-elect-namespace=" + leaderNamespace,
		"--webhook-host=127.0.0.1", "--webhook-port=" + port, "--webhook-cert-dir=" + s.certDir,
		"--health-addr=" + r.health, "--diagnostics-address=" + r.metrics, "--insecure-diagnostics",
		"--agent-dir=" + filepath.Join(s.options.BinDir, "agents"), "--allow-paths=" + strings.Join(s.options.AllowPaths, ","),
		"--audit-log=" + filepath.Join(s.Lab.LogDir, r.name+".audit"),
	}
	if r.Process, err = s.launcher.Start(r.name, log, filepath.Join(s.options.BinDir, "refit"), args, os.Environ()); err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, replicaTimeout, true, func(ctx context.Context) (bool, error) {
		select {
		case <-r.Done():
			return false, r.Died()
		default:
			return r.ready(ctx), nil
		}
	})
}

func (r *Replica) ready(ctx context.Context) bool {
	_, err := get(ctx, "http://"+r.health+"/readyz")
	return err == nil
}

// Metrics returns what the replica shows to Prometheus.
func (r *Replica) Metrics(ctx context.Context) (string, error) {
	return get(ctx, "http://"+r.metrics+"/metrics")
}

// Output returns all that the replica has logged.
func (r *Replica) Output() (string, error) {
	b, err := os.ReadFile(r.Log)
	return string(b), err
}

func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s answers %s", url, response.Status)
	}
	return string(body), nil
}

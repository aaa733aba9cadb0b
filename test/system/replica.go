package system

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
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

	name, logDir                      string
	starts                            int
	hooks, admission, health, metrics string // addresses
	// wanted says that nobody has ended it.
	wanted atomic.Bool
}

// Kill ends the replica at once. It stays so until Restart.
func (r *Replica) Kill() error { return r.Stop(0) }

// Stop ends the replica: politely at first, by force after grace.
func (r *Replica) Stop(grace time.Duration) error {
	r.wanted.Store(false)
	return r.Process.Stop(grace)
}

// newReplica starts a replica at addresses of its own.
func (s *System) newReplica(ctx context.Context, name string) (*Replica, error) {
	free, err := lab.FreePorts(4)
	if err != nil {
		return nil, err
	}
	at := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	r := &Replica{name: name, logDir: s.Lab.LogDir, hooks: at(free[0]), health: at(free[1]), metrics: at(free[2]), admission: at(free[3])}
	s.onStop(func() error { return r.Stop(replicaGrace) })
	return r, s.Restart(ctx, r)
}

// Restart starts a replica that has ended again, at the same addresses. It is ready when Restart returns.
func (s *System) Restart(ctx context.Context, r *Replica) error {
	r.starts++
	log := r.log(r.starts)
	_, port, err := net.SplitHostPort(r.hooks)
	if err != nil {
		return err
	}
	_, admission, err := net.SplitHostPort(r.admission)
	if err != nil {
		return err
	}
	args := []string{
		"serve", "--kubeconfig=" + s.kubeconfig, "--leader-elect", "--leader-elect-namespace=" + leaderNamespace,
		"--webhook-host=127.0.0.1", "--webhook-port=" + port, "--webhook-cert-dir=" + s.certDir, "--admission-port=" + admission, "--guard",
		"--health-addr=" + r.health, "--diagnostics-address=" + r.metrics, "--insecure-diagnostics",
		"--agent-dir=" + filepath.Join(s.options.BinDir, "agents"), "--allow-paths=" + strings.Join(s.options.AllowPaths, ","),
		"--soak=" + s.options.Soak.String(), "--watch-secrets", fmt.Sprintf("--shards=%d", max(1, s.options.Shards)),
		"--audit-log=" + filepath.Join(s.Lab.LogDir, r.name+".audit"), "--audit-namespace=" + leaderNamespace,
	}
	if s.options.Registered {
		args = append(args, "--registered-updaters")
	}
	args = append(args, s.clients.refitArgs()...)
	if r.Process, err = s.launcher.Start(r.name, log, filepath.Join(s.options.BinDir, "refit"), args, os.Environ()); err != nil {
		return err
	}
	r.wanted.Store(true)
	go s.revive(context.WithoutCancel(ctx), r, r.Process)
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, replicaTimeout, true, func(ctx context.Context) (bool, error) {
		select {
		case <-r.Done():
			return false, r.Died()
		default:
			return r.ready(ctx), nil
		}
	})
}

// lostElection matches how a replica ends that could not renew its lease in time: its machine has stalled.
var lostElection = regexp.MustCompile("leader election lost|lost the Lease of shard|lost Lease ")

// revive starts a replica again that has ended because it leads no more, as a Deployment does. One that has died of anything else stays
// dead.
func (s *System) revive(ctx context.Context, r *Replica, p *process.Process) {
	<-p.Done()
	if !r.wanted.Load() || !lostElection.MatchString(process.Tail(p.Log, 10)) {
		return
	}
	s.say("%s has lost its lease, and is started again", r.name)
	if err := s.Restart(ctx, r); err != nil {
		s.say("%s can't be started again: %s", r.name, err)
	}
}

func (r *Replica) ready(ctx context.Context) bool {
	_, err := get(ctx, "http://"+r.health+"/readyz")
	return err == nil
}

// Metrics returns what the replica shows to Prometheus.
func (r *Replica) Metrics(ctx context.Context) (string, error) {
	return get(ctx, "http://"+r.metrics+"/metrics")
}

// log is where one of the replica's starts logs to.
func (r *Replica) log(start int) string {
	return filepath.Join(r.logDir, fmt.Sprintf("%s.%d.log", r.name, start))
}

// Output returns all that the replica has logged, since its first start.
func (r *Replica) Output() (string, error) {
	var all strings.Builder
	for start := 1; ; start++ {
		b, err := os.ReadFile(r.log(start))
		if errors.Is(err, fs.ErrNotExist) && start > 1 {
			return all.String(), nil
		}
		if err != nil {
			return "", err
		}
		all.Write(b)
	}
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

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/capi-refit/refit/internal/shard"
	"github.com/capi-refit/refit/test/lab"
	"github.com/capi-refit/refit/webhook"
)

// server is a replica of refit, as one process.
type server struct {
	m                    *management
	url, health, metrics string
	certs, log           string
	replicas, shards     int
	cmd                  *exec.Cmd
	readyAfter           time.Duration
}

// servers are all replicas.
type servers []*server

// startRefit starts the replicas, and returns when they are ready. What has been started is returned with an error, too.
func (m *management) startRefit(ctx context.Context, o options) (servers, error) {
	certs := filepath.Join(m.dir, "certs")
	if err := os.MkdirAll(certs, 0o700); err != nil {
		return nil, err
	}
	var err error
	if m.bundle, err = webhook.WriteSelfSigned(certs, []string{"127.0.0.1"}, time.Now()); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(m.dir, "kubeconfig"), m.server.Kubeconfig, 0o600); err != nil {
		return nil, err
	}
	var all servers
	at := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	for i := range o.replicas {
		ports, err := lab.FreePorts(3)
		if err != nil {
			return all, err
		}
		s := &server{
			m: m, url: "https://" + at(ports[0]), health: at(ports[1]), metrics: at(ports[2]), certs: certs,
			log: filepath.Join(m.dir, fmt.Sprintf("refit-%d.log", i)), replicas: o.replicas, shards: o.shards,
		}
		all = append(all, s)
		if err := s.start(ctx); err != nil {
			return all, err
		}
	}
	if o.replicas == 1 {
		return all, nil
	}
	return all, all.awaitShards(ctx, o.shards)
}

// start starts the process, and waits until it is ready.
func (s *server) start(ctx context.Context) error {
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.url, "https://"))
	if err != nil {
		return err
	}
	log, err := os.Create(s.log)
	if err != nil {
		return err
	}
	defer log.Close()
	args := []string{
		"serve", "--agent-dir=bin/agents", "--allow-paths=/etc/app", "--kubeconfig=" + filepath.Join(s.m.dir, "kubeconfig"),
		"--webhook-port=" + port, "--webhook-cert-dir=" + s.certs, "--health-addr=" + s.health, "--diagnostics-address=" + s.metrics, "--insecure-diagnostics", "--drift-interval=0", "--login-interval=0",
	}
	if s.replicas > 1 {
		args = append(args, "--leader-elect", "--leader-elect-namespace=default", fmt.Sprintf("--shards=%d", s.shards))
	}
	s.cmd = exec.CommandContext(ctx, "bin/refit", args...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	began := time.Now()
	if err := s.cmd.Start(); err != nil {
		return err
	}
	for !s.isReady(ctx) {
		if time.Since(began) > 10*time.Minute {
			return errors.New("refit is not ready after 10 minutes; its log: " + log.Name())
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	s.readyAfter = time.Since(began)
	return nil
}

func (all servers) stop() {
	for _, s := range all {
		if s.cmd == nil || s.cmd.Process == nil {
			continue // it could not be started
		}
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		_ = s.cmd.Wait() // how it ends is not what is measured
	}
}

// kill ends the process as a crash does.
func (s *server) kill() error {
	if err := s.cmd.Process.Kill(); err != nil {
		return err
	}
	_ = s.cmd.Wait()
	return nil
}

// holder returns the replica that works on a namespace.
func (all servers) holder(ctx context.Context, namespace string) (*server, error) {
	if len(all) == 1 {
		return all[0], nil
	}
	lease := fmt.Sprintf("refit-shard-%d-of-%d", shard.Of(namespace, all[0].shards), all[0].shards)
	for _, s := range all {
		if n, err := s.sum(ctx, "leader_election_master_status", map[string]string{"name": lease}); err != nil {
			return nil, err
		} else if n > 0 {
			return s, nil
		}
	}
	return nil, fmt.Errorf("no replica has the Lease %s", lease)
}

// without returns the others.
func (all servers) without(s *server) servers {
	return slices.DeleteFunc(slices.Clone(all), func(other *server) bool { return other == s })
}

// awaitShards waits until the replicas hold so many shards.
func (all servers) awaitShards(ctx context.Context, want int) error {
	for began := time.Now(); time.Since(began) < 2*time.Minute; {
		leads, err := all.sum(ctx, "leader_election_master_status", nil)
		together, err2 := all.sum(ctx, "leader_election_master_status", map[string]string{"name": "refit"}) // the Lease that all have
		if err == nil && err2 == nil && int(leads-together) == want {
			return nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return errors.New("not all shards are held after 2 minutes")
}

func (s *server) get(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(response.Status)
	}
	return io.ReadAll(response.Body)
}

func (s *server) isReady(ctx context.Context) bool {
	_, err := s.get(ctx, "http://"+s.health+"/readyz")
	return err == nil
}

// sum adds up the series of a metric that have the labels.
func (s *server) sum(ctx context.Context, name string, labels map[string]string) (float64, error) {
	text, err := s.get(ctx, "http://"+s.metrics+"/metrics")
	if err != nil {
		return 0, fmt.Errorf("read refit's metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(text)))
	if err != nil {
		return 0, fmt.Errorf("read refit's metrics: %w", err)
	}
	var sum float64
	for _, metric := range families[name].GetMetric() {
		match := 0
		for _, l := range metric.GetLabel() {
			if want, ok := labels[l.GetName()]; ok && want == l.GetValue() {
				match++
			}
		}
		if match == len(labels) {
			sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
		}
	}
	return sum, nil
}

// sum adds up the series of a metric, of all replicas.
func (all servers) sum(ctx context.Context, name string, labels map[string]string) (float64, error) {
	var sum float64
	for _, s := range all {
		n, err := s.sum(ctx, name, labels)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// awaitWaiting waits until so many updates wait for a window, and shows how far that has come.
func (all servers) awaitWaiting(ctx context.Context, out io.Writer, want int) error {
	said := time.Now()
	for {
		n, err := all.sum(ctx, "refit_machine_updates", map[string]string{"phase": "Waiting"})
		if err != nil {
			return err
		}
		if int(n) >= want {
			return nil
		}
		if time.Since(said) > 30*time.Second {
			said = time.Now()
			say(out, "%.0f of %d updates wait", n, want)
		}
		if err := pause(ctx, 2*time.Second); err != nil { // to be asked costs refit something, too
			return err
		}
	}
}

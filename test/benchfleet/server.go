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
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/capi-refit/refit/test/lab"
	"github.com/capi-refit/refit/webhook"
)

// server is refit, as one process.
type server struct {
	m                    *management
	bundle               []byte
	url, health, metrics string
	certs                string
	cmd                  *exec.Cmd
	readyAfter           time.Duration
}

func (m *management) startRefit(ctx context.Context) (*server, error) {
	ports, err := lab.FreePorts(3)
	if err != nil {
		return nil, err
	}
	at := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	s := &server{m: m, url: "https://" + at(ports[0]), health: at(ports[1]), metrics: at(ports[2]), certs: filepath.Join(m.dir, "certs")}
	if err := os.MkdirAll(s.certs, 0o700); err != nil {
		return nil, err
	}
	if s.bundle, err = webhook.WriteSelfSigned(s.certs, []string{"127.0.0.1"}, time.Now()); err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(m.dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, m.server.Kubeconfig, 0o600); err != nil {
		return nil, err
	}
	return s, s.start(ctx)
}

// start starts the process, and waits until it is ready.
func (s *server) start(ctx context.Context) error {
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.url, "https://"))
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(s.m.dir, "refit.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd = exec.CommandContext(ctx, "bin/refit", "serve", "--agent-dir=bin/agents", "--allow-paths=/etc/app", "--kubeconfig="+filepath.Join(s.m.dir, "kubeconfig"),
		"--webhook-port="+port, "--webhook-cert-dir="+s.certs, "--health-addr="+s.health, "--diagnostics-address="+s.metrics, "--insecure-diagnostics", "--drift-interval=0")
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

func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.cmd.Wait() // how it ends is not what is measured
}

// killed ends the process as a crash does, starts it again, and returns how long it took to be ready.
func (s *server) killed(ctx context.Context) (time.Duration, error) {
	if err := s.cmd.Process.Kill(); err != nil {
		return 0, err
	}
	_ = s.cmd.Wait()
	err := s.start(ctx)
	return s.readyAfter, err
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

// awaitWaiting waits until so many updates wait for a window, and shows how far that has come.
func (s *server) awaitWaiting(ctx context.Context, out io.Writer, want int) error {
	said := time.Now()
	for {
		n, err := s.sum(ctx, "refit_machine_updates", map[string]string{"phase": "Waiting"})
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
		if err := pause(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
}

// cost is what a stretch of time has cost. A part of it that is not known is 0.
type cost struct {
	at                time.Time
	cpuSeconds, calls float64 // since the process began
	rss, mostRSS      float64 // MiB
	cpu, requests     float64 // percent of a core, and requests to the API server a second
}

// cost measures for a while.
func (s *server) cost(ctx context.Context, d time.Duration) (cost, error) {
	before := s.since(cost{})
	if err := pause(ctx, d); err != nil {
		return cost{}, err
	}
	return s.since(before), nil
}

// since returns what was spent since something was measured before.
func (s *server) since(before cost) cost {
	c := cost{at: time.Now()}
	pid := strconv.Itoa(s.cmd.Process.Pid)
	c.cpuSeconds = cpuSeconds(pid)
	c.rss, c.mostRSS = memory(pid)
	c.calls, _ = s.sum(context.Background(), "rest_client_requests_total", nil)
	if seconds := c.at.Sub(before.at).Seconds(); !before.at.IsZero() && seconds > 0 {
		c.cpu, c.requests = 100*(c.cpuSeconds-before.cpuSeconds)/seconds, (c.calls-before.calls)/seconds
	}
	return c
}

// ticks is how many of them a second has in /proc, on all architectures that refit runs on.
const ticks = 100

func cpuSeconds(pid string) float64 {
	stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / ticks
}

// memory returns what a process has now, and what it had at most, in MiB.
func memory(pid string) (now, most float64) {
	status, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
	if err != nil {
		return 0, 0
	}
	read := func(name string) float64 {
		for line := range strings.Lines(string(status)) {
			if rest, ok := strings.CutPrefix(line, name+":"); ok {
				kib, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
				return kib / 1024
			}
		}
		return 0
	}
	return read("VmRSS"), read("VmHWM")
}

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
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
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-refit/refit/test/bench/floor"
	"github.com/capi-refit/refit/test/lab"
	"github.com/capi-refit/refit/webhook"
)

const (
	// abuseBound is how many times as long the slowest of a hundred answers may take beside an abusive client.
	abuseBound = 5
	// abuseRounds: in each the right client is measured alone and beside the abusive one, and the median of the ratios counts.
	abuseRounds = 7
	// slowConnections are those of the abusive client that never send all of a body.
	slowConnections = 40
)

// The hidden commands that the bench starts itself with: the server and the abusive client are processes of their own.
const (
	serveCommand = "serve-hooks"
	abuseCommand = "abuse-hooks"
)

// addHidden adds the commands.
func addHidden(to *cobra.Command) {
	to.AddCommand(
		&cobra.Command{
			Use: serveCommand + " DIR PORT", Hidden: true, Args: cobra.ExactArgs(2),
			RunE: func(cmd *cobra.Command, args []string) error { return serveHooks(cmd.Context(), args[0], args[1]) },
		},
		&cobra.Command{
			Use: abuseCommand + " DIR PORT", Hidden: true, Args: cobra.ExactArgs(2),
			RunE: func(cmd *cobra.Command, args []string) error { return abuse(cmd.Context(), args[0], args[1]) },
		},
		floor.NewCommand(),
	)
}

// serveHooks serves what refit serve serves to Cluster API, as far as it needs no management cluster.
func serveHooks(ctx context.Context, dir, port string) error {
	number, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	h, err := hooks()
	if err != nil {
		return err
	}
	s, err := webhook.NewServer(logr.Discard(), webhook.NewMetrics(prometheus.NewRegistry()))
	if err != nil {
		return err
	}
	on := webhook.NewListener(ctrlwebhook.Options{Host: "127.0.0.1", Port: number, CertDir: dir}, logr.Discard())
	if err := s.Register(on, []webhook.Hook{
		{Hook: runtimehooksv1.CanUpdateMachine, Name: "can-update-machine", Timeout: 10 * time.Second, Handle: h.Machine},
		{Hook: runtimehooksv1.CanUpdateMachineSet, Name: "can-update-machine-set", Timeout: 10 * time.Second, Handle: h.MachineSet},
	}); err != nil {
		return err
	}
	return on.Start(ctx)
}

// benchAbuse measures a client that asks as managers do, alone and beside an abusive one. It fails if it is answered much later.
func benchAbuse(ctx context.Context, out io.Writer, o options) (err error) {
	say(out, "\n== A right client beside an abusive one, %d connections, %d rounds of %s a turn; medians over the rounds", o.connections, abuseRounds, o.duration)
	dir, err := os.MkdirTemp("", "refit-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	bundle, err := webhook.WriteSelfSigned(dir, []string{"127.0.0.1"}, time.Now())
	if err != nil {
		return err
	}
	ports, err := lab.FreePorts(1)
	if err = errors.Join(err, os.WriteFile(filepath.Join(dir, "ca.crt"), bundle, 0o600)); err != nil {
		return err
	}
	port := strconv.Itoa(ports[0])
	stop, err := again(ctx, io.Discard, serveCommand, dir, port)
	if err != nil {
		return err
	}
	defer stop()
	c, err := reach(ctx, "https://127.0.0.1:"+port, bundle, o.connections)
	if err != nil {
		return err
	}
	r, err := requests("CanUpdateMachine", "canupdatemachine-*.json")
	if err != nil {
		return err
	}
	return c.compareBeside(ctx, out, r, o, dir, port)
}

// compareBeside measures all rounds, and prints what came of them.
func (c *contender) compareBeside(ctx context.Context, out io.Writer, r hookRequests, o options, dir, port string) error {
	var alone, beside []turn
	var ratios []float64
	bodies := 0
	for round := range abuseRounds + 1 {
		a, b, sent, err := c.besideAbuse(ctx, r, o, dir, port)
		if err != nil {
			return err
		}
		bodies += sent
		if round > 0 { // the first one is for warming up
			alone, beside, ratios = append(alone, a), append(beside, b), append(ratios, b.p99/a.p99)
		}
	}
	for _, m := range []struct {
		name string
		turn
	}{{"alone", median(alone)}, {"beside the abusive one", median(beside)}} {
		say(out, "   %-24s %8.0f requests/s   p50 %6.2f ms   p99 %6.2f ms", m.name, m.perSecond, m.p50, m.p99)
	}
	slices.Sort(ratios)
	ratio := ratios[len(ratios)/2]
	say(out, "   %d hostile bodies were answered, beside %d that never came to an end", bodies, slowConnections)
	say(out, "   p99, median of the ratios: %.1f ×; least %.1f ×, most %.1f ×; the bound is %d ×", ratio, ratios[0], ratios[len(ratios)-1], abuseBound)
	if bodies == 0 {
		return errors.New("the abusive client came to nothing, so nothing was measured; is the machine too busy?")
	}
	if ratio > abuseBound {
		return fmt.Errorf("beside an abusive client the p99 of a right one is %.1f times its usual, and %d is the bound", ratio, abuseBound)
	}
	return nil
}

// besideAbuse measures one round.
func (c *contender) besideAbuse(ctx context.Context, r hookRequests, o options, dir, port string) (alone, beside turn, bodies int, err error) {
	if alone, err = c.measure(ctx, r, o.connections, o.duration); err != nil {
		return alone, beside, 0, err
	}
	var sent bytes.Buffer
	stop, err := again(ctx, &sent, abuseCommand, dir, port)
	if err != nil {
		return alone, beside, 0, err
	}
	defer func() {
		stop()
		bodies = sent.Len()
	}()
	select {
	case <-time.After(time.Second): // until all of it is under way
	case <-ctx.Done():
		return alone, beside, 0, ctx.Err()
	}
	beside, err = c.measure(ctx, r, o.connections, o.duration)
	return alone, beside, 0, err
}

// again starts this program with one of its hidden commands, and returns what ends it.
func again(ctx context.Context, out io.Writer, args ...string) (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}, nil
}

// reach waits until a server answers.
func reach(ctx context.Context, url string, bundle []byte, connections int) (*contender, error) {
	for {
		c, err := newContender(ctx, "refit", url, bundle, connections)
		if err == nil {
			return c, nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// abuser is a hostile client. It comes from another address than the right one, as another pod would.
type abuser struct {
	address string
	roots   *x509.CertPool
	dial    net.Dialer
}

// abuse asks in every hostile way at once until ctx ends. What it takes to send is not the server's doing, so it has the lowest
// priority.
func abuse(ctx context.Context, dir, port string) error {
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, 19) // where it can't be, it is at least as hard for the server
	bundle, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return err
	}
	a := &abuser{address: net.JoinHostPort("127.0.0.1", port), roots: x509.NewCertPool(), dial: net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}}
	a.roots.AppendCertsFromPEM(bundle)
	text := func(n int) string { return `"preKubeadmCommands":["` + strings.Repeat("x", n) + `"]` }
	var all sync.WaitGroup
	for _, body := range [][]byte{
		[]byte(strings.Repeat("[", webhook.MaxRequestBytes)), []byte(strings.Repeat(`{"a":`, webhook.MaxRequestBytes/5)),
		machineSetRequest(text(9<<20), text(10<<20)), machineSetRequest(text(10<<20), text(9<<20)),
		filesRequest("a", "b", "1"), filesRequest("a", "a", "2"), filesRequest("b", "a", "1"),
	} {
		all.Go(func() { a.ask(ctx, body) })
	}
	for range slowConnections {
		all.Go(func() { a.stall(ctx) })
	}
	all.Wait()
	return nil
}

const machineSetPath = "/hooks.runtime.cluster.x-k8s.io/v1alpha1/canupdatemachineset/can-update-machine-set"

// ask sends a body again and again, each time on a connection of its own.
func (a *abuser) ask(ctx context.Context, body []byte) {
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: a.roots, MinVersion: tls.VersionTLS12}, DialContext: a.dial.DialContext, DisableKeepAlives: true,
	}}
	for ctx.Err() == nil {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+a.address+machineSetPath, bytes.NewReader(body))
		if err != nil {
			return
		}
		if response, err := client.Do(request); err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			fmt.Print(".") // the bench counts them
		}
	}
}

// stall sends most of a body, and then a byte now and then, again and again.
func (a *abuser) stall(ctx context.Context) {
	part := bytes.Repeat([]byte(" "), 19<<20)
	for ctx.Err() == nil {
		c, err := tls.DialWithDialer(&a.dial, "tcp", a.address, &tls.Config{RootCAs: a.roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
		if err != nil {
			continue
		}
		_, err = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: refit\r\nContent-Length: %d\r\n\r\n", machineSetPath, webhook.MaxRequestBytes)
		if err == nil {
			_, err = c.Write(part)
		}
		for err == nil && ctx.Err() == nil {
			time.Sleep(time.Second)
			_, err = c.Write([]byte(" "))
		}
		_ = c.Close()
	}
}

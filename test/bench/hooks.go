package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
)

// contender is a server that answers the hooks.
type contender struct {
	name   string
	url    string
	pid    int // 0: its processor time is not known
	client *http.Client
	paths  map[string]string // by hook
}

// hookRequests are requests of a hook, which are sent in turn.
type hookRequests struct {
	hook, what string
	bodies     [][]byte
}

// newContender asks the server what it serves.
func newContender(ctx context.Context, name, url string, bundle []byte, connections int) (*contender, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return nil, fmt.Errorf("%s: no CA bundle", name)
	}
	c := &contender{name: name, url: url, paths: map[string]string{}, client: &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, MaxIdleConnsPerHost: connections,
	}}}
	var found runtimehooksv1.DiscoveryResponse
	body, err := c.post(ctx, "/hooks.runtime.cluster.x-k8s.io/v1alpha1/discovery", []byte(`{"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1","kind":"DiscoveryRequest"}`))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(body, &found); err != nil {
		return nil, err
	}
	for _, h := range found.Handlers {
		c.paths[h.RequestHook.Hook] = "/" + h.RequestHook.APIVersion + "/" + lower(h.RequestHook.Hook) + "/" + h.Name
	}
	return c, nil
}

func lower(s string) string { return string(bytes.ToLower([]byte(s))) }

func (c *contender) post(ctx context.Context, path string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	return io.ReadAll(response.Body)
}

// turn is what was measured in one turn.
type turn struct {
	perSecond float64 // requests
	p50, p99  float64 // milliseconds
	cpu       float64 // microseconds of a request, of the server's processor time alone, for which it matters less what else the machine does
}

// measure has connections ask for the duration, each as fast as it is answered.
func (c *contender) measure(ctx context.Context, r hookRequests, connections int, d time.Duration) (turn, error) {
	path, ok := c.paths[r.hook]
	if !ok {
		return turn{}, fmt.Errorf("%s does not serve %s", c.name, r.hook)
	}
	used, err := c.used()
	if err != nil {
		return turn{}, err
	}
	deadline := time.Now().Add(d)
	latencies, errs := make([][]float64, connections), make([]error, connections)
	var all sync.WaitGroup
	for i := range connections {
		all.Go(func() {
			for n := i; time.Now().Before(deadline) && errs[i] == nil; n++ {
				began := time.Now()
				answer, err := c.post(ctx, path, r.bodies[n%len(r.bodies)])
				latencies[i] = append(latencies[i], float64(time.Since(began).Microseconds())/1000)
				if err == nil && !bytes.Contains(answer, []byte(`"status":"Success"`)) {
					err = fmt.Errorf("%s answers %s", c.name, answer)
				}
				errs[i] = err
			}
		})
	}
	all.Wait()
	merged := slices.Concat(latencies...)
	slices.Sort(merged)
	if err := errors.Join(errs...); err != nil || len(merged) == 0 {
		return turn{}, errors.Join(err, ctx.Err())
	}
	after, err := c.used()
	return turn{
		perSecond: float64(len(merged)) / d.Seconds(), cpu: float64((after - used).Microseconds()) / float64(len(merged)),
		p50: merged[len(merged)/2], p99: merged[min(len(merged)-1, len(merged)*99/100)],
	}, err
}

// used is the processor time that the server has used.
func (c *contender) used() (time.Duration, error) {
	if c.pid == 0 {
		return 0, nil
	}
	return processorTime(c.pid)
}

// benchHooks compares refit with the reference extension. In each round both have their turn, so that what else the machine
// does hits both, and so has a server that does nothing: more than its ratio to the reference extension none can reach.
// Requests are asked again, as Cluster API's controllers ask whenever they look; are about other machines with the same specs, as those of a fleet; or all differ.
func benchHooks(ctx context.Context, out io.Writer, o options) (err error) {
	say(out, "\n== The hooks over TLS, %d connections, %d rounds of %s a turn; medians over the rounds", o.connections, o.rounds, o.duration)
	stage, err := newStage(ctx, out, o.connections)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stage.stop()) }()
	for _, h := range []struct{ hook, pattern string }{
		{"CanUpdateMachine", "canupdatemachine-*.json"}, {"CanUpdateMachineSet", "canupdatemachineset-*.json"}, {"UpdateMachine", "updatemachine-*.json"},
	} {
		recorded, err := requests(h.hook, h.pattern)
		if err != nil {
			return err
		}
		all := []hookRequests{recorded}
		if h.hook != "UpdateMachine" { // which is about Machines that are there
			all = append(all, recorded.ofOthers(), recorded.thatDiffer())
		}
		for _, r := range all {
			if err := stage.compare(ctx, out, r, o); err != nil {
				return err
			}
		}
	}
	return stage.recorded(ctx)
}

func requests(hook, pattern string) (hookRequests, error) {
	files, err := filepath.Glob(filepath.Join(recordedDir, pattern))
	if err != nil || len(files) == 0 {
		return hookRequests{}, fmt.Errorf("no recorded requests %s: %w", pattern, errors.Join(err, os.ErrNotExist))
	}
	r := hookRequests{hook: hook, what: "asked again"}
	for _, f := range files {
		body, err := os.ReadFile(f)
		if err != nil {
			return r, err
		}
		var sent bytes.Buffer
		if err := json.Compact(&sent, body); err != nil { // as Cluster API sends it
			return r, fmt.Errorf("%s: %w", f, err)
		}
		r.bodies = append(r.bodies, sent.Bytes())
	}
	return r, nil
}

// compare prints the medians of all, and the ratios to the reference extension.
func (s *stage) compare(ctx context.Context, out io.Writer, r hookRequests, o options) error {
	turns := map[*contender][]turn{}
	all := []*contender{s.refit, s.reference, s.floor}
	for round := range o.rounds + 1 {
		for i := range all {
			c := all[(i+round)%len(all)] // none has always the first turn
			t, err := c.measure(ctx, r, o.connections, o.duration)
			if err != nil {
				return err
			}
			if round > 0 { // the first one is for warming up
				turns[c] = append(turns[c], t)
			}
		}
	}
	for _, c := range all {
		m := median(turns[c])
		say(out, "   %-19s %-14s %-19s %6.0f requests/s   p50 %6.2f ms   p99 %6.2f ms   its processor time %5.0f µs", r.hook, r.what, c.name, m.perSecond, m.p50, m.p99, m.cpu)
	}
	theirs := median(turns[s.reference])
	for _, c := range []*contender{s.refit, s.floor} {
		m := median(turns[c])
		say(out, "   %-19s %-14s %-19s %6.2f              p50 %6.2f      p99 %6.2f      its processor time %5.2f", r.hook, r.what, "ratio of "+c.name,
			m.perSecond/theirs.perSecond, m.p50/theirs.p50, m.p99/theirs.p99, m.cpu/theirs.cpu)
	}
	return nil
}

func median(turns []turn) turn {
	of := func(value func(turn) float64) float64 {
		var all []float64
		for _, t := range turns {
			all = append(all, value(t))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	return turn{
		of(func(t turn) float64 { return t.perSecond }), of(func(t turn) float64 { return t.p50 }), of(func(t turn) float64 { return t.p99 }),
		of(func(t turn) float64 { return t.cpu }),
	}
}

package main

import (
	"bytes"
	"container/heap"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
)

// updateRequest is what Cluster API sends for a machine.
func updateRequest(machine *clusterv1.Machine, config *bootstrapv1.KubeadmConfig) ([]byte, error) {
	machine.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Machine"))
	config.SetGroupVersionKind(bootstrapv1.GroupVersion.WithKind("KubeadmConfig"))
	raw, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	request := &runtimehooksv1.UpdateMachineRequest{}
	request.SetGroupVersionKind(runtimehooksv1.GroupVersion.WithKind("UpdateMachineRequest"))
	request.Desired.Machine = *machine
	request.Desired.BootstrapConfig = runtime.RawExtension{Raw: raw}
	request.Desired.InfrastructureMachine = runtime.RawExtension{Raw: raw}
	return json.Marshal(request)
}

// due is a machine that is asked for again.
type due struct {
	at      time.Time
	request []byte
}

type timetable []due

func (t timetable) Len() int           { return len(t) }
func (t timetable) Less(i, j int) bool { return t[i].at.Before(t[j].at) }
func (t timetable) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *timetable) Push(d any)        { *t = append(*t, d.(due)) }
func (t *timetable) Pop() any {
	old := *t
	d := old[len(old)-1]
	*t = old[:len(old)-1]
	return d
}

// callers ask for each machine, as Cluster API does: again when an answer says, and not earlier.
type callers struct {
	urls   []string
	client *http.Client
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu     sync.Mutex
	silent bool // nobody calls for now
	next   timetable
	took   []time.Duration
	since  time.Time
	failed error
}

const updatePath = "/hooks.runtime.cluster.x-k8s.io/v1alpha1/updatemachine/update-machine"

// call has callers ask for all machines of a fleet at once, the replicas in turn.
func (all servers) call(ctx context.Context, f *fleet, connections int) *callers {
	var urls []string
	for _, s := range all {
		urls = append(urls, s.url+updatePath)
	}
	return all[0].m.call(ctx, urls, f, connections, 0)
}

// call has callers ask servers for all machines of a fleet within a time, one after the other.
func (m *management) call(ctx context.Context, urls []string, f *fleet, connections int, within time.Duration) *callers {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(m.bundle)
	ctx, cancel := context.WithCancel(ctx)
	c := &callers{cancel: cancel, urls: urls, since: time.Now(), client: &http.Client{
		Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, MaxIdleConnsPerHost: connections},
	}}
	for i, request := range f.requests {
		c.next = append(c.next, due{c.since.Add(time.Duration(i) * within / time.Duration(len(f.requests))), request})
	}
	for i := range connections {
		c.all.Go(func() { c.work(ctx, c.urls[i%len(c.urls)]) })
	}
	return c
}

func (c *callers) stop() {
	c.cancel()
	c.all.Wait()
}

// without has nobody call while something is measured. All that would have called then does so as much later.
func (c *callers) without(measure func() error) error {
	c.mu.Lock()
	c.silent = true
	c.mu.Unlock()
	began := time.Now()
	err := measure()
	took := time.Since(began)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = false
	for i := range c.next { // their order stays
		c.next[i].at = c.next[i].at.Add(took)
	}
	return err
}

func (c *callers) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

func (c *callers) work(ctx context.Context, url string) {
	for ctx.Err() == nil {
		d, wait := c.nextDue()
		if wait > 0 {
			_ = pause(ctx, wait)
			continue
		}
		began := time.Now()
		after, err := c.ask(ctx, url, d.request)
		if ctx.Err() != nil {
			return
		}
		c.mu.Lock()
		if err != nil {
			c.failed = err
			after = time.Second
		}
		c.took = append(c.took, time.Since(began))
		if after > 0 { // else it is done, and Cluster API asks no more
			heap.Push(&c.next, due{time.Now().Add(after), d.request})
		}
		c.mu.Unlock()
	}
}

// nextDue returns who is asked for next, or how long nobody is.
func (c *callers) nextDue() (due, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.next) == 0 || c.silent {
		return due{}, 10 * time.Millisecond
	}
	if wait := time.Until(c.next[0].at); wait > 0 {
		return due{}, min(wait, 10*time.Millisecond)
	}
	return heap.Pop(&c.next).(due), 0
}

// ask returns when to ask again, or 0 if the update is done.
func (c *callers) ask(ctx context.Context, url string, body []byte) (time.Duration, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	var answer runtimehooksv1.UpdateMachineResponse
	if err := json.Unmarshal(text, &answer); err != nil || answer.Status != runtimehooksv1.ResponseStatusSuccess {
		return 0, fmt.Errorf("UpdateMachine is answered %s", text)
	}
	return time.Duration(answer.RetryAfterSeconds) * time.Second, nil
}

// calls are what was asked since the last time, and how long the answers took.
type calls struct {
	perSecond float64
	p50, p99  time.Duration
}

func (c calls) String() string {
	return fmt.Sprintf("%.0f calls/s, p50 %.1f ms, p99 %.1f ms", c.perSecond, float64(c.p50.Microseconds())/1000, float64(c.p99.Microseconds())/1000)
}

func (c *callers) take() calls {
	c.mu.Lock()
	defer c.mu.Unlock()
	took, since := c.took, c.since
	c.took, c.since = nil, time.Now()
	if len(took) == 0 {
		return calls{}
	}
	slices.Sort(took)
	return calls{perSecond: float64(len(took)) / time.Since(since).Seconds(), p50: took[len(took)/2], p99: took[len(took)*99/100]}
}

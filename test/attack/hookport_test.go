package attack_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/webhook"
)

// TestABodyOfBracketsIsRefused: a parser that recurses overflows the stack on it, and the process ends.
func TestABodyOfBracketsIsRefused(t *testing.T) {
	p := serve(t)
	for _, path := range p.paths {
		for name, unit := range map[string]string{"lists": "[", "objects": `{"a":`, "both": `[{"a":`} {
			t.Run(name+" to "+path[strings.LastIndex(path, "/")+1:], func(t *testing.T) {
				a := p.ask(t, p.caller(t), path, []byte(strings.Repeat(unit, (webhook.MaxRequestBytes-1)/len(unit))))
				require.Equal(t, "Failure", a.Status)
				require.Contains(t, a.Message, "deep")
			})
		}
	}
	p.requireAnswers(t)
}

// TestAFileOfBracketsIsNotParsed: what files contain is parsed as well, where its meaning counts.
func TestAFileOfBracketsIsNotParsed(t *testing.T) {
	p := serve(t)
	for name, content := range map[string]string{
		"registries.conf": `"files":[{"path":"/etc/containers/registries.conf","content":"a=` + strings.Repeat("[", 8<<20) + `"}]`,
		"a name of YAML":  `"users":[{"name":"a","gecos":"` + strings.Repeat("[", 8<<20) + `"}]`,
		"a time server":   `"ntp":{"servers":["` + strings.Repeat("{a: ", 2<<20) + `"]}`,
	} {
		t.Run(name, func(t *testing.T) {
			plain := `"files":[{"path":"/etc/containers/registries.conf","content":""}],"users":[{"name":"a"}]`
			a := p.ask(t, p.caller(t), p.paths[2], sides{bootstrap: [2]string{plain, content}}.request())
			require.Equal(t, "Success", a.Status, a.Message)
		})
	}
	p.requireAnswers(t)
}

// TestSlowBodiesHoldLittleAndGiveWay has 40 connections send most of 20 MiB each, and then no more.
func TestSlowBodiesHoldLittleAndGiveWay(t *testing.T) {
	p := serve(t)
	part := bytes.Repeat([]byte(" "), 19<<20)
	var sent atomic.Int32
	for range 40 {
		c, err := tls.Dial("tcp", p.address, &tls.Config{RootCAs: p.roots, NextProtos: []string{"http/1.1"}})
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, err = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", p.paths[1], 20<<20)
		require.NoError(t, err)
		go func() {
			defer sent.Add(1)
			_, _ = c.Write(part) // it may be refused before it has sent all
		}()
	}
	for sent.Load() < 40 {
		require.LessOrEqual(t, p.value(t, "refit_hook_request_bytes"), float64(webhook.MaxSmallBytes+webhook.MaxLargeBytes))
		p.requireAnswers(t)
	}
	p.requireAnswers(t)
	require.Eventually(t, func() bool { return p.value(t, "refit_hook_request_bytes") == 0 }, time.Minute, 10*time.Millisecond,
		"nobody comes to the end of a body, and all is given back")
}

// TestConnectionsThatSayNothingGiveWay opens more connections than there may be.
func TestConnectionsThatSayNothingGiveWay(t *testing.T) {
	p := serve(t)
	var silent []net.Conn
	for range webhook.MaxConnections + 20 {
		c, err := net.Dial("tcp", p.address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		silent = append(silent, c)
	}
	require.Eventually(t, func() bool {
		c := p.caller(t)
		c.Timeout = time.Minute
		r, err := c.Post("https://"+p.address+p.paths[0], "application/json", strings.NewReader("{}"))
		return err == nil && r.Body.Close() == nil
	}, time.Minute, time.Millisecond)
	p.requireAnswers(t)
	closed := 0
	for _, c := range silent {
		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Millisecond)))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			closed++
		}
	}
	require.NotZero(t, closed, "of those that say nothing")
}

// TestNamesAreNotRepeatedAtLength: what is in messages is in the log and in conditions, too.
func TestNamesAreNotRepeatedAtLength(t *testing.T) {
	p := serve(t)
	long := strings.Repeat("n", 5<<20)
	for i, path := range p.paths {
		for name, body := range map[string]string{
			"a kind":      `{"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1","kind":"` + long + `"}`,
			"a namespace": strings.ReplaceAll(string(recorded(t, "canupdatemachine-file-content")), `"namespace": "lab"`, `"namespace": "`+long[:1000]+`"`),
			"a cluster":   `{"kind":"BeforeClusterUpgradeRequest","cluster":{"metadata":{"name":"` + long + `","namespace":"b"}},"toKubernetesVersion":"v1.36.0"}`,
		} {
			a := p.ask(t, p.caller(t), path, []byte(body))
			require.Less(t, len(a.Message), 4096, "%s to %s", name, path)
			require.True(t, a.Status == "Failure" || i == 0, "%s to %s: %s", name, path, a.Message)
		}
	}
}

// TestSlowSmallBodiesKeepNobodyOut has each connection that there may be send a byte, and then no more.
func TestSlowSmallBodiesKeepNobodyOut(t *testing.T) {
	p := serve(t)
	for range webhook.MaxConnections {
		c, err := tls.Dial("tcp", p.address, &tls.Config{RootCAs: p.roots, NextProtos: []string{"http/1.1"}})
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, err = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\n{", p.paths[1])
		require.NoError(t, err)
	}
	for range 20 {
		p.requireAnswers(t)
	}
}

// TestMadeUpFieldsAddNoSeries sends names that nobody knows, others each time.
func TestMadeUpFieldsAddNoSeries(t *testing.T) {
	p := serve(t)
	c := p.caller(t)
	for round := range 3 {
		made := [2]string{"", each(100, fmt.Sprintf(`"made-up-%d-%%":1`, round))}
		a := p.ask(t, c, p.paths[2], sides{bootstrap: made, infrastructure: made, machine: made}.request())
		require.Equal(t, "Success", a.Status, a.Message)
	}
	n, err := testutil.GatherAndCount(p.metrics)
	require.NoError(t, err)
	require.Less(t, n, 100, "all series of the port")
}

// ending is a context that ends when it has been looked at a number of times.
type ending struct {
	context.Context

	looks atomic.Int64
	after int64
}

func (c *ending) Err() error {
	if c.looks.Add(1) > c.after {
		return context.DeadlineExceeded
	}
	return nil
}

// TestADiffEndsWithItsContext compares 20,000 files on a side that all differ, and has nobody wait any more, early and late.
func TestADiffEndsWithItsContext(t *testing.T) {
	files := func(item string) string { return `"files":[` + each(20_000, item) + `]` }
	body := sides{bootstrap: [2]string{files(`{"path":"/etc/motd/a%"}`), files(`{"path":"/etc/motd/b%"}`)}}.request()
	h := canUpdate(t, prometheus.NewRegistry())
	whole := &ending{Context: t.Context(), after: 1 << 60}
	r := h.MachineSet(whole, body)
	require.Equal(t, "Success", string(r.GetStatus()), r.GetMessage())
	looks := whole.looks.Load()
	require.Greater(t, looks, int64(40_000), "it is looked at for each field")
	for _, part := range []int64{100, 4, 2} {
		ctx := &ending{Context: t.Context(), after: looks / part}
		r := h.MachineSet(ctx, body)
		require.Equal(t, "Failure", string(r.GetStatus()))
		require.Contains(t, r.GetMessage(), context.DeadlineExceeded.Error())
		require.LessOrEqual(t, ctx.looks.Load(), ctx.after+20, "it goes on with nothing")
	}
}

// TestTheWorkOfADiffIsLinear: twice as much that differs is looked at twice as often, and patches stay short.
func TestTheWorkOfADiffIsLinear(t *testing.T) {
	h := canUpdate(t, prometheus.NewRegistry())
	looks := func(n int) float64 {
		tags := func(v string) string { return `"additionalTags":{` + each(n, `"t%":"`+v+`"`) + `}` }
		ctx := &ending{Context: t.Context(), after: 1 << 60}
		r := h.MachineSet(ctx, sides{infrastructure: [2]string{tags("a"), tags("b")}}.request())
		require.Equal(t, "Success", string(r.GetStatus()), r.GetMessage())
		return float64(ctx.looks.Load())
	}
	require.InDelta(t, 2, looks(20_000)/looks(10_000), .2)
}

// TestNoRequestIsANoForItsSize: beyond a bound is an error, with which Cluster API replaces nothing.
func TestNoRequestIsANoForItsSize(t *testing.T) {
	h := canUpdate(t, prometheus.NewRegistry())
	for name, s := range map[string]sides{
		"of a machine":   {machine: [2]string{"", each(300, `"a%":1`)}},
		"of many fields": {infrastructure: [2]string{"", each(120_000, `"a%":1`)}},
		"of deep fields": {infrastructure: [2]string{"", strings.Repeat(`"a":{`, 80) + each(20_000, `"a%":1`) + strings.Repeat("}", 80)}},
	} {
		t.Run(name, func(t *testing.T) {
			body := s.request()
			r := h.MachineSet(t.Context(), body)
			require.Equal(t, "Failure", string(r.GetStatus()), r.GetMessage())
		})
	}
}

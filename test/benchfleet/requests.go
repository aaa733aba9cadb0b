package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/kubernetes"
)

// mostTold is how many kinds of requests are told.
const mostTold = 6

// served is what kube-apiserver was asked for, by whomever, until an instant.
type served struct {
	at    time.Time
	kinds map[string]float64 // such as "PATCH machineupdates/status 409"
	// server and self are the seconds of processor time that kube-apiserver has taken, and this program, which is Cluster API and the nodes.
	server, self float64
}

// served reads that from its metrics. Watches are left out.
func (m *management) served(ctx context.Context) (served, error) {
	set, err := kubernetes.NewForConfig(m.server.Config)
	if err != nil {
		return served{}, err
	}
	s := served{at: time.Now(), kinds: map[string]float64{}, self: cpuSeconds("self")}
	text, err := set.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return served{}, fmt.Errorf("read the metrics of kube-apiserver: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return served{}, fmt.Errorf("read the metrics of kube-apiserver: %w", err)
	}
	for _, metric := range families["process_cpu_seconds_total"].GetMetric() {
		s.server += metric.GetCounter().GetValue()
	}
	for _, metric := range families["apiserver_request_total"].GetMetric() {
		of := map[string]string{}
		for _, l := range metric.GetLabel() {
			of[l.GetName()] = l.GetValue()
		}
		if of["resource"] == "" || of["verb"] == "WATCH" {
			continue
		}
		kind := of["verb"] + " " + of["resource"]
		if sub := of["subresource"]; sub != "" {
			kind += "/" + sub
		}
		if !strings.HasPrefix(of["code"], "2") {
			kind += " " + of["code"]
		}
		s.kinds[kind] += metric.GetCounter().GetValue()
	}
	return s, nil
}

// since tells what was asked for most since before, a second, and what that took of who else is on the machine.
func (s served) since(before served) string {
	seconds := s.at.Sub(before.at).Seconds()
	rate := map[string]float64{}
	for kind, n := range s.kinds {
		if more := n - before.kinds[kind]; more > 0 {
			rate[kind] = more / seconds
		}
	}
	kinds := slices.SortedFunc(maps.Keys(rate), func(a, b string) int { return cmp.Or(cmp.Compare(rate[b], rate[a]), cmp.Compare(a, b)) })
	parts := make([]string, 0, mostTold)
	for _, kind := range kinds[:min(len(kinds), mostTold)] {
		parts = append(parts, fmt.Sprintf("%.1f %s", rate[kind], kind))
	}
	share := func(now, then float64) float64 { return 100 * (now - then) / seconds }
	return fmt.Sprintf("%s; kube-apiserver takes %.0f %% of a core, this program %.0f %%", strings.Join(parts, ", "), share(s.server, before.server), share(s.self, before.self))
}

package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cost is what a stretch of time has cost. A part of it that is not known is 0.
type cost struct {
	at                time.Time
	cpuSeconds, calls float64 // since the process began
	rss, mostRSS      float64 // MiB
	cpu, requests     float64 // percent of a core, and requests to the API server a second
}

// cost measures for a while.
func (all servers) cost(ctx context.Context, d time.Duration) (cost, error) {
	before := all.since(cost{})
	if err := pause(ctx, d); err != nil {
		return cost{}, err
	}
	return all.since(before), nil
}

// since returns what was spent since something was measured before: by all replicas, and by the one that has most of it, memory.
func (all servers) since(before cost) cost {
	c, known := cost{at: time.Now()}, true
	for _, s := range all {
		pid := strconv.Itoa(s.cmd.Process.Pid)
		c.cpuSeconds += cpuSeconds(pid)
		rss, most := memory(pid)
		c.rss, c.mostRSS = max(c.rss, rss), max(c.mostRSS, most)
		calls, err := s.sum(context.Background(), "rest_client_requests_total", nil)
		c.calls, known = c.calls+calls, known && err == nil
	}
	if !known {
		c.calls = before.calls
	}
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

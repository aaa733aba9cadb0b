package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// benchSchedule runs the benchmarks of when a window opens, and of deciding for a fleet, and prints how they compare.
func benchSchedule(ctx context.Context, out io.Writer) error {
	say(out, "== When a window opens: rules anchored in 1970, asked in 2026; how many times as long the others take")
	took, names, err := runBenchmarks(ctx, "NextOpening|Decision", "./schedule")
	if err != nil {
		return err
	}
	theirs, _, err := runBenchmarks(ctx, "NextOpening|Decision", "./test/rivals") // a module of its own
	if err != nil {
		return err
	}
	maps.Copy(took, theirs)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	say(table, "QUESTION\tREFIT\tRRULE-GO\tROBFIG/CRON")
	for _, name := range names {
		question, ok := strings.CutSuffix(name, "/refit")
		if !ok {
			continue
		}
		ours := took[name]
		say(table, "%s\t%s\t%s\t%s", question, ours, times(took, question+"/rrule-go", ours), times(took, question+"/cron", ours))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	say(out, "== Deciding for 30,000 machines under 200 policies")
	took, names, err = runBenchmarks(ctx, "Fleet", "./internal/changemanagement")
	if err != nil {
		return err
	}
	for _, name := range names {
		say(out, "%s: %s", name, took[name].Round(time.Millisecond))
	}
	return nil
}

func times(took map[string]time.Duration, name string, ours time.Duration) string {
	other, ok := took[name]
	if !ok {
		return "can't say it"
	}
	ratio := float64(other) / float64(ours)
	if ratio < 10 {
		return fmt.Sprintf("%.1f ×", ratio)
	}
	digit := math.Pow(10, math.Floor(math.Log10(ratio))-1)
	return fmt.Sprintf("%.0f ×", math.Round(ratio/digit)*digit)
}

// runBenchmarks returns how long an operation of each benchmark of a package takes, and the names in their order.
func runBenchmarks(ctx context.Context, pattern, pkg string) (map[string]time.Duration, []string, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", pattern, "-benchtime", "300ms", ".")
	cmd.Dir, cmd.Stderr = pkg, os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w\n%s", cmd, err, text)
	}
	took, names := map[string]time.Duration{}, []string(nil)
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || fields[3] != "ns/op" {
			continue
		}
		ns, err := strconv.ParseFloat(fields[2], 64)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %q: %w", cmd, lines.Text(), err)
		}
		// The number of processors follows, if it is not 1.
		name := strings.TrimSuffix(strings.TrimPrefix(fields[0], "Benchmark"), fmt.Sprintf("-%d", runtime.GOMAXPROCS(0)))
		took[name] = time.Duration(ns)
		names = append(names, name)
	}
	if len(names) == 0 {
		return nil, nil, fmt.Errorf("%s: there is no benchmark", cmd)
	}
	return took, names, nil
}

package probe

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/disruption"
)

// timeServices are the units that keep a node's time. The first that is active counts, as in package timesync.
var timeServices = []struct {
	unit string
	ask  func(ctx context.Context, r host.Root, unit string) error
}{
	{"chrony.service", askChrony},
	{"chronyd.service", askChrony},
	{disruption.TimeSyncUnit, askTimesyncd},
}

// Time returns the probe of the node's time service. The node has none if none is active.
func Time(h host.Host) Probe {
	p := New(TimeSource, func(ctx context.Context) error { return askTime(ctx, h) })
	p.Look, p.Elsewhere = "chronyc sources, or timedatectl timesync-status, on the node", true
	return p
}

func askTime(ctx context.Context, h host.Host) error {
	if h.Units == nil {
		return ErrAbsent
	}
	for _, service := range timeServices {
		state, err := h.Units.Show(ctx, service.unit)
		if err != nil {
			return err
		}
		if !state.Missing() && state.Active() {
			return service.ask(ctx, h.Root, service.unit)
		}
	}
	return ErrAbsent
}

// askChrony looks for a source that has answered one of the last eight times that it was asked.
func askChrony(ctx context.Context, r host.Root, unit string) error {
	out, err := r.RunTelling(ctx, host.Command{Name: "chronyc", Args: []string{"-c", "-n", "sources"}})
	if errors.Is(err, host.ErrNoProgram) {
		return ErrAbsent
	}
	if err != nil {
		return fmt.Errorf("%s does not say what its sources are: %w", unit, err)
	}
	const reach = 5 // mode, state, name, stratum, poll, reach
	for line := range strings.Lines(string(out)) {
		columns := strings.Split(strings.TrimSpace(line), ",")
		if len(columns) <= reach {
			continue
		}
		if n, err := strconv.ParseUint(columns[reach], 8, 16); err == nil && n > 0 {
			return nil
		}
	}
	return fmt.Errorf("%s reaches none of its sources", unit)
}

// askTimesyncd looks whether a server has answered since the service was started: before, systemd shows no message of it.
func askTimesyncd(ctx context.Context, r host.Root, unit string) error {
	out, err := r.RunTelling(ctx, host.Command{Name: "timedatectl", Args: []string{"show-timesync", "--property=NTPMessage"}})
	if errors.Is(err, host.ErrNoProgram) {
		return ErrAbsent
	}
	if err != nil {
		return fmt.Errorf("%s does not say what it has heard: %w", unit, err)
	}
	_, rest, _ := strings.Cut(string(out), "PacketCount=")
	digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	if n, err := strconv.ParseUint(digits, 10, 64); err == nil && n > 0 {
		return nil
	}
	return fmt.Errorf("%s reaches none of its servers", unit)
}

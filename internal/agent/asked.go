package agent

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/probe"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// askedBefore returns the probes that are asked before a run: those that are built in, those of the policies, and those for what the run
// touches.
func (a *Agent) askedBefore(w *work) []probe.Probe {
	all := slices.Concat(a.probes(false), []probe.Probe{probe.Network(a.host(), false)}, probe.Own(a.host(), w.Rules.Probes))
	if a.touchesAny(w, namePaths, nameUnits) {
		all = append(all, probe.Names(a.host(), nil)...)
	}
	if a.touchesTime(w) && !stopsTime(w) {
		all = append(all, probe.Time(a.host()))
	}
	return all
}

// askedAfter returns the probes of what is noted, by the keys that it is noted under. What a policy does not ask any more is not asked.
func (a *Agent) askedAfter(w *work, noted []string) []probe.Probe {
	return a.askedOf(w, noted, w.Plan.Interrupts(), a.reportedSince(w)...)
}

// askedOf returns those of the probes and of more that are noted. With renewed the Node object has to be one that was renewed since.
func (a *Agent) askedOf(w *work, noted []string, renewed bool, more ...probe.Probe) []probe.Probe {
	all := slices.Concat(a.probes(renewed), probe.Own(a.host(), w.Rules.Probes), probe.Names(a.host(), noted), more)
	all = append(all, probe.Network(a.host(), true))
	if !stopsTime(w) {
		all = append(all, probe.Time(a.host()))
	}
	return slices.DeleteFunc(all, func(p probe.Probe) bool { return !slices.Contains(noted, p.Key()) })
}

// namePaths decide how the names of hosts are resolved, and whether those are reached that resolve them.
var namePaths = []string{
	"/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/hosts", "/etc/host.conf", "/etc/gai.conf", "/etc/hostname", "/etc/resolvconf", "/etc/resolvconf.conf",
	"/etc/systemd/resolved.conf", "/etc/systemd/resolved.conf.d", "/etc/systemd/dnssd", "/run/systemd/resolve", "/etc/dnsmasq.conf", "/etc/dnsmasq.d", "/etc/unbound", "/etc/nscd.conf",
	"/etc/netplan", "/etc/network", "/etc/NetworkManager", "/etc/systemd/network", "/run/systemd/network", "/etc/systemd/networkd.conf", "/etc/systemd/networkd.conf.d",
	"/etc/sysconfig/network", "/etc/sysconfig/network-scripts", "/etc/dhcp", "/etc/dhcpcd.conf", "/etc/nftables.conf", "/etc/nftables.d", "/etc/iptables", "/etc/ufw", "/etc/firewalld",
}

// nameUnits are what the names of units begin with that do the same.
var nameUnits = []string{
	"systemd-resolved", "systemd-networkd", "NetworkManager", "networking", "network", "netplan", "dnsmasq", "unbound", "nscd", "dhcpcd", "nftables", "iptables", "ufw", "firewalld",
}

// timePaths and timeUnits are the same for the node's clock.
var (
	timePaths = []string{"/etc/chrony", "/etc/chrony.conf", "/etc/chrony.d", "/etc/default/chrony", "/etc/sysconfig/chronyd", "/etc/systemd/timesyncd.conf", "/etc/systemd/timesyncd.conf.d"}
	timeUnits = []string{"chrony", "systemd-timesyncd"}
)

// touchesAny reports whether a run changes one of some paths, or something below, or has to do with units whose names begin so.
func (a *Agent) touchesAny(w *work, paths, units []string) bool {
	isUnit := func(name string) bool {
		return slices.ContainsFunc(units, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	}
	for _, c := range w.Plan.Changes {
		switch c.Kind {
		case node.UnitKind:
			if isUnit(c.Name) {
				return true
			}
		case node.FileKind:
			for _, p := range a.names(c.Name) {
				if isWithin(p, paths) || isWithin(p, unitDirs) && slices.ContainsFunc(strings.Split(p, "/"), isUnit) {
					return true
				}
			}
		default:
		}
	}
	return slices.ContainsFunc(w.Plan.Actions, func(action disruption.Action) bool { return isUnit(action.Unit) })
}

// touchesTime reports whether a run changes how the node keeps its time.
func (a *Agent) touchesTime(w *work) bool {
	return a.touchesAny(w, timePaths, timeUnits) ||
		slices.ContainsFunc(w.Plan.Changes, func(c node.Change) bool { return c.Kind == node.NTPKind })
}

// stopsTime reports whether a run is to stop the node's time service.
func stopsTime(w *work) bool {
	return slices.ContainsFunc(w.Plan.Changes, func(c node.Change) bool {
		desired := w.Others[c.String()].Desired
		return c.Kind == node.NTPKind && desired != nil && desired.NTP != nil && !desired.NTP.Enabled
	})
}

// asks reports whether what works is asked of the node before and after a run: if it disturbs the node, changes what programs read again by
// themselves, such as resolv.conf, if the agent itself brings something into effect, or if registered updaters did their part before.
func (a *Agent) asks(w *work) bool {
	return w.Updaters != nil || w.Plan.Disturbs() || slices.ContainsFunc(w.Plan.Changes, takesEffect) || a.touchesAny(w, namePaths, nameUnits) || a.touchesTime(w)
}

// patience returns how long what worked before may take to work again. Probes of policies may each have a longer time of their own.
func (a *Agent) patience(w *work, expected []probe.Probe) time.Duration {
	patience := a.cfg.ActionTimeout
	if reboots(w.Plan.Actions) || a.bootedSince() || a.bootedSinceUpdaters(w) {
		patience = max(patience, bootPatience)
	}
	var own time.Duration
	for _, p := range expected {
		own += p.Patience(worksLook)
	}
	return max(patience, own)
}

// tries returns how often in a row a probe may fail until that counts.
func tries(p probe.Probe) int {
	if p.Tries > 0 {
		return p.Tries
	}
	return worksLooks
}

// probedUnits returns the states of those units that are active of which probes ask whether they are.
func (a *Agent) probedUnits(ctx context.Context, expected []probe.Probe) (map[string]host.UnitState, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ActionTimeout)
	defer cancel()
	states := map[string]host.UnitState{}
	for _, p := range expected {
		if p.Unit == "" || a.cfg.Units == nil {
			continue
		}
		state, err := a.cfg.Units.Show(ctx, p.Unit)
		if err != nil {
			return nil, err
		}
		if state.Active() {
			states[p.Unit] = state
		}
	}
	return states, nil
}

// probedSettle returns an error if a unit of which a probe asks whether it is active is started again and again: between two starts it is
// active, too.
func (a *Agent) probedSettle(ctx context.Context, w *work) error {
	expected, err := a.expected(w)
	if err != nil || a.cfg.Settle <= 0 {
		return err
	}
	first, err := a.probedUnits(ctx, expected)
	if err != nil || len(first) == 0 {
		return err
	}
	if err := a.cfg.Clock.Wait(ctx, a.cfg.Settle); err != nil {
		return err
	}
	return a.probedStayUp(ctx, expected, first)
}

// probedStayUp returns an error if a unit of which a probe asks whether it is active was started again since the first look. One that is not
// active fails its probe.
func (a *Agent) probedStayUp(ctx context.Context, expected []probe.Probe, first map[string]host.UnitState) error {
	now, err := a.probedUnits(ctx, expected)
	if err != nil {
		return err
	}
	maps.DeleteFunc(now, func(unit string, _ host.UnitState) bool { _, ok := first[unit]; return !ok })
	return sameInvocations(first, now)
}

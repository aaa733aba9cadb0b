package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kubelet"
	"github.com/capi-refit/refit/internal/disruption"
)

// sshUnits are the names that the SSH server's unit has on one system or another.
var sshUnits = []string{"ssh.service", "sshd.service"}

// unitNames are units that stand for one another: of each a node has the one or the other.
var unitNames = [][]string{sshUnits, {disruption.TimeSyncUnit, "chrony.service", "chronyd.service"}}

// act runs one action. A note says why it did less than it is named for.
func (a *Agent) act(ctx context.Context, action disruption.Action) (string, error) {
	if action.Type == disruption.StaticPodRefresh {
		return a.refreshPods(ctx, cmp.Or(action.Timeout, max(podPatience, a.cfg.ActionTimeout)))
	}
	patience := cmp.Or(action.Timeout, a.actionTime(action.Type))
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	note, err := a.actOn(ctx, action)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = late(err, patience)
	}
	if err != nil && action.Unit != "" {
		err = fmt.Errorf("%w (see journalctl -u %s on the node)", err, action.Unit)
	}
	return note, err
}

func (a *Agent) actOn(ctx context.Context, action disruption.Action) (string, error) {
	switch action.Type {
	case disruption.DaemonReload:
		return "", a.cfg.Units.Do(ctx, "daemon-reload", "")
	case disruption.TrustStoreUpdate:
		return "", a.updateTrustStore(ctx)
	case disruption.NetworkReload, disruption.RebuildInitramfs, disruption.RebuildBootloader:
		return a.actByFiles(ctx, action.Type)
	default:
	}
	unit, state, err := a.loaded(ctx, action.Unit)
	if err == nil {
		err = mayActOn(action, unit, state)
	}
	if err != nil {
		return "", err
	}
	switch action.Type {
	case disruption.Reload:
		return a.reload(ctx, unit, state)
	case disruption.Restart:
		return a.restart(ctx, unit, state)
	default:
		return "", fmt.Errorf("%s is not done in place yet", action)
	}
}

// mayActOn returns an error unless the unit of an action, under each of its names on this node, may be named in one, and systemd
// does nothing with the whole system when it has ended. A unit whose own program does can't be told from others.
func mayActOn(action disruption.Action, unit string, state host.UnitState) error {
	for _, name := range append(strings.Fields(state.Names), action.Unit, unit) {
		if err := disruption.CheckUnit(action.Type, name); err != nil {
			if name != action.Unit {
				err = fmt.Errorf("%s is another name of it on this node: %w", action.Unit, err)
			}
			return fmt.Errorf("nothing was done with %s: %w", action.Unit, err)
		}
	}
	for _, setting := range []struct{ name, value string }{{"SuccessAction", state.SuccessAction}, {"FailureAction", state.FailureAction}} {
		if setting.value != "" && setting.value != "none" {
			return fmt.Errorf("nothing was done with %s: by its %s=%s systemd would end the whole system after it, and the node is not "+
				"drained before; use an action of type Reboot", action.Unit, setting.name, setting.value)
		}
	}
	return nil
}

// blockUnits keeps a plan from being applied whose actions would be refused after all was written. What can't be asked for now
// is left to the action.
func (a *Agent) blockUnits(ctx context.Context, p *planner) {
	for _, action := range p.work.Plan.Actions {
		if action.Unit == "" || a.cfg.Units == nil {
			continue
		}
		if unit, state, err := a.loaded(ctx, action.Unit); err == nil {
			if err := mayActOn(action, unit, state); err != nil {
				p.block(action.Unit, err)
			}
		}
	}
}

func (a *Agent) reload(ctx context.Context, unit string, state host.UnitState) (string, error) {
	if err := a.testReload(ctx, unit, state); err != nil {
		return "", err
	}
	renewed, err := a.renewSSHSocket(ctx, unit, state)
	if err == nil && renewed { // which can have stopped it, or started it again
		state, err = a.cfg.Units.Show(ctx, unit)
	}
	switch {
	case err != nil:
		return "", err
	case state.Active():
		return "", a.cfg.Units.Do(ctx, "reload", unit)
	case renewed: // it is started for the next login
		return "", nil
	}
	return unit + " is not active and was not reloaded", nil
}

func (a *Agent) restart(ctx context.Context, unit string, state host.UnitState) (string, error) {
	switch {
	case !state.Missing():
		if err := a.testSSH(ctx, unit); err != nil {
			return "", err
		}
		if _, err := a.renewSSHSocket(ctx, unit, state); err != nil {
			return "", err
		}
		if state.ActiveState == "failed" {
			a.forgiveStarts(ctx, unit)
		}
		if unit == kubelet.Unit {
			a.noteReport(ctx)
		}
		return a.probed(ctx, unit, a.cfg.Units.Do(ctx, "restart", unit))
	case state.Running(): // it outlived its unit file
		return unit + " no longer exists and was stopped", a.cfg.Units.Do(ctx, "stop", unit)
	}
	return unit + " is not installed and was not restarted", nil
}

// again runs an action again, now that the files are put back.
func (a *Agent) again(ctx context.Context, action disruption.Action) (string, error) {
	if action.Type == disruption.Restart {
		if unit, state, err := a.loaded(ctx, action.Unit); err == nil && !state.Missing() {
			a.forgiveStarts(ctx, unit)
		}
	}
	return a.act(ctx, action)
}

// forgiveStarts has systemd forget how often a unit was started of late. One that could not run with its new configuration
// has used up its attempts, and would not be started with the old one either. If that does not work, the restart tells.
func (a *Agent) forgiveStarts(ctx context.Context, unit string) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ActionTimeout)
	defer cancel()
	_ = a.cfg.Units.Do(ctx, "reset-failed", unit)
}

// loaded returns the state of a unit, by the name that it has on this node.
func (a *Agent) loaded(ctx context.Context, unit string) (string, host.UnitState, error) {
	state, err := a.cfg.Units.Show(ctx, unit)
	i := slices.IndexFunc(unitNames, func(names []string) bool { return slices.Contains(names, unit) })
	if err != nil || !state.Missing() || i < 0 {
		return unit, state, err
	}
	for _, other := range unitNames[i] {
		if s, err := a.cfg.Units.Show(ctx, other); err == nil && !s.Missing() {
			return other, s, nil
		}
	}
	return unit, state, nil
}

// unitCheck returns an error if a unit is not as it has to be after it was reloaded or restarted.
type unitCheck func(s host.UnitState, unit string, restarted bool) error

// verifyUnits looks whether the units that were acted on are well, and stay so for a while.
func (a *Agent) verifyUnits(ctx context.Context, actions []disruption.Action, check unitCheck) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ActionTimeout)
	defer cancel()
	first, watch, err := a.lookAtUnits(ctx, actions, check)
	if err != nil || !watch || a.cfg.Settle <= 0 {
		return err
	}
	if err := a.cfg.Clock.Wait(ctx, a.cfg.Settle); err != nil {
		return err
	}
	second, _, err := a.lookAtUnits(ctx, actions, check)
	if err != nil {
		return err
	}
	return sameInvocations(first, second)
}

// sameInvocations returns an error if a unit was started again between two looks.
func sameInvocations(first, second map[string]host.UnitState) error {
	for unit, state := range second {
		if before := first[unit]; before.InvocationID != state.InvocationID {
			return fmt.Errorf("%s does not stay up: systemd had to start it again (see journalctl -u %s on the node)", unit, unit)
		}
	}
	return nil
}

// lookAtUnits returns the states of the units that were restarted, and whether any is to be watched.
func (a *Agent) lookAtUnits(
	ctx context.Context, actions []disruption.Action, check unitCheck,
) (map[string]host.UnitState, bool, error) {
	states, watch := map[string]host.UnitState{}, false
	for _, action := range actions {
		if action.Unit == "" {
			continue
		}
		unit, state, err := a.loaded(ctx, action.Unit)
		if err != nil {
			return nil, false, err
		}
		if err := check(state, unit, action.Type == disruption.Restart); err != nil {
			return nil, false, err
		}
		if action.Type == disruption.Restart && state.LongLived(unit) {
			states[unit] = state
			watch = true
		}
	}
	return states, watch, nil
}

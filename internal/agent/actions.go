package agent

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"

	"github.com/capi-refit/refit/internal/disruption"
)

// sshUnits are the names that the SSH server's unit has on one system or another.
var sshUnits = []string{"ssh.service", "sshd.service"}

// act runs one action. A note says why it did less than it is named for.
func (a *Agent) act(ctx context.Context, action disruption.Action) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ActionTimeout)
	defer cancel()
	note, err := a.actOn(ctx, action)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("not done after %s", a.cfg.ActionTimeout)
	}
	if err != nil && action.Unit != "" {
		err = fmt.Errorf("%w (see journalctl -u %s on the node)", err, action.Unit)
	}
	return note, err
}

func (a *Agent) actOn(ctx context.Context, action disruption.Action) (string, error) {
	if action.Type == disruption.DaemonReload {
		return "", a.cfg.Units.Do(ctx, "daemon-reload", "")
	}
	unit, state, err := a.loaded(ctx, action.Unit)
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

func (a *Agent) reload(ctx context.Context, unit string, state UnitState) (string, error) {
	if !state.active() {
		return unit + " is not active and was not reloaded", nil
	}
	if err := a.testSSH(ctx, unit); err != nil {
		return "", err
	}
	return "", a.cfg.Units.Do(ctx, "reload", unit)
}

func (a *Agent) restart(ctx context.Context, unit string, state UnitState) (string, error) {
	switch {
	case !state.missing():
		if err := a.testSSH(ctx, unit); err != nil {
			return "", err
		}
		if state.ActiveState == "failed" {
			a.forgiveStarts(ctx, unit)
		}
		return "", a.cfg.Units.Do(ctx, "restart", unit)
	case state.running(): // it outlived its unit file
		return unit + " no longer exists and was stopped", a.cfg.Units.Do(ctx, "stop", unit)
	}
	return unit + " is not installed and was not restarted", nil
}

// again runs an action again, now that the files are put back.
func (a *Agent) again(ctx context.Context, action disruption.Action) (string, error) {
	if action.Type == disruption.Restart {
		if unit, state, err := a.loaded(ctx, action.Unit); err == nil && !state.missing() {
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
func (a *Agent) loaded(ctx context.Context, unit string) (string, UnitState, error) {
	state, err := a.cfg.Units.Show(ctx, unit)
	if err != nil || !state.missing() || !slices.Contains(sshUnits, unit) {
		return unit, state, err
	}
	for _, other := range sshUnits {
		if s, err := a.cfg.Units.Show(ctx, other); err == nil && !s.missing() {
			return other, s, nil
		}
	}
	return unit, state, nil
}

// testSSH keeps the SSH server from reading a configuration that it would not come back with: it is the way in. What
// sshd says about it is not repeated, since it quotes the configuration.
func (a *Agent) testSSH(ctx context.Context, unit string) error {
	if !slices.Contains(sshUnits, unit) {
		return nil
	}
	sshd := a.root.find("/usr/sbin/sshd", "/usr/bin/sshd")
	if sshd == "" {
		return fmt.Errorf("the configuration can't be tested: the node has no /usr/sbin/sshd")
	}
	cmd := exec.CommandContext(ctx, sshd, "-t")
	cmd.Env = commandEnv(a.cfg.Root)
	cmd.WaitDelay = waitDelay
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("sshd -t does not accept the configuration: %w", err)
	}
	return nil
}

// unitCheck returns an error if a unit is not as it has to be after it was reloaded or restarted.
type unitCheck func(s UnitState, unit string, restarted bool) error

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
) (map[string]UnitState, bool, error) {
	states, watch := map[string]UnitState{}, false
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
		if action.Type == disruption.Restart && state.longLived(unit) {
			states[unit] = state
			watch = true
		}
	}
	return states, watch, nil
}

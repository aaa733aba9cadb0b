package host

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// SystemUnknown is the state of a service manager that did not answer.
const SystemUnknown = "unknown"

// WaitDelay is how long a command that was killed may keep its output open, through children of its own.
const WaitDelay = 10 * time.Second

// Units controls the units of a node's service manager.
type Units interface {
	// Show returns the state of a unit. One that does not exist is no error.
	Show(ctx context.Context, unit string) (UnitState, error)
	// Do carries out a verb of systemctl: reload, restart, start, stop, enable, disable, mask, unmask or reset-failed of a unit, or daemon-reload or reboot with no
	// unit. It returns when a reboot was agreed to, which is before the node goes down.
	Do(ctx context.Context, verb, unit string) error
	// System returns the state of the service manager as a whole, for example "starting", "running" or "stopping".
	System(ctx context.Context) (string, error)
}

// UnitState is what systemd shows of a unit, under the names that it has there.
type UnitState struct {
	LoadState     string
	ActiveState   string
	UnitFileState string
	Type          string
	InvocationID  string
	// Names are all names of the unit, with its aliases, and spaces between them.
	Names string
	// SuccessAction is what systemd does with the whole system once the unit has ended well: "none", "reboot", "poweroff" and so on.
	SuccessAction string
	// FailureAction is the same for a unit that has failed.
	FailureAction string
}

// Missing reports whether the node does not have the unit.
func (s UnitState) Missing() bool { return s.LoadState == "not-found" }

// Active reports whether the unit can reload its configuration.
func (s UnitState) Active() bool { return s.ActiveState == "active" || s.ActiveState == "reloading" }

// Running reports whether there is something to stop.
func (s UnitState) Running() bool { return s.Active() || s.ActiveState == "activating" }

// Masked reports whether the unit can't be started.
func (s UnitState) Masked() bool { return s.LoadState == "masked" }

// Enabled reports whether the unit is started by what wants it, with the node for example.
func (s UnitState) Enabled() bool {
	return s.UnitFileState == "enabled" || s.UnitFileState == "alias" || s.UnitFileState == "linked"
}

// LongLived reports whether the unit is a service that runs until it is stopped.
func (s UnitState) LongLived(unit string) bool {
	return !s.Missing() && strings.HasSuffix(unit, ".service") && s.Type != "oneshot"
}

// Check returns an error if the unit is not as it has to be after it was reloaded or restarted.
func (s UnitState) Check(unit string, restarted bool) error {
	if s.ActiveState == "failed" && !s.Missing() || restarted && s.LongLived(unit) && !s.Active() {
		return fmt.Errorf("%s is %s (see journalctl -u %s on the node)", unit, s.ActiveState, unit)
	}
	return nil
}

// CheckBooted is check for a unit that a boot has started, or not: which one it does is up to the node.
func (s UnitState) CheckBooted(unit string, restarted bool) error {
	return s.Check(unit, restarted && s.ActiveState != "inactive")
}

// systemctl controls units by the program of that name.
type systemctl struct {
	program, root string
}

var _ Units = systemctl{}

// FindSystemctl returns nil if the node has none.
func FindSystemctl(root Root) Units {
	program := root.Find("/usr/bin/systemctl", "/bin/systemctl")
	if program == "" {
		return nil
	}
	return systemctl{program: program, root: root.Dir}
}

// Show implements Units.
func (s systemctl) Show(ctx context.Context, unit string) (UnitState, error) {
	out, err := s.run(ctx, unitArgs(unit, "show", "--property=LoadState,ActiveState,UnitFileState,Type,InvocationID,Names,SuccessAction,FailureAction")...)
	if err != nil {
		return UnitState{}, fmt.Errorf("systemctl show: %w", err)
	}
	return stateFrom(properties(string(out))), nil
}

func stateFrom(values map[string]string) UnitState {
	return UnitState{
		LoadState:     values["LoadState"],
		ActiveState:   values["ActiveState"],
		UnitFileState: values["UnitFileState"],
		Type:          values["Type"],
		InvocationID:  values["InvocationID"],
		Names:         values["Names"],
		SuccessAction: values["SuccessAction"],
		FailureAction: values["FailureAction"],
	}
}

// Do implements Units.
func (s systemctl) Do(ctx context.Context, verb, unit string) error {
	_, err := s.run(ctx, unitArgs(unit, verb)...)
	return err
}

// System implements Units. The exit status is not looked at: it tells again whether the state is "running".
func (s systemctl) System(ctx context.Context) (string, error) {
	out, err := s.run(ctx, "is-system-running")
	if state := strings.TrimSpace(string(out)); state != "" && state != SystemUnknown {
		return state, nil
	}
	return "", cmp.Or(err, errors.New("systemd does not say in which state it is"))
}

// unitArgs appends a unit, if there is one. A name that begins with a dash, as that of the root's mount does, must not be
// taken for an option.
func unitArgs(unit string, args ...string) []string {
	switch {
	case unit == "":
		return args
	case strings.HasPrefix(unit, "-"):
		return append(args, "--", unit)
	}
	return append(args, unit)
}

// run does not repeat what systemctl says on its standard error: the exit status tells that it failed, and the journal
// of the unit why.
func (s systemctl) run(ctx context.Context, args ...string) ([]byte, error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, s.program, args...)
	cmd.Env = CommandEnv(s.root)
	cmd.Stdout = &out
	cmd.WaitDelay = WaitDelay
	err := cmd.Run()
	return out.Bytes(), err
}

// CommandEnv is the environment of the node's own programs. REFIT_ROOT tells a stand-in which node it stands for. A reboot is
// to be one of the kernel, even where systemctl would leave it at starting user space again.
func CommandEnv(root string) []string {
	return []string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "SYSTEMD_COLORS=0", "SYSTEMCTL_SKIP_AUTO_SOFT_REBOOT=1",
		"REFIT_ROOT=" + root,
	}
}

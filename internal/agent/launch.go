package agent

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/capi-refit/refit/internal/agent/host"
)

// Launcher starts something that calls Run or RunStage and does not die with whoever has started it.
type Launcher interface {
	// Launch starts it under a name that tells runs apart. The verb is the agent's: run or stage-run. It does not wait for its end.
	Launch(ctx context.Context, name, verb string) error
}

// LauncherFunc is a Launcher that is one function.
type LauncherFunc func(ctx context.Context, name, verb string) error

// Launch implements Launcher.
func (f LauncherFunc) Launch(ctx context.Context, name, verb string) error {
	return f(ctx, name, verb)
}

// hasSystemd reports whether root is that of a running system whose service manager is systemd.
func hasSystemd(root string) bool {
	if root != "/" {
		return false
	}
	info, err := os.Stat("/run/systemd/system")
	return err == nil && info.IsDir()
}

func newLauncher(root, executable, log string) Launcher {
	if hasSystemd(root) {
		if program := (host.Root{Dir: root}).Find("/usr/bin/systemd-run", "/bin/systemd-run"); program != "" {
			return transientUnit{program: program, executable: executable, root: root}
		}
	}
	return detached{executable: executable, root: root, log: log}
}

// checkProgram returns an error if others than root can exchange the agent's own program, which is going to be run again, as root.
func checkProgram(executable string) error {
	if executable == "" {
		return nil
	}
	return host.Root{Dir: "/"}.CheckOwned(executable)
}

// labelProgram sees to it that systemd may execute the agent's own program where SELinux is enforced.
func labelProgram(root, executable string) error {
	if root != "/" { // a directory that stands for a node has no policy
		return nil
	}
	return host.Root{Dir: root}.LabelProgram(executable)
}

// unitName names the unit of a run after what it is for and who has asked.
func unitName(digest string, token int64) string {
	const short = 12
	name := strings.NewReplacer(":", "-", "_", "-").Replace(digest)
	return fmt.Sprintf("refit-%s-%s", name[:min(short, len(name))], strconv.FormatInt(token, 10))
}

// transientUnit has systemd run the agent, outside of the session that the server came in by. The agent is not verified once more:
// who has started this one has found it to be what was brought, in a directory in which only root can exchange it.
type transientUnit struct {
	program, executable, root string
}

// Launch implements Launcher.
func (t transientUnit) Launch(ctx context.Context, name, verb string) error {
	if err := labelProgram(t.root, t.executable); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, t.program, t.args(name, verb)...)
	cmd.Env = host.CommandEnv(t.root)
	cmd.WaitDelay = host.WaitDelay
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("systemd-run of unit %s failed: %w (see journalctl -u %s on the node)", name, err, name)
	}
	return nil
}

func (t transientUnit) args(name, verb string) []string {
	return []string{
		"--unit=" + name,
		"--description=refit updates this node in place",
		"--collect", // a failed unit must not keep the name from the next attempt
		"--quiet",
		"--no-ask-password",
		"--property=OOMScoreAdjust=-900",
		"--property=TimeoutStopSec=10s",
		"--property=RuntimeMaxSec=" + longest,
		"--",
		t.executable, "--root", t.root, verb,
	}
}

// detached runs the agent in a session of its own, where nothing hangs up on it.
type detached struct {
	executable, root, log string
}

// Launch implements Launcher. The context does not end the process: to live on is what it is for.
func (d detached) Launch(_ context.Context, _, verb string) error {
	log, err := host.Disk{}.OpenFile(d.log, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(d.executable, "--root", d.root, verb) //nolint:noctx // it outlives the request that starts it
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the agent to work on the run: %w", err)
	}
	go func() { _ = cmd.Wait() }() // while this process lives, it has to collect its child
	return nil
}

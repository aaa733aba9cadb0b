package host

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"strings"
	"syscall"
)

// ErrNoProgram says that the node lacks a program.
var ErrNoProgram = errors.New("the node has no such program")

// programDirs is where the node's own programs are.
var programDirs = []string{"/usr/sbin/", "/usr/bin/", "/sbin/", "/bin/", "/usr/local/bin/", "/opt/bin/"}

// Command is a call of one of the node's own programs.
type Command struct {
	// Name of the program, without a directory, or its absolute path.
	Name string
	// At is where the program is, as the agent sees it, for one that is none of the node's own, or was looked up before. Empty: it is looked up.
	At   string
	Args []string
	// Stdin is what the program reads. Secrets are handed over here, since anybody on the node sees arguments.
	Stdin []byte
	// Env adds to the environment, as NAME=value.
	Env []string
	// Foreign reports that the program is not known here: of what it writes only the last 64 KiB are kept, and when its time is up its process
	// group is killed, too. What it has started in a session of its own lives on.
	Foreign bool
}

// Program returns where a program is, by its name or its absolute path, or "" if the node does not have it.
func (r Root) Program(name string) string {
	if path.IsAbs(name) {
		return r.Find(name)
	}
	paths := make([]string, 0, len(programDirs))
	for _, d := range programDirs {
		paths = append(paths, d+name)
	}
	return r.Find(paths...)
}

// Run runs a program to its end and returns what it has written to its standard output. An error holds the exit status and
// nothing that the program wrote, which can quote secrets; RunTelling is for those that do not. A program that the node
// lacks is ErrNoProgram.
func (r Root) Run(ctx context.Context, c Command) ([]byte, error) {
	out, _, err := r.run(ctx, c)
	return out, err
}

// SaidError is the failure of a program that may be quoted.
type SaidError struct {
	// Err says how it ended.
	Err error
	// Said is all that it has written to its standard error, secrets included.
	Said string
}

// Error ends with the last lines of what the program said, without what looks like a secret: a program can quote one that nobody has
// thought of, such as a proxy's password in the address that it could not reach.
func (e *SaidError) Error() string { return fmt.Sprintf("%v: %s", e.Err, lastLines(Redact(e.Said))) }

// Unwrap returns how the program ended.
func (e *SaidError) Unwrap() error { return e.Err }

// RunTelling is Run for programs whose messages hold no secrets: an error ends with the last lines of what the program wrote to
// its standard error, and is a SaidError.
func (r Root) RunTelling(ctx context.Context, c Command) ([]byte, error) {
	out, said, err := r.run(ctx, c)
	if err != nil && len(said) > 0 {
		err = &SaidError{Err: err, Said: string(said)}
	}
	return out, err
}

func (r Root) run(ctx context.Context, c Command) (out, said []byte, err error) {
	program := cmp.Or(c.At, r.Program(c.Name))
	if program == "" {
		return nil, nil, fmt.Errorf("%s: %w", c.Name, ErrNoProgram)
	}
	var stdout, stderr output = &bytes.Buffer{}, &bytes.Buffer{}
	cmd := exec.CommandContext(ctx, program, c.Args...)
	// A link can have led to it, and what a program does can depend on the name that it is called by: ifdown is a link to ifup.
	cmd.Args[0] = path.Join(path.Dir(program), path.Base(c.Name))
	if c.Foreign {
		stdout, stderr = &tail{}, &tail{}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	}
	cmd.Env = append(CommandEnv(r.Dir), c.Env...)
	cmd.Stdin = bytes.NewReader(c.Stdin)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.WaitDelay = WaitDelay
	// One that has succeeded may have left something behind that has its output, as ifup does with a daemon.
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return stdout.Bytes(), stderr.Bytes(), fmt.Errorf("%s: %w", c.Name, err)
	}
	return stdout.Bytes(), stderr.Bytes(), nil
}

// output keeps what a program writes.
type output interface {
	io.Writer
	Bytes() []byte
}

// maxTail is how much a tail keeps.
const maxTail = 64 << 10

// tail keeps the end of what is written.
type tail struct{ kept []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p[max(0, len(p)-maxTail):]...)
	if over := len(t.kept) - maxTail; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}

func (t *tail) Bytes() []byte { return t.kept }

// lastLines bounds what people are shown of a program's output.
func lastLines(s string) string {
	const lines, size = 3, 1000 // kubeadm's errors are one long line, at whose beginning the cause is
	all := strings.Split(strings.TrimSpace(s), "\n")
	text := strings.Join(all[max(0, len(all)-lines):], "; ")
	return text[max(0, len(text)-size):]
}

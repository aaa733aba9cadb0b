// Package process runs programs that end with the one that has started them, whatever becomes of it.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Launcher runs functions on one OS thread that lives until Close. Processes have to be started there: Linux sends the
// parent-death signal when the thread that forked ends, which may be long before the Go program does.
type Launcher struct {
	work chan func()
}

// NewLauncher returns a Launcher. Close ends its thread.
func NewLauncher() *Launcher {
	l := &Launcher{work: make(chan func())}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for f := range l.work {
			f()
		}
	}()
	return l
}

// Do runs f on the launcher's thread and returns its error.
func (l *Launcher) Do(f func() error) error {
	result := make(chan error, 1)
	l.work <- func() { result <- f() }
	return <-result
}

// Close ends the thread. What was started on it ends as well.
func (l *Launcher) Close() { close(l.work) }

// A Process is a program that was started, with a process group of its own.
type Process struct {
	// Name and Log, the file with its output, are for messages.
	Name, Log string
	PID       int

	done chan struct{} // closed when it has ended and was waited for
	err  error         // how it ended, once done is closed
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Kill ends the process at once, without a chance to clean up, and returns when it has ended.
func (p *Process) Kill() error { return p.Stop(0) }

// Start starts path, with its output going to the file log.
func (l *Launcher) Start(name, log, path string, args, env []string) (*Process, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	defer out.Close()

	cmd := exec.Command(path, args...)
	cmd.Env = env
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = childAttributes()
	if err := l.Do(cmd.Start); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p := &Process{Name: name, Log: log, PID: cmd.Process.Pid, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// Stop ends the process and its group: politely at first, by force after grace.
func (p *Process) Stop(grace time.Duration) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	if err := syscall.Kill(-p.PID, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stopping %s (pid %d): %w", p.Name, p.PID, err)
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
	}
	if err := syscall.Kill(-p.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("killing %s (pid %d): %w", p.Name, p.PID, err)
	}
	<-p.done
	return nil
}

// Died describes an end that nobody asked for.
func (p *Process) Died() error {
	how := p.err
	if how == nil {
		how = errors.New("exit status 0")
	}
	return fmt.Errorf("%s ended unexpectedly (%w); its log, %s, ends with:\n%s", p.Name, how, p.Log, Tail(p.Log, 15))
}

// StopAll stops processes side by side.
func StopAll(processes []*Process, grace time.Duration) error {
	errs := make([]error, len(processes))
	var group sync.WaitGroup
	for i, p := range processes {
		group.Go(func() { errs[i] = p.Stop(grace) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// Tail returns the last n lines of a file, or says why it can't.
func Tail(path string, n int) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(LastLines(content, n))
}

// LastLines returns the last n lines of b.
func LastLines(b []byte, n int) []byte {
	lines := bytes.Split(bytes.TrimRight(b, "\n"), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-n):], []byte("\n"))
}

// withEnv writes a stand-in for a command, with further environment, and returns its path. One without any, of no more than a program, is that.
func withEnv(standIn string, env []string, command ...string) (string, error) {
	if len(env) == 0 && len(command) == 1 {
		return command[0], nil
	}
	if len(env) > 0 {
		command = slices.Concat([]string{"env"}, env, command)
	}
	var script strings.Builder
	script.WriteString("#!/bin/sh\nexec")
	for _, word := range command {
		script.WriteString(" '" + strings.ReplaceAll(word, "'", `'\''`) + "'")
	}
	script.WriteString(" \"$@\"\n")
	if err := os.WriteFile(standIn, []byte(script.String()), 0o700); err != nil {
		return "", fmt.Errorf("writing the stand-in for %s: %w", command[len(command)-1], err)
	}
	return standIn, nil
}

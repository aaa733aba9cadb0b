package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// A launcher runs functions on one OS thread that lives until close. Processes have to be started there: Linux sends the
// parent-death signal when the thread that forked ends, which may be long before the Go program does.
type launcher struct {
	work chan func()
}

func newLauncher() *launcher {
	l := &launcher{work: make(chan func())}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for f := range l.work {
			f()
		}
	}()
	return l
}

// do runs f on the launcher's thread and returns its error.
func (l *launcher) do(f func() error) error {
	result := make(chan error, 1)
	l.work <- func() { result <- f() }
	return <-result
}

func (l *launcher) close() { close(l.work) }

// A process is a program that was started, with a process group of its own.
type process struct {
	name string
	log  string
	pid  int
	done chan struct{} // closed when it has ended and was waited for
	err  error         // how it ended, once done is closed
}

// start starts path, with its output going to the file log.
func (l *launcher) start(name, log, path string, args, env []string) (*process, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	defer out.Close() //nolint:errcheck // the child has its own copy

	cmd := exec.Command(path, args...)
	cmd.Env = env
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = childAttributes()
	if err := l.do(cmd.Start); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p := &process{name: name, log: log, pid: cmd.Process.Pid, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// stop ends the process and its group: politely at first, by force after grace.
func (p *process) stop(grace time.Duration) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	if err := syscall.Kill(-p.pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stopping %s (pid %d): %w", p.name, p.pid, err)
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
	}
	if err := syscall.Kill(-p.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("killing %s (pid %d): %w", p.name, p.pid, err)
	}
	<-p.done
	return nil
}

// died describes an end that nobody asked for.
func (p *process) died() error {
	return fmt.Errorf("%s ended unexpectedly (%v); its log, %s, ends with:\n%s", p.name, p.err, p.log, tail(p.log, 15))
}

// stopAll stops processes side by side.
func stopAll(processes []*process, grace time.Duration) error {
	errs := make([]error, len(processes))
	var group sync.WaitGroup
	for i, p := range processes {
		group.Go(func() { errs[i] = p.stop(grace) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// tail returns the last n lines of a file, or says why it can't.
func tail(path string, n int) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(lastLines(content, n))
}

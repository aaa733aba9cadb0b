package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/test/process"
)

// runnerUp is one way to get something done on all hosts. round makes what is written differ from the round before.
type runnerUp struct {
	name string
	// turn does it once. Whatever can be prepared was.
	turn func(ctx context.Context, round int) error
	// after ends what a turn has left running. Its time does not count.
	after func() error
	// skipped says why it can't take part, if it can't.
	skipped string
	// times is by what its time is multiplied, if it was given only a part. 0 is 1.
	times int
	took  []time.Duration
}

// benchSSHD updates one file on each of n hosts behind OpenSSH's servers, all at once: by refit's whole path, which plans,
// applies and proves; by Ansible's copy; and against logging in and doing nothing. Each has its turn in each round.
func benchSSHD(ctx context.Context, out io.Writer, o options) (err error) {
	say(out, "\n== A one-file update of %d nodes (OpenSSH's sshd), all at once; %d rounds in turns, medians", o.hosts, o.sshRounds)
	agents, err := remote.LoadAgents(o.agents)
	if err != nil {
		return err
	}
	f, err := startFleet(ctx, o.hosts)
	if errors.Is(err, exec.ErrNotFound) {
		say(out, "   skipped: there is no sshd on this machine; Debian has it in openssh-server")
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	known, err := f.knownHosts()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := f.refit(ctx, agents, 1); err != nil {
		return err
	}
	say(out, "   %-52s %7.3f s", "refit's first update, which brings the agent along", time.Since(began).Seconds())
	all := []*runnerUp{
		{name: "refit: planned, applied, journaled, proven", turn: func(ctx context.Context, round int) error { return f.refit(ctx, agents, round+2) }},
		f.bareLogins(known), f.ansible("Ansible: copy, nothing proven", known, ""), f.ansible("Ansible: the same, told where Python is", known, python),
	}
	if err := takeTurns(ctx, all, o.sshRounds); err != nil {
		return err
	}
	report(out, all)
	return nil
}

// takeTurns lets none always be the first.
func takeTurns(ctx context.Context, all []*runnerUp, rounds int) error {
	for round := range rounds {
		for i := range all {
			r := all[(i+round)%len(all)]
			if r.skipped != "" {
				continue
			}
			began := time.Now()
			err := r.turn(ctx, round)
			r.took = append(r.took, time.Since(began)*time.Duration(max(1, r.times)))
			if r.after != nil {
				err = errors.Join(err, r.after())
			}
			if err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
		}
	}
	return nil
}

// report prints how long each took, and how many times as long as the first.
func report(out io.Writer, all []*runnerUp) {
	for i, r := range all {
		switch {
		case r.skipped != "":
			say(out, "   %-52s skipped: %s", r.name, r.skipped)
		case i == 0:
			say(out, "   %-52s %7.3f s", r.name, r.median().Seconds())
		default:
			say(out, "   %-52s %7.3f s   %7.2f times as long", r.name, r.median().Seconds(), float64(r.median())/float64(all[0].median()))
		}
	}
}

func (r *runnerUp) median() time.Duration {
	took := slices.Sorted(slices.Values(r.took))
	return took[len(took)/2]
}

// refit updates all hosts as the controller does, and looks whether it has.
func (f *fleet) refit(ctx context.Context, agents *remote.Agents, generation int) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, h := range f.hosts {
		group.Go(func() error {
			target, err := f.target(h)
			if err != nil {
				return err
			}
			options := remote.ClientOptions{Agents: agents, Dir: filepath.Join(h.root, remote.DefaultAgentDir)}
			return updateNode(ctx, target, options, h.name, generation)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return f.shows("conf", fmt.Appendln(nil, generation))
}

// shows reports whether every host has a file of that content below /etc/app.
func (f *fleet) shows(name string, content []byte) error {
	for _, h := range f.hosts {
		found, err := os.ReadFile(filepath.Join(h.root, "etc/app", name))
		if err == nil && !bytes.Equal(found, content) {
			err = errors.New("it has another content")
		}
		if err != nil {
			return fmt.Errorf("%s of %s: %w", name, h.name, err)
		}
	}
	return nil
}

// bareLogins logs in with ssh and does nothing.
func (f *fleet) bareLogins(known string) *runnerUp {
	r := &runnerUp{name: "OpenSSH: ssh host true, nothing done"}
	program, err := exec.LookPath("ssh")
	if err != nil {
		r.skipped = "there is no ssh on this machine; Debian has it in openssh-client"
		return r
	}
	r.turn = func(ctx context.Context, _ int) error {
		group, ctx := errgroup.WithContext(ctx)
		for _, h := range f.hosts {
			group.Go(func() error { return f.ssh(ctx, program, known, h, "true") })
		}
		return group.Wait()
	}
	return r
}

const (
	// python is where systems have the interpreter that Ansible runs on.
	python = "/usr/bin/python3"
	// connections is where Ansible keeps them. The name is short, because those of sockets are limited.
	connections = "c"
	noAnsible   = "there is no ansible on this machine; Debian has it in ansible-core"
)

// ansible copies a file with as many forks as there are hosts, with pipelining and with the connections that it keeps by itself.
// Left alone it looks for an interpreter on each host; people who know theirs tell it. Each round has connections of its own,
// as refit does.
func (f *fleet) ansible(name, known, interpreter string) *runnerUp {
	r := &runnerUp{name: name}
	program, err := exec.LookPath("ansible")
	if err != nil {
		r.skipped = noAnsible
		return r
	}
	if _, err := os.Stat(interpreter); interpreter != "" && err != nil {
		r.skipped = "there is no " + interpreter + " on this machine"
		return r
	}
	r.after = f.endConnections
	r.turn = func(ctx context.Context, round int) error {
		content := fmt.Appendf(nil, "%s, round %d\n", name, round)
		if err := f.ansibleFiles(known, interpreter, content); err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, program, "all", "--module-name", "ansible.builtin.copy",
			"--args", "src="+f.path("source")+" dest={{ refit_root }}/etc/app/by-ansible mode=0644")
		cmd.Env = append(os.Environ(), "ANSIBLE_CONFIG="+f.path("ansible.cfg"), "HOME="+f.dir)
		if output, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, process.LastLines(output, 10))
		}
		return f.shows("by-ansible", content)
	}
	return r
}

func (f *fleet) ansibleFiles(known, interpreter string, content []byte) error {
	inventory := bytes.NewBufferString("[all]\n")
	for _, h := range f.hosts {
		_, _ = fmt.Fprintf(inventory, "%s ansible_host=127.0.0.1 ansible_port=%d refit_root=%s ansible_remote_tmp=%s/tmp\n", h.name, h.port, h.root, h.root)
	}
	config := fmt.Sprintf(`[defaults]
inventory = %s
forks = %d
remote_user = %s
private_key_file = %s
interpreter_python = %s
local_tmp = %s
[ssh_connection]
pipelining = True
ssh_common_args = -F none -o IdentitiesOnly=yes -o UserKnownHostsFile=%s
control_path_dir = %s
`, f.path("inventory"), len(f.hosts), f.user, f.path("key"), cmp.Or(interpreter, "auto_silent"), f.path("local"), known, f.path(connections))
	return errors.Join(
		os.WriteFile(f.path("inventory"), inventory.Bytes(), 0o600), os.WriteFile(f.path("ansible.cfg"), []byte(config), 0o600),
		os.WriteFile(f.path("source"), content, 0o644),
	)
}

// endConnections ends those that Ansible keeps for the next time, which would outlive everything here by a minute.
func (f *fleet) endConnections() error {
	program, err := exec.LookPath("ssh")
	if err != nil {
		return err
	}
	sockets, err := os.ReadDir(f.path(connections))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, s := range sockets {
		socket := filepath.Join(f.path(connections), s.Name())
		output, err := exec.Command(program, "-F", "none", "-O", "exit", "-o", "ControlPath="+socket, "127.0.0.1").CombinedOutput()
		if _, still := os.Stat(socket); err != nil && still == nil {
			errs = append(errs, fmt.Errorf("end a connection of Ansible's: %w: %s", err, process.LastLines(output, 3)))
		}
	}
	return errors.Join(errs...)
}

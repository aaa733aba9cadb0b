package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/test/process"
)

const (
	// plannedFiles is how many files the planning node has.
	plannedFiles = 500
	// ansibleShare is how much of that Ansible is given, which takes about a second for each.
	ansibleShare = 50
)

// planning is a directory that stands for a node on which refit manages many files, and what is desired now: the same files,
// but for one.
type planning struct {
	root, agent string
	request     []byte
	// sums is what is desired as sha256sum reads it, desired a part of the files as Ansible does.
	sums, desired string
}

// benchPlan finds the one of many files that has to change: by the agent, by comparing digests, and by Ansible's check mode.
func benchPlan(ctx context.Context, out io.Writer, o options) error {
	say(out, "\n== A plan over %d managed files of 1 KiB, one of which changes, on the node itself; %d rounds in turns, medians", plannedFiles, o.sshRounds)
	dir, err := os.MkdirTemp("", "refit-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	p := planning{
		root: filepath.Join(dir, "root"), agent: filepath.Join(o.agents, "refit-node-linux-"+runtime.GOARCH),
		sums: filepath.Join(dir, "sums"), desired: filepath.Join(dir, "desired"),
	}
	if err := p.prepare(ctx); err != nil {
		return err
	}
	all := []*runnerUp{{name: "refit: what to do, and what has drifted", turn: p.refit}, p.sha256sum(), p.ansible()}
	if err := takeTurns(ctx, all, o.sshRounds); err != nil {
		return err
	}
	report(out, all)
	return nil
}

// prepare has the agent apply all files, and then desires another content of one.
func (p *planning) prepare(ctx context.Context) error {
	if err := errors.Join((&host{root: p.root}).layOut("root"), os.MkdirAll(p.desired, 0o755)); err != nil {
		return err
	}
	r := node.Request{
		Protocol: node.Protocol, Machine: node.MachineID{Namespace: "bench", Name: "planning", UID: "planning"},
		Digest: "all-files", Token: 1, OnConflict: node.Refuse, WaitSeconds: 300, Baseline: &node.Baseline{},
		Rules: disruption.Rules{Files: disruption.Table{{Path: "/etc/app", Actions: []disruption.Action{{Type: disruption.None}}}}},
	}
	for i := range plannedFiles {
		content := bytes.Repeat(fmt.Appendf(nil, "file %03d\n", i), 114) // 1 KiB
		r.Resources = append(r.Resources, node.Resource{File: &node.File{
			Path: fmt.Sprintf("/etc/app/%03d.conf", i), Content: content, Owner: "root:root", Mode: "0644",
		}})
	}
	answer, err := p.ask(ctx, "apply", &r)
	if err != nil || answer.Status == nil || answer.Status.State != node.Succeeded {
		return fmt.Errorf("have the agent write the files: %w: %+v", errors.Join(err), answer.Status)
	}
	r.Digest, r.Token = "one-changed", 2
	r.Resources[7].File.Content = []byte("another content\n")
	if p.request, err = json.Marshal(r); err != nil {
		return err
	}
	return p.others(r)
}

// others writes what is desired for those who are not refit.
func (p *planning) others(r node.Request) error {
	var sums bytes.Buffer
	for i, resource := range r.Resources {
		f := resource.File
		_, _ = fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(f.Content), filepath.Join(p.root, f.Path))
		if i < plannedFiles/ansibleShare {
			if err := os.WriteFile(filepath.Join(p.desired, filepath.Base(f.Path)), f.Content, 0o644); err != nil {
				return err
			}
		}
	}
	return os.WriteFile(p.sums, sums.Bytes(), 0o600)
}

// ask runs the agent with a request, or with the one that is prepared.
func (p *planning) ask(ctx context.Context, verb string, r *node.Request) (node.Answer, error) {
	var answer node.Answer
	input := p.request
	if r != nil {
		var err error
		if input, err = json.Marshal(r); err != nil {
			return answer, err
		}
	}
	cmd := exec.CommandContext(ctx, p.agent, "--root", p.root, verb)
	cmd.Stdin = bytes.NewReader(input)
	output, err := cmd.Output()
	return answer, errors.Join(err, json.Unmarshal(output, &answer))
}

func (p *planning) refit(ctx context.Context, _ int) error {
	answer, err := p.ask(ctx, "plan", nil)
	if err != nil {
		return err
	}
	if answer.Plan == nil || len(answer.Plan.Changes) != 1 || len(answer.Plan.Blocked)+len(answer.Plan.Drift) > 0 {
		return fmt.Errorf("one change was to be planned, and this was: %+v", answer.Plan)
	}
	return nil
}

// sha256sum compares digests that were made beforehand. It knows nothing of modes, owners and of who has changed a file.
func (p *planning) sha256sum() *runnerUp {
	r := &runnerUp{name: "sha256sum --check, contents only"}
	program, err := exec.LookPath("sha256sum")
	if err != nil {
		r.skipped = "there is no sha256sum on this machine"
		return r
	}
	r.turn = func(ctx context.Context, _ int) error {
		output, err := exec.CommandContext(ctx, program, "--check", "--quiet", p.sums).Output()
		var differs *exec.ExitError
		if !errors.As(err, &differs) || bytes.Count(output, []byte("FAILED")) != 1 {
			return fmt.Errorf("one file was to differ: %w: %s", errors.Join(err), process.LastLines(output, 3))
		}
		return nil
	}
	return r
}

// ansible asks its check mode, without any connection.
func (p *planning) ansible() *runnerUp {
	r := &runnerUp{name: fmt.Sprintf("Ansible: copy in check mode (%d of them, times %d)", plannedFiles/ansibleShare, ansibleShare), times: ansibleShare}
	program, err := exec.LookPath("ansible")
	if err != nil {
		r.skipped = noAnsible
		return r
	}
	r.turn = func(ctx context.Context, _ int) error {
		cmd := exec.CommandContext(ctx, program, "localhost", "--connection", "local", "--inventory", "localhost,", "--check",
			"--extra-vars", "ansible_python_interpreter="+python, "--module-name", "ansible.builtin.copy",
			"--args", "mode=0644 src="+p.desired+"/ dest="+filepath.Join(p.root, "etc/app")+"/")
		cmd.Env = append(os.Environ(), "HOME="+filepath.Dir(p.sums)) // where it makes directories
		output, err := cmd.CombinedOutput()
		if err != nil || !bytes.Contains(output, []byte("CHANGED")) {
			return fmt.Errorf("one file was to differ: %w: %s", errors.Join(err), process.LastLines(output, 10))
		}
		return nil
	}
	return r
}

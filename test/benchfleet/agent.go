package main

import (
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"sync"
	"time"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// fakeAgent answers as refit's agent does on a node where an update writes files, and disturbs nothing. The real one would be hundreds of
// processes on the machine that is measured, where a fleet has a machine for each.
type fakeAgent struct {
	mu      sync.Mutex
	applied node.Status
}

// verbAsked is what refit's script runs the agent with, behind the digest of its binary.
var verbAsked = regexp.MustCompile(`[0-9a-f]{64}'? '?([a-z]+)'?(?:;;|$)`)

// run answers a command. It is for nodetest.Options.
func (a *fakeAgent) run(command string, stdin io.Reader, stdout io.Writer) int {
	answer, err := a.answer(command, stdin)
	if err != nil {
		answer = node.Answer{Error: &node.AgentError{Reason: node.ReasonInvalid, Message: err.Error()}}
	}
	if err := json.NewEncoder(stdout).Encode(answer); err != nil {
		return 1 // whoever has asked is gone
	}
	return 0
}

func (a *fakeAgent) answer(command string, stdin io.Reader) (node.Answer, error) {
	verb := verbAsked.FindStringSubmatch(command)
	if verb == nil {
		return node.Answer{}, errors.New("the fake of the agent is asked for nothing that it knows")
	}
	var r node.Request // a request for the status has nothing besides that is needed here
	if err := json.NewDecoder(stdin).Decode(&r); err != nil {
		return node.Answer{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch verb[1] {
	case "plan":
		return node.Answer{Plan: a.plan(r)}, nil
	case "apply":
		a.apply(r)
		fallthrough
	case "status":
		status := a.applied
		if status.Digest != r.Digest {
			status = node.Status{State: node.Idle, Digest: r.Digest}
		}
		return node.Answer{Status: &status}, nil
	default:
		return node.Answer{}, errors.New("the fake of the agent does not know " + verb[1])
	}
}

// plan is to write all files, until that was done. All else is as it is to be.
func (a *fakeAgent) plan(r node.Request) *node.Plan {
	plan := &node.Plan{Digest: r.Digest}
	if a.applied.Digest == r.Digest {
		return plan
	}
	for _, resource := range r.Resources {
		if ref, ok := resource.Ref(); ok && resource.File != nil {
			plan.Changes = append(plan.Changes, node.Change{Ref: ref, Operation: node.Write})
		}
	}
	plan.Actions = []disruption.Action{{Type: disruption.None}}
	return plan
}

func (a *fakeAgent) apply(r node.Request) {
	plan, now := a.plan(r), time.Now()
	if len(plan.Changes) == 0 {
		return
	}
	a.applied = node.Status{
		State: node.Succeeded, Digest: r.Digest, Token: r.Token, Done: 1, Total: 1, Changes: plan.Changes, Actions: plan.Actions, StartedAt: now, FinishedAt: now,
	}
}

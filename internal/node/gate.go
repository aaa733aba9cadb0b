package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// GateProtocol is the version of what server and gate say to each other. The gate is on the node before refit is, so that it must
// understand servers that are newer than itself.
const GateProtocol = 1

// GateCommand is what the server asks sshd to run on a node with a gate. No program has this name: sshd runs the gate in its place, since
// that is what the key or the certificate is bound to. Where it is not, nothing is run, and the server says so.
const GateCommand = "refit-node-gate-v1"

// DefaultGate is where the gate is on a node, and how it is called.
const DefaultGate = "/usr/local/sbin/refit-node gate"

// GateVerb is what a gate is asked to do.
type GateVerb string

// The verbs.
const (
	// GateHello asks what the node is.
	GateHello GateVerb = "Hello"
	// GatePush brings an agent. Its bytes follow the request.
	GatePush GateVerb = "Push"
	// GateRun runs an agent. What it reads on its stdin follows the request.
	GateRun GateVerb = "Run"
)

// GateRequest is the first line that a gate reads on its stdin.
type GateRequest struct {
	// Gate is the GateProtocol.
	Gate int      `json:"gate"`
	Do   GateVerb `json:"do"`
	// Agents are the digests of the server's agents by architecture, of which GateRun runs the one for the node.
	Agents map[string]string `json:"agents,omitempty"`
	// Verb is what the agent is told to do.
	Verb string `json:"verb,omitempty"`
	// Size and Signature are of the agent that GatePush brings.
	Size      int64           `json:"size,omitempty"`
	Signature *AgentSignature `json:"signature,omitempty"`
}

// GateVerbs are what an agent can be told to do through a gate.
var GateVerbs = []string{"version", "plan", "stage", "apply", "status", "drift"}

// GateInfo is what a gate says about itself.
type GateInfo struct {
	Protocol     int    `json:"protocol"`
	OS           string `json:"os"`
	Architecture string `json:"architecture"`
	// RollbackIndex is the lowest that an agent may have.
	RollbackIndex int64 `json:"rollbackIndex"`
	// Agents are the digests of those that are there. They are verified when they are run.
	Agents []string `json:"agents,omitempty"`
}

// runGate has the gate run the agent.
func (c *Client) runGate(ctx context.Context, verb string, input []byte) (Answer, error) {
	digests := map[string]string{}
	for _, b := range c.opts.Agents.binaries {
		digests[b.Arch] = b.SHA256
	}
	return c.ask(ctx, GateRequest{Do: GateRun, Agents: digests, Verb: verb}, input)
}

// pushGate brings the agent for the node's architecture, with its signature, to the gate.
func (c *Client) pushGate(ctx context.Context) error {
	hello, err := c.ask(instead(ctx, VerbArchitecture, digest(nil)), GateRequest{Do: GateHello}, nil)
	if err == nil && hello.Gate == nil {
		err = &AnswerError{Reason: "there is nothing about the gate in it"}
	}
	if err != nil {
		return fmt.Errorf("ask for the node's architecture: %w", err)
	}
	agent, err := c.opts.Agents.For(hello.Gate.Architecture)
	if err == nil && agent.Signature == nil {
		err = fmt.Errorf("the gate takes signed agents only, and the one for %s has no signature: make it with refit agent sign, and put it beside the agent as refit-node-linux-%s.sig", agent.Arch, agent.Arch)
	}
	if err != nil {
		return &PushError{Dir: "the gate", Reason: "no agent fits", Err: err}
	}
	request := GateRequest{Do: GatePush, Size: int64(len(agent.data)), Signature: agent.Signature}
	if _, err = c.ask(instead(ctx, VerbPush, agent.SHA256), request, agent.data); err != nil {
		var refused *AgentError
		if errors.As(err, &refused) {
			return &PushError{Dir: "the gate", Reason: "the gate refuses it", Err: err}
		}
		return fmt.Errorf("bring the agent to the gate: %w", err)
	}
	return nil
}

// ask has the gate do something.
func (c *Client) ask(ctx context.Context, r GateRequest, body []byte) (Answer, error) {
	r.Gate = GateProtocol
	header, err := json.Marshal(r)
	if err != nil {
		return Answer{}, fmt.Errorf("encode the request: %w", err)
	}
	out := &limited{left: maxAnswer}
	err = c.conn.Run(ctx, GateCommand, io.MultiReader(bytes.NewReader(append(header, '\n')), bytes.NewReader(body)), out)
	var failed *CommandError
	if err != nil && !errors.As(err, &failed) {
		return Answer{}, err
	}
	if answer := out.buf.Bytes(); failed == nil || len(bytes.TrimSpace(answer)) > 0 {
		return decode(answer, failed)
	}
	return Answer{}, explainGate(failed)
}

// explainGate says why nothing came that a gate has written.
func explainGate(failed *CommandError) error {
	switch {
	case strings.Contains(failed.Stderr, GateCommand):
		return fmt.Errorf("%w: the login is not bound to the gate: in authorized_keys the key needs the options restrict,command=\"%s\": %w", ErrUnauthorized, DefaultGate, failed)
	case strings.HasPrefix(failed.Stderr, "sudo:"):
		return fmt.Errorf("%w: sudo must run the gate without a password: %w", ErrUnauthorized, failed)
	case failed.Status == 126 || failed.Status == 127:
		return fmt.Errorf("the gate can't be run; is refit-node installed on the node, as the forced command names it? %w", failed)
	}
	return fmt.Errorf("the gate does not answer: %w", failed)
}

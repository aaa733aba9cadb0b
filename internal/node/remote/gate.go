package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/capi-refit/refit/internal/node"
)

// runGate has the gate run the agent.
func (c *Client) runGate(ctx context.Context, verb string, input []byte) (node.Answer, error) {
	digests := map[string]string{}
	for _, b := range c.opts.Agents.binaries {
		digests[b.Arch] = b.SHA256
	}
	return c.ask(ctx, node.GateRequest{Do: node.GateRun, Agents: digests, Verb: verb}, bytes.NewReader(input))
}

// pushGate brings the agent for the node's architecture, with its signature, to the gate.
func (c *Client) pushGate(ctx context.Context) error {
	hello, err := c.ask(instead(ctx, VerbArchitecture, digest(nil)), node.GateRequest{Do: node.GateHello})
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
	request := node.GateRequest{Do: node.GatePush, Size: agent.size, Signature: agent.Signature}
	content := agent.content()
	if _, err = c.ask(instead(ctx, VerbPush, agent.SHA256), request, content); err != nil {
		if changed := content.changed(); changed != nil {
			return &PushError{Dir: "the gate", Reason: "the agent's file has changed", Err: changed}
		}
		var refused *node.AgentError
		if errors.As(err, &refused) {
			return &PushError{Dir: "the gate", Reason: "the gate refuses it", Err: err}
		}
		return fmt.Errorf("bring the agent to the gate: %w", err)
	}
	return nil
}

// ask has the gate do something.
func (c *Client) ask(ctx context.Context, r node.GateRequest, body ...io.Reader) (node.Answer, error) {
	r.Gate = node.GateProtocol
	header, err := json.Marshal(r)
	if err != nil {
		return node.Answer{}, fmt.Errorf("encode the request: %w", err)
	}
	in := io.MultiReader(append([]io.Reader{bytes.NewReader(append(header, '\n'))}, body...)...)
	out := &limited{left: maxAnswer}
	err = c.conn.Run(ctx, node.GateCommand, in, out)
	var failed *CommandError
	if err != nil && !errors.As(err, &failed) {
		return node.Answer{}, err
	}
	if answer := out.buf.Bytes(); failed == nil || len(bytes.TrimSpace(answer)) > 0 {
		return decode(answer, failed)
	}
	return node.Answer{}, explainGate(failed)
}

// explainGate says why nothing came that a gate has written.
func explainGate(failed *CommandError) error {
	switch {
	case strings.Contains(failed.Stderr, node.GateCommand):
		return fmt.Errorf("%w: the login is not bound to the gate: in authorized_keys the key needs the options restrict,command=\"%s\": %w", ErrUnauthorized, node.DefaultGate, failed)
	case strings.HasPrefix(failed.Stderr, "sudo:"):
		return fmt.Errorf("%w: sudo must run the gate without a password: %w", ErrUnauthorized, failed)
	case failed.Status == 126 || failed.Status == 127:
		return fmt.Errorf("the gate can't be run; is refit-node installed on the node, as the forced command names it? %w", failed)
	}
	return fmt.Errorf("the gate does not answer: %w", failed)
}

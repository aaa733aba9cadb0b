package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/capi-refit/refit/internal/node"
)

// The verbs of Commands that are not the agent's own.
const (
	// VerbArchitecture asks what machine the node is.
	VerbArchitecture = "architecture"
	// VerbPush brings the agent.
	VerbPush = "push"
	// VerbLogin asks only whether a login can be used.
	VerbLogin = "login"
)

// Command is what a Client has a node do, for a Conn that records it: it is in the context of each Run. It has no content.
type Command struct {
	// Verb is the agent's, VerbArchitecture, VerbPush or VerbLogin.
	Verb string
	// Machine is empty when the Client was not told of one.
	Machine node.MachineID
	// Token fences; 0 where there is none.
	Token int64
	// SHA256 is the digest of the bytes that are sent, in hex.
	SHA256 string
}

type commandKey struct{}

// CommandFrom returns the Command that is about to be run, and false if nothing is known of it.
func CommandFrom(ctx context.Context) (Command, bool) {
	c, ok := ctx.Value(commandKey{}).(Command)
	return c, ok
}

// with returns a context with the Command in it.
func (c Command) with(ctx context.Context) context.Context {
	return context.WithValue(ctx, commandKey{}, c)
}

// commandOf returns the Command of a request to the agent.
func commandOf(verb string, request any, input []byte) Command {
	c := Command{Verb: verb, SHA256: digest(input)}
	switch r := request.(type) {
	case node.Request:
		c.Machine, c.Token = r.Machine, r.Token
	case node.StatusRequest:
		c.Machine, c.Token = r.Machine, r.Token
	case node.DriftRequest:
		c.Machine = r.Machine
	case node.StageRequest:
		c.Machine = r.Machine
	}
	return c
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// instead returns the context of something that has to be done first, so that the Command in ctx can be.
func instead(ctx context.Context, verb, sum string) context.Context {
	c, _ := CommandFrom(ctx)
	c.Verb, c.SHA256, c.Token = verb, sum, 0
	return c.with(ctx)
}

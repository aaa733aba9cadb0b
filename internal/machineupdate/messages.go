package machineupdate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/audit"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/internal/nodeaccess"
)

// waitFor returns what the update waits for after an error on the way to the node, or nil for other errors.
func waitFor(err error) *wait {
	var hostKey *remote.HostKeyError
	var agent *node.AgentError
	var push *remote.PushError
	var answer *remote.AnswerError
	var command *remote.CommandError
	var dial *remote.DialError
	message := err.Error()
	switch {
	case errors.Is(err, audit.ErrNotRecorded):
		return &wait{reason: refitv1.ReasonAudit, message: "nothing is sent to the node: " + message, retry: 20 * time.Second}
	case errors.As(err, &hostKey):
		return &wait{reason: refitv1.ReasonHostKey, message: message, retry: 20 * time.Second}
	case nodeaccess.IsAPI(err): // what is to be recorded at the first contact could not be
		return nil
	case errors.Is(err, remote.ErrUnauthorized):
		return &wait{reason: refitv1.ReasonNodeAccess, message: "the node refuses the login: " + message, retry: 30 * time.Second}
	case errors.As(err, &agent):
		return waitForAgent(agent)
	case errors.As(err, &push), errors.As(err, &answer), errors.As(err, &command):
		return &wait{reason: refitv1.ReasonAgent, message: message, retry: 30 * time.Second}
	case errors.Is(err, remote.ErrUnreachable), errors.Is(err, remote.ErrConnectionLost), errors.As(err, &dial):
		return &wait{reason: refitv1.ReasonUnreachable, message: "the node can't be reached: " + message}
	default:
		return nil
	}
}

func waitForAgent(e *node.AgentError) *wait {
	switch e.Reason {
	case node.ReasonBusy:
		return &wait{reason: refitv1.ReasonBusy, message: e.Message, retry: 2 * time.Second}
	case node.ReasonChanged:
		return &wait{reason: refitv1.ReasonAgent, message: e.Message, retry: time.Second}
	case node.ReasonStale:
		return &wait{reason: refitv1.ReasonBusy, message: e.Message}
	case node.ReasonBlocked, node.ReasonOtherMachine, node.ReasonInvalid:
		return &wait{reason: refitv1.ReasonBlocked, message: e.Message, retry: 30 * time.Second}
	default:
		return &wait{reason: refitv1.ReasonAgent, message: "the agent on the node reports: " + e.Message}
	}
}

// describe returns what a plan does.
func describe(p node.Plan) string {
	var parts []string
	for _, c := range p.Changes {
		parts = append(parts, strings.ToLower(string(c.Operation))+" "+c.String())
	}
	for _, a := range p.Actions {
		parts = append(parts, a.String())
	}
	if len(p.Blocked) > 0 {
		parts = append(parts, node.Problems(p.Blocked))
	}
	if len(parts) == 0 {
		return "nothing to change"
	}
	return strings.Join(parts, ", ")
}

// changed returns how much a run has changed: files together, what else there is by its name.
func changed(changes []node.Change) string {
	files := 0
	var others []string
	for _, c := range changes {
		if c.Kind == node.FileKind {
			files++
		} else {
			others = append(others, c.String())
		}
	}
	if files > 0 || len(others) == 0 {
		others = slices.Insert(others, 0, fmt.Sprintf("%d files", files))
	}
	return strings.Join(others, ", ")
}

func actionsOf(actions []string) string {
	if len(actions) == 0 {
		return "none"
	}
	return strings.Join(actions, ", ")
}

package agent

import (
	"errors"
	"fmt"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/node"
)

func invalidf(format string, args ...any) error {
	return &node.AgentError{Reason: node.ReasonInvalid, Message: fmt.Sprintf(format, args...)}
}

func reasonf(reason node.ErrorReason, format string, args ...any) error {
	return &node.AgentError{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// asAgentError returns err as what is reported. What nobody has given a reason did not work on the node itself.
func asAgentError(err error) *node.AgentError {
	var reported *node.AgentError
	if errors.As(err, &reported) {
		return reported
	}
	var notOwned *host.NotOwnedError
	if errors.As(err, &notOwned) { // somebody has to look at it
		return &node.AgentError{Reason: node.ReasonBlocked, Message: err.Error()}
	}
	return &node.AgentError{Reason: node.ReasonInternal, Message: err.Error()}
}

// guard turns a panic of f into an error, so that a run is rolled back and an answer given.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("this is a defect of the agent, please report it: %v", p)
		}
	}()
	return f()
}

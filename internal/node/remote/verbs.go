package remote

import (
	"context"
	"fmt"

	"github.com/capi-refit/refit/internal/node"
)

// Drift asks how the node differs from what was applied to it last. It changes nothing there.
func (c *Client) Drift(ctx context.Context, r node.DriftRequest) (node.DriftReport, error) {
	r.Protocol = node.Protocol
	answer, err := c.call(ctx, "drift", r)
	if err == nil && answer.Drift == nil {
		err = &AnswerError{Reason: "there is no report of drift in it"}
	}
	if err != nil {
		return node.DriftReport{}, fmt.Errorf("drift: %w", err)
	}
	return *answer.Drift, nil
}

// Stage has the node bring a release of Kubernetes to its disk, which disturbs nothing, and waits for its end as long as r says. It can
// be repeated.
func (c *Client) Stage(ctx context.Context, r node.StageRequest) (node.StageStatus, error) {
	r.Protocol = node.Protocol
	answer, err := c.call(ctx, "stage", r)
	if err == nil && answer.Stage == nil {
		err = &AnswerError{Reason: "there is nothing about staging in it"}
	}
	if err != nil {
		return node.StageStatus{}, fmt.Errorf("stage: %w", err)
	}
	return *answer.Stage, nil
}

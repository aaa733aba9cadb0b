package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// maxBehind is how many entries of the log a member may have agreed to and not applied. A member that is well has
// tens of them, and at 5000 etcd takes no more requests (maxGapBetweenApplyAndCommitIndex in its server/etcdserver/v3_server.go). With a
// fifth of that it has not caught up, however busy it is.
const maxBehind = 1000

// Current returns an error unless the member is well, has a leader and a vote, and is not behind. That it takes part in a read that needs a
// majority shows that it has applied all that the leader had then; what it says of its log, that it keeps up with what comes.
func (c *Client) Current(ctx context.Context) error {
	if err := c.Healthy(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var answer struct { // 64 bits are a string in the JSON of protocol buffers, and what is zero is left out
		Leader    string `json:"leader"`
		Committed string `json:"raftIndex"`
		Applied   string `json:"raftAppliedIndex"`
		IsLearner bool   `json:"isLearner"`
	}
	err := c.post(ctx, "/v3/maintenance/status", "{}", func(r io.Reader) error { return json.NewDecoder(r).Decode(&answer) })
	switch {
	case err != nil:
		return err
	case answer.Leader == "" || answer.Leader == "0":
		return errors.New("the member has no leader")
	case answer.IsLearner:
		return errors.New("the member is a learner, which has no vote")
	}
	committed, err := strconv.ParseUint(answer.Committed, 10, 64)
	applied, bad := strconv.ParseUint(answer.Applied, 10, 64)
	if err != nil || bad != nil {
		return errors.New("the member does not say how far it is")
	}
	if committed > applied && committed-applied > maxBehind {
		return fmt.Errorf("the member is %d entries behind, of which %d are bearable", committed-applied, maxBehind)
	}
	return nil
}

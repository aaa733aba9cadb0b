package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/node"
)

// standInReleases stand for the releases on a node's disk.
type standInReleases struct {
	missing []string
	fails   error
	staged  int
	// beside is how often that was done beside a run.
	beside int
	// during is done while a release is fetched.
	during func(tell func(string))
	// until is when it has to have come.
	until time.Time
}

func (s *standInReleases) Missing(node.Source) ([]string, error) { return s.missing, nil }

func (s *standInReleases) Stage(ctx context.Context, _ node.Source, _ bool, tell func(string)) error {
	s.staged++
	s.until, _ = ctx.Deadline()
	if s.during != nil {
		s.during(tell)
	}
	if s.fails == nil {
		s.missing = nil
	}
	return s.fails
}

func (s *standInReleases) StageBesideRun(ctx context.Context, src node.Source, controlPlane bool, tell func(string)) error {
	s.beside++
	return s.Stage(ctx, src, controlPlane, tell)
}

func stageRequest() node.StageRequest {
	return node.StageRequest{
		Protocol: node.Protocol, Machine: machine, Source: node.Source{Name: "mirror", Version: "v1.36.3"}, WaitSeconds: 1,
	}
}

func TestStageBringsARelease(t *testing.T) {
	n := newTestNode(t)
	r := &standInReleases{missing: []string{"kubelet v1.36.3"}}
	n.agent.releases = r
	status, err := n.agent.Stage(t.Context(), stageRequest())
	require.NoError(t, err)
	require.Equal(t, node.StageStatus{State: node.Staged, Version: "v1.36.3"}, status)
	status, err = n.agent.Stage(t.Context(), stageRequest())
	require.NoError(t, err)
	require.Equal(t, node.Staged, status.State)
	require.Equal(t, 1, r.staged, "what is there is not fetched again")
}

func TestStageTellsAFailureOnceAndTriesAgain(t *testing.T) {
	n := newTestNode(t)
	r := &standInReleases{missing: []string{"kubelet v1.36.3"}, fails: errors.New("https://example.org answers 404")}
	n.agent.releases = r
	for range 2 {
		status, err := n.agent.Stage(t.Context(), stageRequest())
		require.NoError(t, err)
		require.Equal(t, node.StageFailed, status.State)
		require.Contains(t, status.Message, "answers 404")
	}
	require.Equal(t, 2, r.staged)
	r.fails = nil
	status, err := n.agent.Stage(t.Context(), stageRequest())
	require.NoError(t, err)
	require.Equal(t, node.Staged, status.State)
}

func TestStagingComesToAnEnd(t *testing.T) {
	n := newTestNode(t)
	r := &standInReleases{missing: []string{"kubelet v1.36.3"}}
	n.agent.releases = r
	_, err := n.agent.Stage(t.Context(), stageRequest())
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(stageTimeout), r.until, time.Hour)

	hangs := func(ctx context.Context) error { <-ctx.Done(); return fmt.Errorf("apt-get: %w", ctx.Err()) }
	err = within(t.Context(), time.Millisecond, hangs)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "did not come to an end within 1ms")
	called, off := context.WithCancel(t.Context())
	off()
	require.EqualError(t, within(called, time.Hour, hangs), "apt-get: context canceled")
}

// TestAFailureThatNobodySawIsTold has staging fail when nobody waits for it any more.
func TestAFailureThatNobodySawIsTold(t *testing.T) {
	n := newTestNode(t)
	r := &standInReleases{missing: []string{"kubelet v1.36.3"}, fails: errors.New("no room")}
	n.agent.releases = r
	var launched string
	n.agent.cfg.Launcher = LauncherFunc(func(_ context.Context, name, verb string) error {
		require.Equal(t, verbStageRun, verb)
		launched = name
		return nil
	})
	req := stageRequest()
	req.WaitSeconds = 0
	status, err := n.agent.Stage(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, node.Staging, status.State)
	require.Contains(t, status.Message, "kubelet v1.36.3")
	require.True(t, strings.HasPrefix(launched, "refit-stage-v1.36.3-"), launched)

	_, err = n.agent.RunStage(t.Context())
	require.NoError(t, err)
	launched = ""
	status, err = n.agent.Stage(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, node.StageStatus{State: node.StageFailed, Version: "v1.36.3", Message: "no room"}, status)
	require.Empty(t, launched, "it is told first")
	status, err = n.agent.Stage(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, node.Staging, status.State)
	require.NotEmpty(t, launched)
}

func TestStageIsNotDoneTwiceAtOnce(t *testing.T) {
	n := newTestNode(t)
	r := &standInReleases{missing: []string{"kubelet v1.36.3"}}
	n.agent.releases = r
	r.during = func(tell func(string)) {
		tell("fetching kubelet v1.36.3")
		other := n.newAgent()
		other.releases = r
		other.cfg.Launcher = LauncherFunc(func(context.Context, string, string) error {
			t.Error("a second process was started")
			return nil
		})
		req := stageRequest()
		req.WaitSeconds = 0
		status, err := other.Stage(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, node.StageStatus{State: node.Staging, Version: "v1.36.3", Message: "fetching kubelet v1.36.3"}, status)
	}
	n.agent.cfg.Launcher = LauncherFunc(func(context.Context, string, string) error { return nil })
	_, err := n.agent.Stage(t.Context(), stageRequest())
	require.NoError(t, err)
	_, err = n.agent.RunStage(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, r.staged)
}

// A run that was interrupted needs the releases that are there as one that goes on does.
func TestStageBesideARun(t *testing.T) {
	n := newTestNode(t)
	req := request(1, "/etc/quiet/a", "a")
	n.at("before write /etc/quiet/a", func() { n.agent.boundary = func(string) error { return errDead } })
	require.Equal(t, node.Running, n.apply(req).State)
	n.newProcess()
	for _, beside := range []int{1, 0} {
		r := &standInReleases{missing: []string{"kubelet v1.36.3"}}
		n.agent.releases = r
		status, err := n.agent.Stage(t.Context(), stageRequest())
		require.NoError(t, err)
		require.Equal(t, node.Staged, status.State)
		require.Equal(t, 1, r.staged)
		require.Equal(t, beside, r.beside)
		n.succeed(req)
	}
}

func TestStageOfAnotherMachine(t *testing.T) {
	n := newTestNode(t)
	require.NoError(t, n.agent.state.create())
	require.NoError(t, n.agent.state.save("record.json", record{Machine: node.MachineID{Namespace: "default", Name: "worker-1", UID: "uid-2"}}))
	n.agent.releases = &standInReleases{}
	_, err := n.agent.Stage(t.Context(), stageRequest())
	require.ErrorContains(t, err, "not of")
}

func TestStageCommand(t *testing.T) {
	n := newTestNode(t)
	input, err := json.Marshal(stageRequest())
	require.NoError(t, err)
	var out bytes.Buffer
	status := Main(t.Context(), n.agent.cfg, []string{"stage"}, bytes.NewReader(input), &out)
	require.Equal(t, 1, status, "a source that says nothing is refused: %s", out.String())
	var answer node.Answer
	require.NoError(t, json.Unmarshal(out.Bytes(), &answer))
	require.NotNil(t, answer.Error)

	out.Reset()
	require.Equal(t, 0, Main(t.Context(), n.agent.cfg, []string{"stage-run"}, strings.NewReader(""), &out))
	require.JSONEq(t, `{"stage":{"state":""}}`, out.String(), "there is nothing to do")
}

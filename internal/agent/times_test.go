package agent

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

func TestAStatusHasTheTimesOfTheSteps(t *testing.T) {
	n := newTestNode(t)
	status := n.succeed(request(1, "/etc/kubelet/a", "ours"))
	classes := map[string]string{}
	for _, s := range status.Steps {
		require.False(t, s.Failed, s.Step)
		require.False(t, s.StartedAt.IsZero(), s.Step)
		require.False(t, s.FinishedAt.Before(s.StartedAt), s.Step)
		require.NotContains(t, classes, s.Step, "each step once")
		classes[s.Step] = s.Class
	}
	require.Equal(t, map[string]string{
		"arm the way back": "", "keep copies": "", "write /etc/kubelet/a": "Write", "restart kubelet.service": "Restart", "verify": "",
		"confirm the way in": "", "record": "",
	}, classes)
}

func TestTimesOfSteps(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	entry := func(s int, event, step string) node.JournalEntry {
		return node.JournalEntry{Time: at(s), Event: event, Step: step}
	}
	p := progress{
		started: map[string]bool{}, done: map[string]bool{}, boots: map[string]string{}, askedUntil: map[string]time.Duration{}, errors: map[string]string{},
	}
	for _, e := range []node.JournalEntry{
		entry(1, eventStarted, "write /a"), entry(2, eventDone, "write /a"),
		entry(3, eventStarted, "reboot"), entry(9, eventStarted, "reboot"), entry(10, eventDone, "reboot"), // it was interrupted
		entry(11, eventStarted, "verify"), entry(12, eventFailed, "verify"),
		entry(13, eventStarted, "write back /a"),
	} {
		p.add(e)
	}
	w := &work{Plan: node.Plan{
		Changes: []node.Change{{Ref: node.FileRef("/a"), Operation: node.Write}}, Actions: []disruption.Action{{Type: disruption.Reboot}},
	}}
	want := []node.StepTime{
		{Step: "write /a", Class: "Write", StartedAt: at(1), FinishedAt: at(2)},
		{Step: "reboot", Class: "Reboot", StartedAt: at(3), FinishedAt: at(10)},
		{Step: "verify", StartedAt: at(11), FinishedAt: at(12), Failed: true},
		{Step: "write back /a", StartedAt: at(13)},
	}
	require.Equal(t, want, timesOf(w, p.times))

	many := append([]node.StepTime{}, want...)
	for i := range 2 * node.MaxSteps {
		many = append(many, node.StepTime{Step: fmt.Sprint("write /", i), StartedAt: at(20 + i), FinishedAt: at(20 + i)})
	}
	got := timesOf(w, many)
	require.Len(t, got, node.MaxSteps)
	require.Equal(t, want, got[:len(want)], "those that took longest, or failed, are kept")
}

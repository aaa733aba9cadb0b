package agent

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// at does something each time when the agent comes to a boundary.
func (n *testNode) at(boundary string, do func()) {
	n.agent.boundary = func(where string) error {
		if where == boundary {
			do()
		}
		return nil
	}
}

// endJournal has the journal be written no more, as on a disk that is full.
func (n *testNode) endJournal() {
	n.t.Helper()
	name := n.agent.state.path(journalFile)
	require.NoError(n.t, os.Rename(name, name+".before"))
	require.NoError(n.t, os.Mkdir(name, 0o700))
}

// recorded returns the digest that was applied last, or "".
func (n *testNode) recorded() string {
	n.t.Helper()
	rec, err := n.agent.state.loadRecord()
	require.NoError(n.t, err)
	if rec == nil {
		return ""
	}
	return rec.Digest
}

func TestARunGoesBackWithoutAJournal(t *testing.T) {
	for name, tc := range map[string]struct {
		boundary string
		calls    []string
	}{
		"that ends while a service is restarted": {"made restart kubelet.service", []string{
			"restart kubelet.service", "reset-failed kubelet.service", "restart kubelet.service",
		}},
		"that ends with a step still to begin": {"before write /etc/kubelet/b", nil},
		"that ends with a step that is done":   {"made write /etc/kubelet/b", nil},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t)
			n.put("/etc/kubelet/a", "old")
			n.units.fails["restart kubelet.service"] = errRefused
			n.at(tc.boundary, func() {
				n.endJournal()
				delete(n.units.fails, "restart kubelet.service")
			})
			status := n.fail(request(1, "/etc/kubelet/a", "new", "/etc/kubelet/b", "new"))
			require.True(t, status.RolledBack, status.Message)
			require.Equal(t, "old", n.content("/etc/kubelet/a"))
			require.Equal(t, "(missing)", n.content("/etc/kubelet/b"))
			require.Equal(t, tc.calls, n.units.calls)
		})
	}
}

// TestWhatIsRecordedStaysApplied has something fail when the record is made.
func TestWhatIsRecordedStaysApplied(t *testing.T) {
	newNode := func(t *testing.T) *testNode {
		n := newTestNode(t)
		n.put("/etc/quiet/a", "distribution's")
		n.succeed(request(1, "/etc/quiet/a", "a", "/etc/quiet/b", "b"))
		return n
	}
	next := request(2, "/etc/quiet/b", "new")
	t.Run("an original can't be removed, which the next run does", func(t *testing.T) {
		n := newNode(t)
		inTheWay := n.agent.state.path("originals", "in", "the way")
		n.at("begun record", func() { require.NoError(t, os.MkdirAll(inTheWay, 0o700)) })
		n.succeed(next)
		require.Equal(t, "digest-2", n.recorded())
		require.Equal(t, "new", n.content("/etc/quiet/b"))
		n.newProcess()
		require.NoError(t, os.Remove(inTheWay))
		n.succeed(request(3, "/etc/quiet/b", "newer"))
		entries, err := os.ReadDir(n.agent.state.path("originals"))
		require.NoError(t, err)
		require.Empty(t, entries)
	})
	t.Run("the journal can't be written any more", func(t *testing.T) {
		n := newNode(t)
		n.at("made record", n.endJournal)
		status := n.succeed(next)
		require.Equal(t, status.Total, status.Done)
		require.Equal(t, "digest-2", n.recorded())
		require.Equal(t, "new", n.content("/etc/quiet/b"))
	})
}

// TestTheRecordGoesBackWithTheFiles has the record be there when it could not be said that it stays.
func TestTheRecordGoesBackWithTheFiles(t *testing.T) {
	for name, before := range map[string][]node.Request{
		"to that of the run before": {request(1, "/etc/quiet/a", "old")},
		"to none":                   nil,
	} {
		t.Run(name, func(t *testing.T) {
			n, was := newTestNode(t), ""
			n.put("/etc/quiet/a", "old")
			for _, req := range before {
				was = n.succeed(req).Digest
			}
			req := request(2, "/etc/quiet/a", "new")
			n.agent.boundary = func(where string) error {
				name := n.agent.state.path("record.json")
				switch where {
				case "begun record":
					require.NoError(t, errors.Join(os.RemoveAll(name), os.MkdirAll(name+"/in the way", 0o700)))
				case "ended record": // as if it had failed after that
					w, err := n.agent.state.loadWork()
					require.NoError(t, err)
					require.NoError(t, errors.Join(os.RemoveAll(name), n.agent.state.save("record.json", w.Next)))
				}
				return nil
			}
			require.True(t, n.fail(req).RolledBack)
			require.Equal(t, "old", n.content("/etc/quiet/a"))
			require.Equal(t, was, n.recorded())
			n.newProcess()
			req.Token = 3
			require.NotEmpty(t, n.plan(req).Changes, "a retry has all of its work to do")
			n.succeed(req)
			require.Equal(t, "new", n.content("/etc/quiet/a"))
		})
	}
}

// TestARunThatWentBackUnseenIsNotRecorded has the process die when it has gone back from the record, of which the disk has no trace.
func TestARunThatWentBackUnseenIsNotRecorded(t *testing.T) {
	n := newTestNode(t)
	n.succeed(request(1, "/etc/quiet/a", "old"))
	name, journal := n.agent.state.path("record.json"), n.agent.state.path(journalFile)
	req := request(2, "/etc/quiet/a", "new")
	n.agent.boundary = func(where string) error {
		switch where {
		case "before record":
			n.endJournal()
			require.NoError(t, os.Rename(name, name+".before"))
		case "before the end":
			return errDead
		}
		return nil
	}
	require.Equal(t, node.Running, n.apply(req).State)
	require.Equal(t, "old", n.content("/etc/quiet/a"))

	require.NoError(t, errors.Join(os.Remove(journal), os.Rename(journal+".before", journal), os.Rename(name+".before", name)))
	n.newProcess()
	require.Contains(t, n.fail(req).Message, "record failed: /etc/quiet/a is not as it was written: content; the files were put back")
	require.Equal(t, "digest-1", n.recorded())
	req.Token = 3
	n.succeed(req)
	require.Equal(t, "new", n.content("/etc/quiet/a"))
}

// TestARunThatWasVerifiedStandsWhileUnitsComeUp has the node lose power before it is written down how the run has ended.
func TestARunThatWasVerifiedStandsWhileUnitsComeUp(t *testing.T) {
	const timesyncd = "systemd-timesyncd.service"
	unit := node.Resource{Unit: &node.Unit{Name: "foo.service", Enabled: new(true), Active: new(true)}}
	ntp := node.Resource{NTP: &node.NTP{Enabled: true, Servers: []string{"192.0.2.1"}}}
	for name, tc := range map[string]struct {
		want node.Resource
		unit string
		// back is what has gone back unseen.
		back  func(n *testNode, s *host.UnitState)
		wrong string
	}{
		"that the run has started": {want: unit, unit: "foo.service"},
		"that keep the time":       {want: ntp, unit: timesyncd},
		"but not when one was disabled since": {
			want: unit, unit: "foo.service", wrong: "record failed: unit foo.service is not as it was made: enabled; ",
			back: func(_ *testNode, s *host.UnitState) { s.UnitFileState = "disabled" },
		},
		"but not when the time servers are those of before": {
			want: ntp, unit: timesyncd, wrong: "record failed: time synchronization is not as it was made: servers; ",
			back: func(n *testNode, _ *host.UnitState) { n.delete("/etc/systemd/timesyncd.conf.d/zz-refit.conf") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t)
			n.put("/lib/systemd/systemd-timesyncd", "")
			n.units.follow = true
			n.units.states[tc.unit] = host.UnitState{LoadState: "loaded", ActiveState: "inactive", UnitFileState: "disabled"}
			req := request(1)
			req.Rules.Domains, req.Resources = disruption.BuiltinRules().Domains, []node.Resource{tc.want}
			n.agent.boundary = func(where string) error {
				if where == "before record" {
					return errDead
				}
				return nil
			}
			require.Equal(t, node.Running, n.apply(req).State)
			require.Equal(t, 1, n.count("step-done verify"))

			n.newProcess()
			state := n.units.states[tc.unit]
			state.ActiveState = "inactive"
			if tc.back != nil {
				tc.back(n, &state)
			}
			n.units.states[tc.unit] = state
			if tc.wrong != "" {
				require.Contains(t, n.fail(req).Message, tc.wrong)
				return
			}
			n.succeed(req)
			require.Equal(t, req.Digest, n.recorded())
			ref, _ := tc.want.Ref()
			require.Equal(t, []node.Drift{{Ref: ref, What: []string{"active"}}}, n.plan(req).Drift, "people see it all the same")
		})
	}
}

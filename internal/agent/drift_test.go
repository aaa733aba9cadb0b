package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/node"
)

func (n *testNode) drift() node.DriftReport {
	n.t.Helper()
	report, err := n.agent.Drift(context.Background(), node.DriftRequest{Protocol: node.Protocol, Machine: machine})
	require.NoError(n.t, err)
	return report
}

func drifted(path string, what ...string) []node.Drift {
	return []node.Drift{{Ref: node.FileRef(path), What: what}}
}

func TestWhatIsDrift(t *testing.T) {
	const path = "/etc/kubelet/a"
	for name, tc := range map[string]struct {
		edit func(t *testing.T, n *testNode, host string)
		want []node.Drift
	}{
		"nothing was done": {func(*testing.T, *testNode, string) {}, nil},
		"touch": {func(t *testing.T, _ *testNode, host string) {
			now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
			require.NoError(t, os.Chtimes(host, now, now))
		}, nil},
		"content":                     {func(_ *testing.T, n *testNode, _ string) { n.put(path, "mine") }, drifted(path, "content")},
		"the same content, put again": {func(_ *testing.T, n *testNode, _ string) { n.put(path, "1") }, nil},
		"rename": {func(t *testing.T, _ *testNode, host string) {
			require.NoError(t, os.Rename(host, host+".old"))
		}, drifted(path, "missing")},
		"delete": {func(_ *testing.T, n *testNode, _ string) { n.delete(path) }, drifted(path, "missing")},
		"delete with its directory": {func(t *testing.T, _ *testNode, host string) {
			require.NoError(t, os.RemoveAll(filepath.Dir(host)))
		}, drifted(path, "missing")},
		"a file in the place of its directory": {func(t *testing.T, n *testNode, host string) {
			require.NoError(t, os.RemoveAll(filepath.Dir(host)))
			n.put(filepath.Dir(path), "x")
		}, drifted(path, "missing")},
		"a directory in its place": {func(t *testing.T, n *testNode, host string) {
			n.delete(path)
			require.NoError(t, os.Mkdir(host, 0o755))
		}, drifted(path, "content")},
		"chmod": {func(t *testing.T, _ *testNode, host string) { require.NoError(t, os.Chmod(host, 0o600)) }, drifted(path, "mode")},
		"chown": {func(_ *testing.T, n *testNode, _ string) {
			// What root is called has another number, which tells the same without the right to change owners.
			n.put("/etc/passwd", "root:x:4712:0::/root:/bin/sh\n")
		}, drifted(path, "owner")},
		"an owner that is gone": {func(_ *testing.T, n *testNode, _ string) { n.put("/etc/passwd", "") }, drifted(path, "owner")},
		"content and mode": {func(t *testing.T, n *testNode, host string) {
			n.put(path, "mine")
			require.NoError(t, os.Chmod(host, 0o600))
		}, drifted(path, "content", "mode")},
		"a link to the same content": {func(t *testing.T, n *testNode, host string) {
			require.NoError(t, os.Rename(host, host+".real"))
			require.NoError(t, os.Symlink(path+".real", host))
		}, nil},
		"another file": {func(_ *testing.T, n *testNode, _ string) { n.put("/etc/kubelet/b", "mine") }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t)
			n.succeed(request(1, path, "1"))
			tc.edit(t, n, filepath.Join(n.root, path))
			report := n.drift()
			require.True(t, report.Recorded)
			require.Equal(t, "digest-1", report.Digest)
			require.NotZero(t, report.RecordedAt)
			require.Empty(t, report.Unknown)
			require.Equal(t, tc.want, report.Drift)
		})
	}
}

func TestChownIsDrift(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give files away")
	}
	n := newTestNode(t)
	n.succeed(request(1, "/etc/quiet/a", "1"))
	require.NoError(t, os.Chown(filepath.Join(n.root, "/etc/quiet/a"), 4711, 0))
	require.Equal(t, drifted("/etc/quiet/a", "owner"), n.drift().Drift)
}

func TestDriftOfOtherKinds(t *testing.T) {
	n := newTestNode(t)
	n.units.follow = true
	off := node.Unit{Name: "chrony.service", Enabled: new(false), Active: new(false)}
	n.units.states[off.Name] = host.UnitState{LoadState: "loaded", ActiveState: "active", UnitFileState: "enabled"}
	n.succeed(unitRequest(1, off))
	require.Empty(t, n.drift().Drift)

	calls := len(n.units.calls)
	n.units.states[off.Name] = host.UnitState{LoadState: "loaded", ActiveState: "active", UnitFileState: "disabled"}
	require.Equal(t, []node.Drift{{Ref: node.Ref{Kind: node.UnitKind, Name: off.Name}, What: []string{"active"}}}, n.drift().Drift)
	require.Len(t, n.units.calls, calls, "to look changes nothing")
}

func TestDriftThatCannotBeTold(t *testing.T) {
	n := newTestNode(t)
	require.Equal(t, node.DriftReport{}, n.drift(), "without a record nothing has drifted, and nothing is as it was applied")
	require.NoDirExists(t, filepath.Join(n.root, stateRoot), "to look writes nothing")

	n.succeed(request(1, "/etc/quiet/a", "1"))
	rec, err := n.agent.state.loadRecord()
	require.NoError(t, err)
	rec.Others = map[string]node.Resource{"of tomorrow": {}}
	require.NoError(t, n.agent.state.save("record.json", rec))
	report := n.drift()
	require.Empty(t, report.Drift)
	require.Equal(t, "of tomorrow", report.Unknown[0].Path, "what is not known is not taken for unchanged")

	for name, change := range map[string]func(*node.DriftRequest){
		"another machine": func(r *node.DriftRequest) { r.Machine.UID = "uid-2" },
		"no machine":      func(r *node.DriftRequest) { r.Machine.UID = "" },
		"another version": func(r *node.DriftRequest) { r.Protocol++ },
	} {
		req := node.DriftRequest{Protocol: node.Protocol, Machine: machine}
		change(&req)
		_, err := n.agent.Drift(t.Context(), req)
		require.Error(t, err, name)
	}
}

// TestDriftWhileARunIsUnderWay has the agent look in the middle of a run, which has written a file and not yet recorded it.
func TestDriftWhileARunIsUnderWay(t *testing.T) {
	n := newTestNode(t)
	n.succeed(request(1, "/etc/quiet/a", "1"))
	looked := false
	n.agent.boundary = func(where string) error {
		if where == "ended write /etc/quiet/a" {
			looked = true
			report := n.drift()
			require.True(t, report.UnderWay)
			require.Empty(t, report.Drift)
		}
		return nil
	}
	n.succeed(request(2, "/etc/quiet/a", "2"))
	require.True(t, looked)
	require.Equal(t, node.DriftReport{Recorded: true, Digest: "digest-2", RecordedAt: n.drift().RecordedAt}, n.drift())
}

func TestRepair(t *testing.T) {
	repair := func(token int64, r node.Request) node.Request {
		r.Token, r.Repair = token, true
		return r
	}
	req := request(1, "/etc/kubelet/a", "1", "/etc/quiet/b", "2")
	t.Run("brings back what has drifted, with its actions, and nothing else", func(t *testing.T) {
		n := newTestNode(t)
		n.succeed(req)
		calls := len(n.units.calls)
		n.put("/etc/kubelet/a", "mine")
		require.Empty(t, n.plan(req).Changes, "without being asked it is left alone")
		plan := n.plan(repair(2, req))
		require.Empty(t, plan.Drift)
		require.Len(t, plan.Changes, 1)
		require.True(t, plan.Changes[0].Conflict, "a copy of what was there is kept")

		n.succeed(repair(2, req))
		require.Equal(t, "1", n.content("/etc/kubelet/a"))
		require.Equal(t, []string{"restart kubelet.service"}, n.units.calls[calls:])
		require.Empty(t, n.drift().Drift)
		n.succeed(repair(3, req))
		require.Len(t, n.units.calls, calls+1, "the second time nothing is done")
		n.noLeftovers()
	})
	t.Run("brings back what is missing, and modes", func(t *testing.T) {
		n := newTestNode(t)
		n.succeed(req)
		n.delete("/etc/kubelet/a")
		require.NoError(t, os.Chmod(filepath.Join(n.root, "/etc/quiet/b"), 0o600))
		n.succeed(repair(2, req))
		require.Equal(t, "1", n.content("/etc/kubelet/a"))
		require.Empty(t, n.drift().Drift)
	})
	t.Run("is not kept off by conflicts being refused", func(t *testing.T) {
		n := newTestNode(t)
		n.succeed(req)
		n.put("/etc/kubelet/a", "mine")
		refusing := repair(2, req)
		refusing.OnConflict = node.Refuse
		n.succeed(refusing)
		require.Equal(t, "1", n.content("/etc/kubelet/a"))
	})
	t.Run("does not touch what bootstrap laid down and nothing was applied over", func(t *testing.T) {
		n := newTestNode(t)
		n.put("/etc/kubelet/a", "as preKubeadmCommands have it")
		first := repair(1, request(1, "/etc/kubelet/a", "1"))
		first.Baseline = &node.Baseline{Files: []node.BaselineFile{laidDown("/etc/kubelet/a", "1")}}
		n.succeed(first)
		require.Equal(t, "as preKubeadmCommands have it", n.content("/etc/kubelet/a"))
	})
	t.Run("is rolled back when it fails", func(t *testing.T) {
		n := newTestNode(t)
		n.succeed(req)
		n.put("/etc/kubelet/a", "mine")
		n.units.fails["restart kubelet.service"] = os.ErrInvalid
		require.Equal(t, node.Failed, n.apply(repair(2, req)).State)
		require.Equal(t, "mine", n.content("/etc/kubelet/a"))
		require.Equal(t, drifted("/etc/kubelet/a", "content"), n.drift().Drift)
	})
	t.Run("brings back what is no file", func(t *testing.T) {
		n := newTestNode(t)
		n.units.follow = true
		on := node.Unit{Name: "chrony.service", Enabled: new(true), Active: new(true)}
		n.succeed(unitRequest(1, on))
		n.units.states[on.Name] = host.UnitState{LoadState: "loaded", ActiveState: "inactive", UnitFileState: "enabled"}
		require.Len(t, n.drift().Drift, 1)
		n.succeed(repair(2, unitRequest(1, on)))
		require.Empty(t, n.drift().Drift)
	})
}

// A Secret may change while the specs, and so their digest, stay as they are.
func TestRepairDoesNotBringRotatedSecrets(t *testing.T) {
	const path, other = "/etc/kubelet/a", "/etc/quiet/b"
	secret := func(token int64, content string, repair bool) node.Request {
		r := request(token, path, content, other, "2")
		r.Digest, r.Repair = "digest", repair
		for i := range r.Resources {
			r.Resources[i].File.FromSecret = r.Resources[i].File.Path == path
		}
		return r
	}
	for name, change := range map[string]func(*testNode){
		"that is as it was applied":     func(*testNode) {},
		"that was edited":               func(n *testNode) { n.put(path, "mine") },
		"that is gone":                  func(n *testNode) { n.delete(path) },
		"that shows the new one anyway": func(n *testNode) { n.put(path, "new") },
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t)
			n.succeed(secret(1, "old", false))
			n.put(other, "mine")
			change(n)
			before := n.drift()
			plan := n.plan(secret(2, "new", true))
			require.Len(t, plan.Changes, 1)
			require.Equal(t, other, plan.Changes[0].Name)
			require.Contains(t, plan.Notes[0], "the Secret that its content comes from has changed")
			require.NotContains(t, plan.Notes[0], "new")

			n.succeed(secret(2, "new", true))
			require.Equal(t, "2", n.content(other), "what comes from no Secret is brought back")
			require.Len(t, n.drift().Drift, len(before.Drift)-1, "and it is still known what was applied")

			n.succeed(secret(3, "old", true))
			require.Equal(t, "old", n.content(path), "the content that was applied is brought back")
			n.succeed(secret(4, "new", false))
			require.Equal(t, "new", n.content(path), "an update brings the new one")
			n.noLeftovers()
		})
	}
	t.Run("where the record is gone", func(t *testing.T) {
		n := newTestNode(t)
		first := secret(1, "new", true)
		first.Baseline = &node.Baseline{Files: []node.BaselineFile{laidDown(path, "old"), laidDown(other, "2")}}
		n.put(path, "old")
		n.put(other, "2")
		require.Empty(t, n.plan(first).Changes)
	})
}

// TestRepairSurvivesDeath lets the agent die at each point of a repair; the next process goes on.
func TestRepairSurvivesDeath(t *testing.T) {
	for at := 0; ; at++ {
		n := layOut(t, t.TempDir())
		req := request(1, "/etc/kubelet/a", "1")
		n.succeed(req)
		n.put("/etc/kubelet/a", "mine")
		req.Token, req.Repair = 2, true
		reached := 0
		n.agent.boundary = func(string) error {
			if reached++; reached > at {
				return errInterrupted
			}
			return nil
		}
		_, _ = n.agent.Apply(t.Context(), req) // it dies
		died := reached > at
		n.agent = n.newAgent()
		n.succeed(req)
		require.Equal(t, "1", n.content("/etc/kubelet/a"), "died at %d", at)
		require.Empty(t, n.drift().Drift)
		n.noLeftovers()
		if !died {
			require.Greater(t, at, 10)
			return
		}
	}
}

func TestDriftOnTheCommandLine(t *testing.T) {
	n := newTestNode(t)
	n.succeed(request(1, "/etc/quiet/a", "1"))
	n.put("/etc/quiet/a", "mine")
	ask := func(request any) (int, node.Answer) {
		in, err := json.Marshal(request)
		require.NoError(t, err)
		var out bytes.Buffer
		status := Main(t.Context(), n.agent.cfg, []string{"drift"}, bytes.NewReader(in), &out)
		var answer node.Answer
		require.NoError(t, json.Unmarshal(out.Bytes(), &answer))
		require.NotContains(t, out.String(), "mine")
		return status, answer
	}
	status, answer := ask(node.DriftRequest{Protocol: node.Protocol, Machine: machine})
	require.Zero(t, status)
	require.Equal(t, drifted("/etc/quiet/a", "content"), answer.Drift.Drift)
	status, answer = ask(request(1))
	require.Equal(t, 1, status, "what it does not know it does not pass over")
	require.Equal(t, node.ReasonInvalid, answer.Error.Reason)
	status, answer = ask(node.DriftRequest{Protocol: node.Protocol, Machine: node.MachineID{UID: "uid-2"}})
	require.Equal(t, 1, status)
	require.Equal(t, node.ReasonOtherMachine, answer.Error.Reason)
	require.Nil(t, answer.Drift)
}

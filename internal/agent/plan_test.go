package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

func entryOf(content string) entry {
	sum := sha256.Sum256([]byte(content))
	return entry{SHA256: hex.EncodeToString(sum[:]), Owner: "root:root", Mode: "0644", Origin: originNone}
}

// The three sides of one file, "" for not there.
type sides struct {
	recorded, desired, observed string
}

func TestPlanOfOneFile(t *testing.T) {
	const path = "/etc/kubelet/config"
	restart := []disruption.Action{{Type: disruption.Restart, Unit: "kubelet.service"}}
	change := func(op node.Operation, conflict bool) node.Plan {
		return node.Plan{
			Changes: []node.Change{{Ref: node.FileRef(path), Operation: op, Conflict: conflict, Actions: restart}}, Actions: restart,
		}
	}
	drift := func(what ...string) node.Plan {
		return node.Plan{Drift: []node.Drift{{Ref: node.FileRef(path), What: what}}}
	}
	for name, tc := range map[string]struct {
		sides
		want node.Plan
	}{
		"all three agree: nothing":                               {sides{"a", "a", "a"}, node.Plan{}},
		"the specs did not change it, the node did: drift":       {sides{"a", "a", "b"}, drift("content")},
		"the specs did not change it, it is gone: drift":         {sides{"a", "a", ""}, drift("missing")},
		"the specs changed it: written":                          {sides{"a", "b", "a"}, change(node.Write, false)},
		"the specs changed it, the node shows it: nothing":       {sides{"a", "b", "b"}, node.Plan{}},
		"both changed it: conflict":                              {sides{"a", "b", "c"}, change(node.Write, true)},
		"the specs changed it, the node lost it: conflict":       {sides{"a", "b", ""}, change(node.Write, true)},
		"the specs added it: written":                            {sides{"", "b", ""}, change(node.Write, false)},
		"the specs added it over another: written, no conflict":  {sides{"", "b", "c"}, change(node.Write, false)},
		"the specs added what is there: nothing":                 {sides{"", "b", "b"}, node.Plan{}},
		"the specs dropped it: removed":                          {sides{"a", "", "a"}, change(node.Remove, false)},
		"the specs dropped it, the node changed it: conflict":    {sides{"a", "", "c"}, change(node.Remove, true)},
		"the specs dropped it, it is gone already: nothing":      {sides{"a", "", ""}, node.Plan{}},
		"neither specs nor record know it: none of our business": {sides{"", "", "c"}, node.Plan{}},
	} {
		for from, prepare := range map[string]func(*testNode, *node.Request){
			"record": func(n *testNode, _ *node.Request) {
				rec := record{Machine: machine, Digest: "before", Files: map[string]entry{}}
				if tc.recorded != "" {
					rec.Files[path] = entryOf(tc.recorded)
				}
				require.NoError(n.t, n.agent.state.create())
				require.NoError(n.t, n.agent.state.save("record.json", rec))
			},
			"baseline": func(_ *testNode, req *node.Request) {
				if tc.recorded != "" {
					req.Baseline.Files = []node.BaselineFile{laidDown(path, tc.recorded)}
				}
			},
		} {
			t.Run(name+", from the "+from, func(t *testing.T) {
				n := newTestNode(t)
				req := request(1)
				if tc.desired != "" {
					req = request(1, path, tc.desired)
				}
				if tc.observed != "" {
					n.put(path, tc.observed)
				}
				prepare(n, &req)
				tc.want.Digest = req.Digest
				assert.Equal(t, tc.want, n.plan(req))

				before := n.content(path)
				req.OnConflict = node.Refuse
				refused := n.plan(req)
				assert.Equal(t, len(tc.want.Changes) > 0 && tc.want.Changes[0].Conflict, len(refused.Blocked) > 0)
				if len(refused.Blocked) > 0 {
					n.refuse(req, node.ReasonBlocked)
					assert.Equal(t, before, n.content(path))
				}
			})
		}
	}
}

func TestPlanWithoutRecordAndBaseline(t *testing.T) {
	n := newTestNode(t)
	n.put("/etc/quiet/same", "a")
	n.put("/etc/quiet/other", "b")
	req := request(1, "/etc/quiet/same", "a", "/etc/quiet/other", "a")
	req.Baseline = nil

	plan := n.plan(req)
	require.Len(t, plan.Changes, 1)
	assert.Equal(t, "/etc/quiet/other", plan.Changes[0].Name)
	assert.False(t, plan.Changes[0].Conflict)
	assert.Contains(t, plan.Notes[0], "baseline is missing")
	assert.NoFileExists(t, filepath.Join(n.root, stateRoot), "planning leaves no trace")

	n.succeed(req)
	gone := request(2)
	n.succeed(gone)
	assert.Equal(t, "(missing)", n.content("/etc/quiet/same"), "it was most likely bootstrap's")
	assert.Equal(t, "b", n.content("/etc/quiet/other"), "what was there before comes back")
}

func TestWhatDiffers(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(host string) error
		want []string
	}{
		"nothing but the time": {func(host string) error { return os.Chtimes(host, testClock{}.Now(), testClock{}.Now()) }, nil},
		"content":              {func(host string) error { return os.WriteFile(host, []byte("b"), 0o644) }, []string{"content"}},
		"mode":                 {func(host string) error { return os.Chmod(host, 0o600) }, []string{"mode"}},
		"set-uid":              {func(host string) error { return os.Chmod(host, 0o644|os.ModeSetuid) }, []string{"mode"}},
		"missing":              {os.Remove, []string{"missing"}},
		"a directory":          {func(host string) error { _ = os.Remove(host); return os.Mkdir(host, 0o755) }, []string{"content"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t)
			n.succeed(request(1, "/etc/quiet/a", "a"))
			require.NoError(t, tc.edit(filepath.Join(n.root, "/etc/quiet/a")))
			plan := n.plan(request(2, "/etc/quiet/a", "a"))
			assert.Empty(t, plan.Changes)
			assert.Empty(t, plan.Blocked)
			if tc.want == nil {
				assert.Empty(t, plan.Drift)
			} else {
				assert.Equal(t, []node.Drift{{Ref: node.FileRef("/etc/quiet/a"), What: tc.want}}, plan.Drift)
			}
		})
	}
}

func TestModeAndOwnerAreChangesToo(t *testing.T) {
	n := newTestNode(t)
	n.succeed(request(1, "/etc/quiet/a", "a"))
	req := request(2, "/etc/quiet/a", "a")
	req.Resources[0].File.Mode = "4750"
	assert.Len(t, n.plan(req).Changes, 1)
	n.succeed(req)
	info, err := os.Stat(filepath.Join(n.root, "/etc/quiet/a"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o750)|os.ModeSetuid, info.Mode())

	req.Digest, req.Token = "digest-3", 3
	req.Resources[0].File.Mode = "04750"
	assert.Empty(t, n.plan(req).Changes, "the same mode, written in another way")
	req.Resources[0].File.Owner = "other:other"
	assert.Len(t, n.plan(req).Changes, 1)
}

func TestBlocked(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(n *testNode, req *node.Request)
		want    string
	}{
		"a path that no rule covers": {func(_ *testNode, req *node.Request) {
			req.Resources = append(req.Resources, wanted("/etc/unknown", "a"))
		}, "no rule says"},
		"a static pod that is none": {func(_ *testNode, req *node.Request) {
			req.Resources = append(req.Resources, wanted("/etc/kubernetes/manifests/a", "a"))
		}, "would not be a static pod"},
		"an owner whom the node does not know": {func(_ *testNode, req *node.Request) {
			req.Resources[0].File.Owner = "nobody-here:root"
		}, `user "nobody-here"`},
		"a directory in the way": {func(n *testNode, _ *node.Request) {
			require.NoError(n.t, os.MkdirAll(filepath.Join(n.root, "/etc/quiet/a"), 0o755))
		}, "is a directory"},
		"a masked unit": {func(n *testNode, req *node.Request) {
			require.NoError(n.t, os.MkdirAll(filepath.Join(n.root, "/etc/systemd/system"), 0o755))
			require.NoError(n.t, os.MkdirAll(filepath.Join(n.root, "/dev/null"), 0o755))
			require.NoError(n.t, os.Symlink("/dev/null", filepath.Join(n.root, "/etc/systemd/system/a.service")))
			req.Resources = append(req.Resources, wanted("/etc/systemd/system/a.service", "a"))
		}, "not a regular file"},
		"the agent's own state": {func(_ *testNode, req *node.Request) {
			req.Resources = append(req.Resources, wanted("/var/lib/refit/token", "a"))
		}, "belongs to the agent"},
		"a link to the agent's own state": {func(n *testNode, req *node.Request) {
			require.NoError(n.t, os.MkdirAll(filepath.Join(n.root, "/etc/quiet"), 0o755))
			require.NoError(n.t, os.Symlink("../../var/lib/refit", filepath.Join(n.root, "/etc/quiet/state")))
			req.Resources = append(req.Resources, wanted("/etc/quiet/state/token", "a"))
		}, "belongs to the agent"},
		"two names of one file": {func(n *testNode, req *node.Request) {
			require.NoError(n.t, os.MkdirAll(filepath.Join(n.root, "/etc/quiet"), 0o755))
			require.NoError(n.t, os.Symlink("a", filepath.Join(n.root, "/etc/quiet/b")))
			req.Resources = append(req.Resources, wanted("/etc/quiet/b", "b"))
		}, "are the same file"},
		"links in a circle": {func(n *testNode, req *node.Request) {
			require.NoError(n.t, os.MkdirAll(filepath.Join(n.root, "/etc/quiet"), 0o755))
			require.NoError(n.t, os.Symlink("b", filepath.Join(n.root, "/etc/quiet/b")))
			req.Resources = append(req.Resources, wanted("/etc/quiet/b", "b"))
		}, "too many symbolic links"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t)
			req := request(1, "/etc/quiet/a", "a")
			tc.prepare(n, &req)
			plan := n.plan(req)
			require.NotEmpty(t, plan.Blocked)
			assert.Contains(t, plan.Blocked[len(plan.Blocked)-1].Reason, tc.want)
			assert.Contains(t, n.refuse(req, node.ReasonBlocked), tc.want)
		})
	}
}

func TestFilesThatNobodyMayTouch(t *testing.T) {
	t.Run("what bootstrap laid down and no rule covers is left alone", func(t *testing.T) {
		n := newTestNode(t)
		n.put("/etc/kubernetes/pki/ca.crt", "certificate")
		req := request(1)
		req.Baseline.Files = []node.BaselineFile{laidDown("/etc/kubernetes/pki/ca.crt", "certificate")}
		assert.Equal(t, node.Plan{Digest: req.Digest}, n.plan(req))
	})
	t.Run("what was recorded and no rule covers any more blocks", func(t *testing.T) {
		n := newTestNode(t)
		n.succeed(request(1, "/etc/quiet/a", "a"))
		req := request(2)
		req.Rules = disruption.Rules{}
		assert.Len(t, n.plan(req).Blocked, 1)
		n.delete("/etc/quiet/a")
		assert.Empty(t, n.plan(req).Blocked, "it is gone, so there is nothing to do")
	})
	t.Run("a file that the specs name but that is not managed is no removal, and no drift", func(t *testing.T) {
		n := newTestNode(t)
		n.put("/etc/quiet/a", "edited")
		req := request(1)
		req.Baseline.Files = []node.BaselineFile{laidDown("/etc/quiet/a", "a")}
		req.Resources = []node.Resource{{File: &node.File{Path: "/etc/quiet/a", Unmanaged: true}}}
		assert.Equal(t, node.Plan{Digest: req.Digest}, n.plan(req))
		n.succeed(req)
		plan := n.plan(request(2))
		require.Len(t, plan.Changes, 1, "when the specs drop it, it goes")
		assert.True(t, plan.Changes[0].Conflict)
	})
}

func TestOrderOfChangesAndActions(t *testing.T) {
	n := newTestNode(t)
	n.succeed(request(1, "/etc/crio/a", "a", "/etc/quiet/a", "a"))
	plan := n.plan(request(2, "/etc/systemd/system/kubelet.service.d/a.conf", "a", "/etc/kubelet/a", "a"))
	var order []string
	for _, c := range plan.Changes {
		order = append(order, string(c.Operation)+" "+c.Name)
	}
	assert.Equal(t, []string{
		"Write /etc/kubelet/a", "Write /etc/systemd/system/kubelet.service.d/a.conf", "Remove /etc/crio/a", "Remove /etc/quiet/a",
	}, order)
	assert.Equal(t, []string{"daemon-reload", "reload crio.service", "restart kubelet.service"}, actionNames(plan.Actions))
}

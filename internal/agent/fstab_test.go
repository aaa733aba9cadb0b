package agent

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// TestWhatPutsTheNodeBackStaysMounted has /etc/fstab change where the agent's state and its program are, and elsewhere.
func TestWhatPutsTheNodeBackStaysMounted(t *testing.T) {
	const table = "# a table\nUUID=1 / ext4 defaults 0 1\nUUID=2 /var ext4 defaults 0 2\nUUID=3 /home ext4 defaults 0 2\n"
	for name, tc := range map[string]struct {
		after, lost string
	}{
		"another file system":    {after: table + "UUID=4 /data xfs nofail 0 0\n"},
		"one less":               {after: "UUID=1 / ext4 defaults 0 1\nUUID=2   /var/ ext4 defaults\n"},
		"the state's goes":       {after: "UUID=1 / ext4 defaults 0 1\n", lost: stateRoot},
		"the state's is another": {after: "UUID=1 / ext4 defaults 0 1\nUUID=5 /var ext4 defaults 0 2\n", lost: stateRoot},
		"one before the state's": {after: table + "tmpfs /var/lib tmpfs defaults 0 0\n", lost: stateRoot},
		"other options of all":   {after: "UUID=1 / ext4 ro 0 1\nUUID=2 /var ext4 defaults 0 2\n", lost: stateRoot},
		"the program's":          {after: table + "UUID=6 /opt ext4 defaults 0 2\n", lost: "/opt/refit"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t)
			n.put(fstab, table)
			n.agent.cfg.Executable = filepath.Join(n.root, "/opt/refit/refit-node")
			req := request(1, fstab, tc.after)
			rule := disruption.Rule{Path: fstab, Actions: []disruption.Action{{Type: disruption.Reboot}}, From: "p"}
			req.Rules.Files = append(req.Rules.Files[:len(req.Rules.Files):len(req.Rules.Files)], rule)
			plan := n.plan(req)
			if tc.lost == "" {
				require.Empty(t, plan.Blocked)
				return
			}
			require.Len(t, plan.Blocked, 1)
			require.Contains(t, plan.Blocked[0].Reason, "it changes how "+tc.lost+" is mounted")
			n.refuse(req, node.ReasonBlocked)
			req.Rules.Files[len(req.Rules.Files)-1].Unsafe = true
			require.Empty(t, n.plan(req).Blocked)
		})
	}
}

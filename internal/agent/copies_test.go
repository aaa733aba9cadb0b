package agent

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/node"
)

// TestACopyOutlivesRunsThatOverwriteNothing has runs follow one that has told people where it keeps what it has overwritten.
func TestACopyOutlivesRunsThatOverwriteNothing(t *testing.T) {
	for name, next := range map[string]func(token int64) node.Request{
		"since they change nothing": func(token int64) node.Request { return request(token, "/etc/quiet/a", "new") },
		"since they add files": func(token int64) node.Request {
			files := []string{"/etc/quiet/a", "new"}
			for i := range token {
				files = append(files, fmt.Sprintf("/etc/quiet/b%d", i), "b")
			}
			return request(token, files...)
		},
		"since they change units": func(token int64) node.Request {
			req := request(token, "/etc/quiet/a", "new")
			req.Resources = append(req.Resources, node.Resource{Unit: &node.Unit{Name: "foo.service", Active: new(token%2 == 0)}})
			return req
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t)
			n.units.follow = true
			n.units.states["foo.service"] = host.UnitState{LoadState: "loaded", ActiveState: "active"}
			n.succeed(request(1, "/etc/quiet/a", "old"))
			n.put("/etc/quiet/a", "edited")
			req := request(2, "/etc/quiet/a", "new")
			kept := n.agent.state.backups(req.Digest, req.Token)
			at := kept.nodePath("/etc/quiet/a")
			require.Equal(t, []string{"/etc/quiet/a was changed on the node too; what was there is kept in " + at}, n.succeed(req).Notes)
			for token := range int64(2 * keptRuns) {
				n.succeed(next(3 + token))
				require.Equal(t, "edited", n.content(at), "after run %d", 3+token)
			}
			entries, err := os.ReadDir(n.agent.state.path("backups"))
			require.NoError(t, err)
			require.Len(t, entries, 1, "what nobody is told of is not kept")
		})
	}
}

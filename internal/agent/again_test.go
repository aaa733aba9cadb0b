package agent

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/node"
)

// listener stands in for a kind, and notes what it is told of runs.
type listener struct {
	made     bool
	underWay []bool
	again    []bool
}

func (l *listener) Plan(_ context.Context, q kind.Question) (kind.Answer, error) {
	l.underWay = append(l.underWay, q.UnderWay)
	if l.made {
		return kind.Answer{}, nil
	}
	return kind.Answer{Operation: node.Write}, nil
}

func (l *listener) Make(_ context.Context, c kind.Change) (string, error) {
	l.made, l.again = true, append(l.again, c.Again)
	return "", nil
}

func (l *listener) Undo(context.Context, kind.Change) error { return nil }

// TestKindsAreToldOfARunThatIsTakenUp has the process die when a change was made, before that is in the journal.
func TestKindsAreToldOfARunThatIsTakenUp(t *testing.T) {
	n, l := newTestNode(t), &listener{}
	req := unitRequest(1, node.Unit{Name: "chrony.service", Enabled: new(false)})
	dead := false
	n.agent.kinds[node.UnitKind] = l
	n.agent.boundary = func(where string) error {
		if dead = dead || where == "made write unit chrony.service"; dead {
			return errDead
		}
		return nil
	}
	require.Equal(t, node.Running, n.apply(req).State)
	require.Equal(t, []bool{false}, l.underWay)
	require.Equal(t, []bool{false}, l.again)

	n.newProcess()
	n.agent.kinds[node.UnitKind] = l
	n.plan(req)
	require.Equal(t, []bool{false, true}, l.underWay)
	n.succeed(req)
	require.Equal(t, []bool{false, true}, l.again)
	l.underWay = nil
	n.plan(req)
	require.Equal(t, []bool{false}, l.underWay)
}

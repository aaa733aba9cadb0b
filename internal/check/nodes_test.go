package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/internal/nodeaccess"
)

func TestNodesThatCannotBeWorkedOn(t *testing.T) {
	for name, tc := range map[string]struct {
		err   error
		level Level
		does  string
	}{
		"all is well":             {nil, Good, ""},
		"a login that is refused": {&remote.DialError{Attempts: []remote.Attempt{{Err: remote.ErrUnauthorized}}}, Error, "sudo without a password"},
		"another host key":        {&remote.DialError{Attempts: []remote.Attempt{{Err: &remote.HostKeyError{}}}}, Error, "hostKeys of its NodeAccess"},
		"a host key that is not known yet": {
			&remote.DialError{Attempts: []remote.Attempt{{Err: fmt.Errorf("record: %w", nodeaccess.ErrNotMet)}}}, Warning, "nothing, if that is meant",
		},
		"an agent's directory that others may write": {fmt.Errorf("the agent was not run: %w", &remote.CommandError{Status: 75}), Error, "agentDirectory"},
		"a node that does not answer":                {&remote.DialError{Attempts: []remote.Attempt{{Err: remote.ErrUnreachable}}}, Warning, "without --nodes"},
		"no key in the Secret":                       {fmt.Errorf("the Secret fleet/key has no key"), Error, "the Secrets that it names"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			f.machine.Status.NodeRef.Name = "node-a"
			asked := 0
			all := f.run(func(c *Checker) {
				c.Nodes = 1
				c.Reach = func(_ context.Context, m *clusterv1.Machine) error {
					require.Equal(t, "prod-a", m.Name)
					asked++
					return tc.err
				}
			})
			require.Equal(t, 1, asked)
			require.Equal(t, tc.level, Worst(all))
			last := all[slices.IndexFunc(all, func(one Finding) bool { return one.Check == "node" })]
			require.Equal(t, tc.level, last.Level)
			require.Contains(t, last.Do, tc.does)
		})
	}
}

// TestALoginToNoNodeIsNotSaidToWork: nobody knows yet whether it does.
func TestALoginToNoNodeIsNotSaidToWork(t *testing.T) {
	f := newFleet(t)
	f.machine.Status.NodeRef = clusterv1.MachineNodeReference{}
	found := bad(f.run(func(c *Checker) {
		c.Nodes, c.Reach = 5, func(context.Context, *clusterv1.Machine) error { return errors.New("nobody gets in") }
	}))
	require.Len(t, found, 1)
	require.Equal(t, Warning, found[0].Level)
	require.Equal(t, "none of its 1 machines has a node to log in to", found[0].Message)
}

func TestASampleOfNodes(t *testing.T) {
	var all []clusterv1.Machine
	for i := range 12 {
		m := managementtest.Machine("fleet", fmt.Sprintf("m-%02d", i), "prod")
		m.Status.NodeRef.Name = m.Name
		if i >= 9 {
			m.Labels[clusterv1.MachineControlPlaneLabel] = ""
		}
		all = append(all, *m)
	}
	all[0].Status.NodeRef.Name = "" // it has no node yet
	names := func(most int) (names []string) {
		for _, m := range sample(all, most) {
			names = append(names, m.Name)
		}
		return names
	}
	require.Equal(t, []string{"m-09", "m-10"}, names(2))
	require.Equal(t, []string{"m-09", "m-10", "m-11", "m-01", "m-05"}, names(5))
	require.Len(t, names(-1), 11)
	require.Len(t, names(100), 11)
	require.Empty(t, names(0))
}

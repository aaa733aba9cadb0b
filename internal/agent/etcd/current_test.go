package etcd

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCurrent(t *testing.T) {
	for name, tc := range map[string]struct{ status, fails string }{
		"one that keeps up":            {`{"leader":"13803658152347727308","raftIndex":"100","raftAppliedIndex":"100"}`, ""},
		"one that is as far as it may": {`{"leader":"1","raftIndex":"1100","raftAppliedIndex":"100"}`, ""},
		"one that is behind":           {`{"leader":"1","raftIndex":"1101","raftAppliedIndex":"100"}`, "the member is 1001 entries behind, of which 1000 are bearable"},
		"one that is ahead of itself":  {`{"leader":"1","raftIndex":"100","raftAppliedIndex":"101"}`, ""},
		"one without a leader":         {`{"raftIndex":"100","raftAppliedIndex":"100"}`, "the member has no leader"},
		"one with leader zero":         {`{"leader":"0","raftIndex":"100","raftAppliedIndex":"100"}`, "the member has no leader"},
		"a learner":                    {`{"leader":"1","raftIndex":"100","raftAppliedIndex":"100","isLearner":true}`, "the member is a learner, which has no vote"},
		"one that does not say":        {`{"leader":"1"}`, "the member does not say how far it is"},
		"one that says nonsense":       {`nonsense`, "etcd's answer to /v3/maintenance/status"},
	} {
		t.Run(name, func(t *testing.T) {
			m, root := newMember(t)
			m.status = tc.status
			c, err := Connect(root, m.url, dir)
			require.NoError(t, err)
			err = c.Current(t.Context())
			if tc.fails == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.fails)
		})
	}
	m, root := newMember(t)
	m.sick[""] = `{"health":"false","reason":"RAFT NO LEADER"}`
	c, err := Connect(root, m.url, dir)
	require.NoError(t, err)
	require.ErrorContains(t, c.Current(t.Context()), "it is not healthy")
}

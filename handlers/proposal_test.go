package handlers

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-refit/refit/internal/inplace"
)

// keeping are policies that ask for each proposal, and keep them.
type keeping struct {
	NoPolicies
	proposals []inplace.Proposal
}

func (a *keeping) Permit(_ context.Context, _ string, _ bool, proposal func() (inplace.Proposal, error)) error {
	p, err := proposal()
	a.proposals = append(a.proposals, p)
	return err
}

// TestAProposalIsMadeOnce of a request that is asked again, and another one where refit has no way to the node.
func TestAProposalIsMadeOnce(t *testing.T) {
	why, policies := "", &keeping{}
	e := NewEngine(&based{Updaters: engine(t, "/etc/demo.conf").updaters, basis: "1"}).Reaching(accessesFunc(func(string, string, bool) (string, error) { return why, nil }))
	h := NewCanUpdate(e, policies, NewMetrics(prometheus.NewRegistry()), "")
	ask := func() inplace.Proposal {
		answer := h.Machine(t.Context(), recorded(t, "canupdatemachine-file-content")).(*runtimehooksv1.CanUpdateMachineResponse)
		require.Equal(t, runtimehooksv1.ResponseStatusSuccess, answer.Status, answer.Message)
		return policies.proposals[len(policies.proposals)-1]
	}
	first := ask()
	require.Same(t, first.Machine, ask().Machine)
	require.Empty(t, first.Left)

	why = "no NodeAccess selects it"
	unreached := ask()
	require.NotEmpty(t, unreached.Left)
	require.Equal(t, first.Digest, unreached.Digest)
	why = ""
	require.Equal(t, first, ask())
}

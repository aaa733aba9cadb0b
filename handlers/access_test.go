package handlers

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-refit/refit/internal/inplace"
)

// accessesFunc answers what NodeAccesses are asked.
type accessesFunc func(namespace, name string, set bool) (string, error)

func (f accessesFunc) Without(_ context.Context, namespace, name string, set bool) (string, error) {
	return f(namespace, name, set)
}

func TestNothingIsClaimedForAMachineWithoutANodeAccess(t *testing.T) {
	why, failed := "", error(nil)
	asked := 0
	metrics := NewMetrics(prometheus.NewRegistry())
	h := NewCanUpdate(engine(t, "/etc/demo.conf").Reaching(accessesFunc(func(namespace, name string, set bool) (string, error) {
		asked++
		require.NotEmpty(t, namespace)
		require.NotEmpty(t, name)
		require.False(t, set)
		return why, failed
	})), NoPolicies{}, metrics, "")
	ask := func() *runtimehooksv1.CanUpdateMachineResponse {
		return h.Machine(t.Context(), recorded(t, "canupdatemachine-file-content")).(*runtimehooksv1.CanUpdateMachineResponse)
	}
	claimed := ask()
	require.Equal(t, runtimehooksv1.ResponseStatusSuccess, claimed.GetStatus())
	require.NotEmpty(t, claimed.BootstrapConfigPatch.Patch)

	why = "no NodeAccess in namespace fleet selects Machine m1"
	left := ask()
	require.Equal(t, runtimehooksv1.ResponseStatusSuccess, left.GetStatus())
	require.Contains(t, left.GetMessage(), why)
	require.Empty(t, left.BootstrapConfigPatch.Patch)
	require.InDelta(t, 1, testutil.ToFloat64(metrics.decisions.WithLabelValues("CanUpdateMachine", outcomeReplace)), 0)

	failed = errors.New("the cache can't be read")
	why = ""
	refused := ask()
	require.Equal(t, runtimehooksv1.ResponseStatusFailure, refused.GetStatus(), "what can't be told replaces nothing")
	require.Contains(t, refused.GetMessage(), "the cache can't be read")

	failed = nil
	require.Equal(t, claimed.BootstrapConfigPatch, ask().BootstrapConfigPatch, "what was remembered is as it was")
	require.Equal(t, 4, asked)

	// What is left anyway is left for its own reason.
	why = "no NodeAccess"
	users := h.Machine(t.Context(), recorded(t, "canupdatemachine-users"))
	require.NotContains(t, users.GetMessage(), "no NodeAccess")
	require.Equal(t, 4, asked)
}

// forbids is a policy that holds replacements back.
type forbids struct{ NoPolicies }

func (forbids) Permit(_ context.Context, _ string, replaces bool, _ func() (inplace.Proposal, error)) error {
	if replaces {
		return errors.New("replacement: Forbid")
	}
	return nil
}

// TestAPolicyHoldsBackTheReplacement of a Machine for which nothing is claimed.
func TestAPolicyHoldsBackTheReplacement(t *testing.T) {
	why := ""
	h := NewCanUpdate(engine(t, "/etc/demo.conf").Reaching(accessesFunc(func(string, string, bool) (string, error) {
		return why, nil
	})), forbids{}, NewMetrics(prometheus.NewRegistry()), "")
	require.Equal(t, runtimehooksv1.ResponseStatusSuccess, h.Machine(t.Context(), recorded(t, "canupdatemachine-file-content")).GetStatus())
	why = "no NodeAccess"
	r := h.Machine(t.Context(), recorded(t, "canupdatemachine-file-content"))
	require.Equal(t, runtimehooksv1.ResponseStatusFailure, r.GetStatus())
	require.Contains(t, r.GetMessage(), "replacement: Forbid")
}

// TestOfAMachineSetItsMachinesAreAsked about.
func TestOfAMachineSetItsMachinesAreAsked(t *testing.T) {
	h := NewCanUpdate(engine(t, "/etc/demo.conf").Reaching(accessesFunc(func(_, _ string, set bool) (string, error) {
		require.True(t, set)
		return "no NodeAccess", nil
	})), NoPolicies{}, NewMetrics(prometheus.NewRegistry()), "")
	r := h.MachineSet(t.Context(), recorded(t, "canupdatemachineset-file-removed")).(*runtimehooksv1.CanUpdateMachineSetResponse)
	require.Equal(t, runtimehooksv1.ResponseStatusSuccess, r.GetStatus())
	require.Contains(t, r.GetMessage(), "no NodeAccess")
	require.Empty(t, r.BootstrapConfigTemplatePatch.Patch)
}

// TestClaimsAreWhatTheHooksDecide also where refit has no way to the node.
func TestClaimsAreWhatTheHooksDecide(t *testing.T) {
	e := engine(t, "/etc/demo.conf").Reaching(accessesFunc(func(string, string, bool) (string, error) { return "no NodeAccess selects it", nil }))
	request := recorded(t, "canupdatemachine-file-content")
	c, err := e.Claims(t.Context(), request)
	require.NoError(t, err)
	require.False(t, c.Decision.InPlace())
	require.Equal(t, "no NodeAccess selects it", c.Decision[0].Reason)
	x, err := e.Explain(t.Context(), request)
	require.NoError(t, err)
	require.Equal(t, VerdictReplace, x.Verdict)
	left, err := e.Left(t.Context(), request)
	require.NoError(t, err)
	require.Contains(t, left, "no NodeAccess selects it")
}

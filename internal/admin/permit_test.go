package admin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
)

func TestPermit(t *testing.T) {
	w := newWorld(t, machine("a"), machine("b"))
	for name, reason := range map[string]string{"a": refitv1.ReasonWindow, "b": refitv1.ReasonBudget, "c": refitv1.ReasonUnreachable} {
		mu := update(name, refitv1.PhaseWaiting, reason, "")
		require.NoError(t, w.Create(t.Context(), mu))
		require.NoError(t, w.Status().Update(t.Context(), mu))
	}
	get := func(name string) *refitv1.MachineUpdate {
		mu := &refitv1.MachineUpdate{}
		require.NoError(t, w.Get(t.Context(), types.NamespacedName{Namespace: "fleet", Name: name}, mu))
		return mu
	}
	p := &Permits{Client: w, Clock: w.clock, Out: &w.out, Admin: "ann"}
	require.NoError(t, p.Machine(t.Context(), machine("a")))
	require.Contains(t, w.said(), "of Machine fleet/a is permitted; where other policies select it, it waits for them")
	permit := changemanagement.PermitOf(get("a"), w.clock.Now())
	require.Equal(t, "ann", permit.By)

	p.Until = w.clock.Now().Add(time.Hour)
	require.NoError(t, p.All(t.Context(), Scope{Namespace: "fleet"}))
	first, second := changemanagement.PermitOf(get("a"), w.clock.Now()), changemanagement.PermitOf(get("b"), w.clock.Now())
	require.True(t, first.At.Before(second.At), "in that order")
	require.Empty(t, get("c").Annotations, "what does not wait for a policy is not permitted ahead")
	require.Zero(t, changemanagement.PermitOf(get("b"), w.clock.Now().Add(time.Hour)))

	require.ErrorContains(t, p.Machine(t.Context(), machine("c")), "only one that waits for a policy can, and it is Waiting (Unreachable)")
	require.ErrorContains(t, p.All(t.Context(), Scope{Namespace: "other"}), "no update in namespace other waits for a policy")

	waits := get("b")
	written := waits.DeepCopy()
	written.Labels = map[string]string{"new": "one"}
	require.NoError(t, w.Update(t.Context(), written))
	require.NoError(t, p.permit(t.Context(), waits.DeepCopy(), w.clock.Now()), "refit writes it at the same time")
	written = get("b")
	written.Spec.Digest += "0"
	require.NoError(t, w.Update(t.Context(), written))
	require.ErrorContains(t, p.permit(t.Context(), waits, w.clock.Now()), "is for another change by now")
}

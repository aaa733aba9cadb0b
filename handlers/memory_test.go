package handlers

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/updaters"
)

// based are updaters of which it is known what they rest on, and how often they were asked.
type based struct {
	inplace.Updaters
	basis string
	err   error
	asked int
}

func (b *based) Basis(context.Context, inplace.Subject) (string, error) { return b.basis, b.err }

func (b *based) For(ctx context.Context, s inplace.Subject) (*updaters.Registry, error) {
	b.asked++
	return b.Updaters.For(ctx, s)
}

// withheld are policies that permit or do not.
type withheld struct {
	NoPolicies
	err error
}

func (w *withheld) Permit(context.Context, string, bool, func() (inplace.Proposal, error)) error {
	return w.err
}

func TestWhatIsAskedAgainIsAnsweredFromMemory(t *testing.T) {
	on := &based{Updaters: engine(t, "/etc/demo.conf").updaters, basis: "1"}
	now, policies := clocktesting.NewFakePassiveClock(time.Now()), &withheld{}
	h := NewCanUpdate(NewEngine(on), policies, NewMetrics(prometheus.NewRegistry()), "")
	h.memory.clock = now
	body := recorded(t, "canupdatemachine-file-content")
	ask := func(body []byte) *runtimehooksv1.CanUpdateMachineResponse {
		return h.Machine(t.Context(), body).(*runtimehooksv1.CanUpdateMachineResponse)
	}
	first := ask(body)
	require.Equal(t, runtimehooksv1.ResponseStatusSuccess, first.Status, first.Message)
	require.NotEmpty(t, first.BootstrapConfigPatch.Patch)
	require.Equal(t, first, ask(bytes.Clone(body)))
	require.Equal(t, 1, on.asked)

	for name, change := range map[string]func() []byte{
		"another request":            func() []byte { return append(bytes.Clone(body), ' ') },
		"another policy":             func() []byte { on.basis = "2"; return body },
		"it was a while ago":         func() []byte { now.SetTime(now.Now().Add(rememberedFor + 1)); return body },
		"the clock was put back":     func() []byte { now.SetTime(now.Now().Add(-time.Hour)); return body },
		"it is too large to be kept": func() []byte { return append(bytes.Clone(body), bytes.Repeat([]byte(" "), largestRemembered)...) },
	} {
		before := on.asked
		h.memory.changes.Clear() // what is known of the change is not known of the request
		require.Equal(t, first, ask(change()), name)
		require.Equal(t, before+1, on.asked, "%s: it is judged", name)
	}
	ask(body)
	before := on.asked
	policies.err = errors.New("not now")
	require.Equal(t, "not now", ask(body).Message, "policies are asked each time")
	policies.err = nil
	require.Equal(t, first, ask(body))
	require.Equal(t, before, on.asked)

	on.err = errors.New("the Cluster can't be read")
	require.Equal(t, on.err.Error(), ask(body).Message, "what is not known is no answer")
}

// TestAHookDoesNotAnswerAnother though the body may be the same but for its kind.
func TestAHookDoesNotAnswerAnother(t *testing.T) {
	on := &based{Updaters: engine(t, "/etc/demo.conf").updaters, basis: "1"}
	h := NewCanUpdate(NewEngine(on), NoPolicies{}, NewMetrics(prometheus.NewRegistry()), "")
	body := recorded(t, "canupdatemachine-file-content")
	require.Equal(t, runtimehooksv1.ResponseStatusSuccess, h.Machine(t.Context(), body).GetStatus())
	require.Equal(t, runtimehooksv1.ResponseStatusFailure, h.MachineSet(t.Context(), body).GetStatus())
}

// TestAPolicyThatChangesMeanwhileIsNotForgotten: a verdict by what it was is not kept for what it is.
func TestAPolicyThatChangesMeanwhileIsNotForgotten(t *testing.T) {
	on := &based{basis: "1"}
	all := engine(t, "/etc/demo.conf").updaters
	on.Updaters = inplace.UpdatersFunc(func(ctx context.Context, s inplace.Subject) (*updaters.Registry, error) {
		on.basis += "+"
		return all.For(ctx, s)
	})
	h := NewCanUpdate(NewEngine(on), NoPolicies{}, NewMetrics(prometheus.NewRegistry()), "")
	body := recorded(t, "canupdatemachine-file-content")
	for want := range 3 {
		require.Equal(t, want, on.asked)
		h.Machine(t.Context(), body)
	}
}

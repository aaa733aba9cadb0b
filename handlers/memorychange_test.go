package handlers

import (
	"bytes"
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/registered"
)

// TestTheSameChangeOfAnotherMachineIsDecidedOnce: a fleet's machines have other names, and the same specs.
func TestTheSameChangeOfAnotherMachineIsDecidedOnce(t *testing.T) {
	on := &based{Updaters: engine(t, "/etc/demo.conf").updaters, basis: "1"}
	now := clocktesting.NewFakePassiveClock(time.Now())
	h := NewCanUpdate(NewEngine(on), NoPolicies{}, NewMetrics(prometheus.NewRegistry()), "")
	h.memory.clock = now
	body := recorded(t, "canupdatemachine-file-content")
	machine := 0
	another := func(body []byte) []byte {
		machine++
		return named(body, machine, "c1-fqxw2")
	}
	ask := func(body []byte) *runtimehooksv1.CanUpdateMachineResponse {
		return h.Machine(t.Context(), body).(*runtimehooksv1.CanUpdateMachineResponse)
	}
	first := ask(body)
	require.NotEmpty(t, first.BootstrapConfigPatch.Patch)
	require.Equal(t, first, ask(another(body)))
	require.Equal(t, 1, on.asked)

	for name, change := range map[string]func() []byte{
		"another content": func() []byte {
			return bytes.Replace(body, []byte(`"path": "/etc/demo.conf"`), []byte(`"path": "/etc/demo.conf", "owner": "root:root"`), 1)
		},
		"another Kubernetes": func() []byte { return bytes.ReplaceAll(body, []byte(`"version": "v1.`), []byte(`"version": "v1.2`)) },
		"another kind":       func() []byte { return bytes.ReplaceAll(body, []byte("DevMachine"), []byte("OtherMachine")) },
		"another version of a kind": func() []byte {
			return bytes.ReplaceAll(body, []byte("bootstrap.cluster.x-k8s.io/v1beta2"), []byte("bootstrap.cluster.x-k8s.io/v1beta9"))
		},
		"another policy":     func() []byte { on.basis += "2"; return body },
		"it was a while ago": func() []byte { now.SetTime(now.Now().Add(rememberedFor + 1)); return body },
	} {
		before, asked := on.asked, another(change())
		require.NotEqual(t, body, asked, name)
		ask(asked)
		require.Equal(t, before+1, on.asked, "%s: it is judged", name)
	}

	on.basis = "unstable"
	before := on.asked
	h.memory.basis = &changing{}
	ask(another(body))
	ask(another(body))
	require.Equal(t, before+2, on.asked, "what changes while it is judged is not kept")
}

// changing is a Basis that is another each time.
type changing struct{ n int }

func (c *changing) Basis(context.Context, inplace.Subject) (string, error) {
	c.n++
	return strconv.Itoa(c.n), nil
}

// TestWhatExtensionsSayOfOneMachineIsNotSaidOfAnother: they look at more than the specs.
func TestWhatExtensionsSayOfOneMachineIsNotSaidOfAnother(t *testing.T) {
	on := &based{Updaters: engine(t).updaters, basis: "1"}
	none := &noRemotes{}
	h := NewCanUpdate(NewEngine(on).With(none), NoPolicies{}, NewMetrics(prometheus.NewRegistry()), "")
	body := recorded(t, "canupdatemachine-file-content")
	for machine := range 3 {
		h.Machine(t.Context(), named(body, machine, "c1-fqxw2"))
		require.Equal(t, machine+1, none.asked)
	}
}

// noRemotes are no extensions, and count how often it is asked for them.
type noRemotes struct{ asked int }

func (n *noRemotes) For(context.Context, registered.Subject) ([]*registered.Remote, error) {
	n.asked++
	return nil, nil
}

func (*noRemotes) Claimants(context.Context, registered.Subject) string { return "" }

func (*noRemotes) Basis(context.Context, registered.Subject) (string, error) { return "", nil }

// TestWhatIsAskedAgainIsLoggedOnce: Cluster API asks again and again.
func TestWhatIsAskedAgainIsLoggedOnce(t *testing.T) {
	var lines []string
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	policies := &withheld{}
	h := NewCanUpdate(NewEngine(&based{Updaters: engine(t).updaters}), policies, NewMetrics(prometheus.NewRegistry()), "")
	body := recorded(t, "canupdatemachine-file-content")
	ask := func(body []byte) { h.Machine(ctrl.LoggerInto(t.Context(), log), body) }
	for range 3 {
		ask(body)
	}
	require.Len(t, lines, 1)
	require.Contains(t, lines[0], "can't be changed in place")
	ask(named(body, 1, "c1-fqxw2"))
	require.Len(t, lines, 2, "another machine")
	policies.err = context.DeadlineExceeded
	for range 3 {
		ask(body)
	}
	require.Len(t, lines, 3, "a policy's reason")
	policies.err = nil
	ask(body)
	require.Len(t, lines, 4, "it changes again")
}

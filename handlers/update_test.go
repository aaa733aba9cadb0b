package handlers

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-refit/refit/internal/inplace"
)

// updatesFunc is a fake of what makes updates.
type updatesFunc func(namespace, machine, digest string) (inplace.Progress, error)

func (f updatesFunc) Update(_ context.Context, namespace, machine, digest string) (inplace.Progress, error) {
	return f(namespace, machine, digest)
}

func respond(t *testing.T, body []byte, p inplace.Progress, err error) *runtimehooksv1.UpdateMachineResponse {
	t.Helper()
	h := NewUpdate(updatesFunc(func(string, string, string) (inplace.Progress, error) { return p, err }), "")
	return h.Machine(t.Context(), body).(*runtimehooksv1.UpdateMachineResponse)
}

func TestUpdateMachine(t *testing.T) {
	body := recorded(t, "updatemachine-controlplane")
	for name, tc := range map[string]struct {
		p     inplace.Progress
		err   error
		retry int32
	}{
		"done is the only 0":                    {inplace.Progress{Done: true, RetryAfter: time.Minute}, nil, 0},
		"an unknown estimate is not 0":          {inplace.Progress{}, nil, 1},
		"parts of a second are rounded up":      {inplace.Progress{RetryAfter: 1100 * time.Millisecond}, nil, 2},
		"less than a second is not 0":           {inplace.Progress{RetryAfter: time.Nanosecond}, nil, 1},
		"a negative estimate is not done":       {inplace.Progress{RetryAfter: -time.Hour}, nil, 1},
		"an absurd estimate does not overflow":  {inplace.Progress{RetryAfter: math.MaxInt64}, nil, 3600},
		"what passes is in progress, not wrong": {inplace.Progress{}, errors.New("etcd is slow"), 5},
	} {
		t.Run(name, func(t *testing.T) {
			r := respond(t, body, tc.p, tc.err)
			require.Equal(t, runtimehooksv1.ResponseStatusSuccess, r.Status)
			require.Equal(t, tc.retry, r.RetryAfterSeconds)
		})
	}
}

func TestUpdateMachineHandsOver(t *testing.T) {
	digests := map[string]string{}
	for _, name := range []string{"updatemachine-controlplane", "updatemachine-worker"} {
		h := NewUpdate(updatesFunc(func(namespace, _, digest string) (inplace.Progress, error) {
			require.Equal(t, "lab", namespace)
			digests[name] = digest
			return inplace.Progress{Message: "going on"}, nil
		}), "")
		require.Equal(t, "going on", h.Machine(t.Context(), recorded(t, name)).GetMessage())
	}
	require.NotEqual(t, digests["updatemachine-controlplane"], digests["updatemachine-worker"])
}

func TestUpdateMachineFailures(t *testing.T) {
	for name, body := range map[string][]byte{
		"no JSON":   []byte("x"),
		"no object": []byte(`{"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1","kind":"UpdateMachineRequest","desired":{}}`),
		"no name": edit(t, "updatemachine-worker", func(m map[string]any) {
			delete(side(side(side(m, "desired"), "machine"), "metadata"), "name")
		}),
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, runtimehooksv1.ResponseStatusFailure, respond(t, body, inplace.Progress{Done: true}, nil).Status)
		})
	}
}

func TestScope(t *testing.T) {
	asked := false
	updates := updatesFunc(func(string, string, string) (inplace.Progress, error) { asked = true; return inplace.Progress{}, nil })
	for scope, ok := range map[Scope]bool{"": true, "lab": true, "other": false} {
		want := runtimehooksv1.ResponseStatusFailure
		if ok {
			want = runtimehooksv1.ResponseStatusSuccess
		}
		asked = false
		require.Equal(t, want, NewUpdate(updates, scope).Machine(t.Context(), recorded(t, "updatemachine-worker")).GetStatus())
		require.Equal(t, ok, asked)
		h := NewCanUpdate(engine(t), NoPolicies{}, NewMetrics(prometheus.NewRegistry()), scope)
		require.Equal(t, want, h.Machine(t.Context(), recorded(t, "canupdatemachine-version")).GetStatus())
		require.Equal(t, want, h.MachineSet(t.Context(), recorded(t, "canupdatemachineset-version")).GetStatus())
	}
}

package controlplane

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/agent/staticpod/staticpodtest"
	"github.com/capi-refit/refit/internal/disruption"
)

// TestPodsThatDoNotComeBackInTheTimeThatARuleGives has an API server that is not seen to come back.
func TestPodsThatDoNotComeBackInTheTimeThatARuleGives(t *testing.T) {
	x := newFixture(t)
	x.Config = auditConfig + etcdConfig
	rules := disruption.BuiltinRules()
	rules.Domains[disruption.ControlPlane] = []disruption.Action{{Type: disruption.StaticPodRefresh, Timeout: 2 * time.Second}} // long enough to ask once
	want := spec(audit)
	a, err := x.kind.Plan(t.Context(), kind.Question{Was: spec(nil), Known: true, Desired: want, Rules: rules})
	require.NoError(t, err)
	x.Put("/next/kube-apiserver.yaml", x.manifest(apiServer, "--audit-log-path=/var/log/audit"))
	x.Set(func(n *staticpodtest.Node) { n.Lag = 1 << 30 })
	_, err = x.kind.Make(t.Context(), kind.Change{Was: spec(nil), Desired: want, Before: a.Before})
	require.ErrorContains(t, err, "static pod")
	require.NoError(t, t.Context().Err())
}

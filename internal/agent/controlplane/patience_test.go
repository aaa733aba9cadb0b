package controlplane

import (
	"context"
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
	rules.Domains[disruption.ControlPlane] = []disruption.Action{{Type: disruption.StaticPodRefresh, Timeout: 2 * time.Hour}}
	want := spec(audit)
	a, err := x.kind.Plan(t.Context(), kind.Question{Was: spec(nil), Known: true, Desired: want, Rules: rules})
	require.NoError(t, err)
	x.Put("/next/kube-apiserver.yaml", x.manifest(apiServer, "--audit-log-path=/var/log/audit"))
	x.Set(func(n *staticpodtest.Node) { n.Lag = 1 << 30 })
	clock := &watched{Impatient: staticpodtest.Impatient{Left: 3}}
	x.kind.host.Clock = clock
	_, err = x.kind.Make(t.Context(), kind.Change{Was: spec(nil), Desired: want, Before: a.Before})
	require.ErrorContains(t, err, "static pod")
	require.NotEmpty(t, clock.until)
	for _, until := range clock.until {
		require.WithinDuration(t, time.Now().Add(2*time.Hour), until, time.Hour, "by the rule")
	}
}

// watched is a clock that notes until when there was time each time that it was waited.
type watched struct {
	staticpodtest.Impatient
	until []time.Time
}

func (c *watched) Wait(ctx context.Context, d time.Duration) error {
	until, _ := ctx.Deadline()
	c.until = append(c.until, until)
	return c.Impatient.Wait(ctx, d)
}

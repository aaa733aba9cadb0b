package nodedisruption

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
)

func probes(all ...refitv1.NodeProbe) edit {
	return func(s *spec) { s.Probes = append(s.Probes, all...) }
}

func TestProbesOfAPolicy(t *testing.T) {
	p := Compile(policy("fleet", probes(
		refitv1.NodeProbe{Name: "exec", Exec: &refitv1.ExecProbe{Command: []string{"check", "-v"}}},
		refitv1.NodeProbe{Name: "http", HTTP: &refitv1.HTTPProbe{URL: "https://a/", CAFile: "/ca.pem", InsecureSkipVerify: true}, Timeout: "5m", Retries: new(int32(0))},
		refitv1.NodeProbe{Name: "node", NodeCondition: &refitv1.NodeConditionProbe{Type: "DiskPressure", Status: "False"}},
		refitv1.NodeProbe{Name: "tcp", TCP: "a:1"},
		refitv1.NodeProbe{Name: "unit", Unit: "a.service"},
	)))
	require.NoError(t, p.Err)
	const preset = 10 * time.Second
	require.Equal(t, []disruption.Probe{
		{Name: "exec", Exec: []string{"check", "-v"}, Timeout: preset, Retries: 2, From: "fleet"},
		{Name: "http", HTTP: &disruption.HTTPProbe{URL: "https://a/", CAFile: "/ca.pem", InsecureSkipVerify: true}, Timeout: 5 * time.Minute, From: "fleet"},
		{Name: "node", Condition: &disruption.ConditionProbe{Type: "DiskPressure", Status: "False"}, Timeout: preset, Retries: 2, From: "fleet"},
		{Name: "tcp", TCP: "a:1", Timeout: preset, Retries: 2, From: "fleet"},
		{Name: "unit", Unit: "a.service", Timeout: preset, Retries: 2, From: "fleet"},
	}, Join(disruption.BuiltinRules(), p).Rules.Probes)
}

func TestProbesThatCanNotBeReadMakeThePolicyInvalid(t *testing.T) {
	many := make([]refitv1.NodeProbe, 21)
	for i := range many {
		many[i] = refitv1.NodeProbe{Name: string(rune('a' + i)), TCP: "a:1"}
	}
	for wrong, list := range map[string][]refitv1.NodeProbe{
		"probes[a]: it asks for one of exec, http, tcp, unit and nodeCondition": {{Name: "a"}},
		"probes[a]: it is there twice":                                          {{Name: "a", TCP: "a:1"}, {Name: "a", TCP: "a:2"}},
		"probes[a].timeout":                                                     {{Name: "a", TCP: "a:1", Timeout: "soon"}},
		"probes[a]: its timeout is 6m0s":                                        {{Name: "a", TCP: "a:1", Timeout: "6m"}},
		"probes: it has 21 entries, of which 20 are allowed":                    many,
		"its command is empty":                                                  {{Name: "a", Exec: &refitv1.ExecProbe{}}},
	} {
		require.ErrorContains(t, Compile(policy("fleet", probes(list...))).Err, wrong)
	}
}

func TestProbesAreShownInTheStatus(t *testing.T) {
	base := &Policies{base: disruption.BuiltinRules()}
	shown := base.effective(Compile(policy("fleet", probes(refitv1.NodeProbe{Name: "db", TCP: "127.0.0.1:5432"}))))
	require.Equal(t, refitv1.EffectiveRule{
		Kind: "Probe", Name: "db", Actions: []string{"connect to 127.0.0.1:5432 (at most 10s, 2 retries)"}, From: "fleet",
	}, shown[len(shown)-1])
}

func TestProbesOfSeveralPoliciesAreLimited(t *testing.T) {
	list := func(name string, n int) *refitv1.NodeDisruptionPolicy {
		var all []refitv1.NodeProbe
		for i := range n {
			all = append(all, refitv1.NodeProbe{Name: fmt.Sprintf("%s-%d", name, i), TCP: "a:1"})
		}
		return policy(name, probes(all...))
	}
	w := newWorld(t, cluster("c1", nil), list("a", 20), list("b", 20))
	require.NoError(t, w.policies.Prime(t.Context()))
	require.Len(t, w.selected(worker).Rules.Probes, disruption.MaxProbes)
	require.NoError(t, w.Create(t.Context(), list("c", 1)))
	require.NoError(t, w.policies.Prime(t.Context()))
	_, err := w.policies.Select(t.Context(), worker)
	var invalid *InvalidError
	require.ErrorAs(t, err, &invalid, "it passes when a policy is corrected, and nothing is replaced until then")
	require.ErrorContains(t, err, "the policies that select the machine (a, b, c) have 41 probes together, of which 40 are allowed")
}

package ntp_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/ntp"
	"github.com/capi-refit/refit/updaters/updatertest"
)

func kubeadm(current, desired string) updatertest.Case {
	return updatertest.Case{
		Object: fieldset.BootstrapConfig, APIVersion: "bootstrap.cluster.x-k8s.io/v1beta2", Kind: "KubeadmConfig",
		Current: current, Desired: desired,
	}
}

func servers(list ...string) string {
	return `{"ntp":{"servers":["` + strings.Join(list, `","`) + `"]}}`
}

const restart = "Restart systemd-timesyncd.service"

// claims are what is said of all changed fields: the actions, or why they are left.
var claims = map[string]struct {
	updatertest.Case
	want string
}{
	"servers that come":                 {kubeadm(`{}`, servers("a.example.com", "10.0.0.1", "2001:db8::1", "under_score", "example.com.")), restart},
	"other servers":                     {kubeadm(servers("a"), servers("b")), restart},
	"servers that go":                   {kubeadm(servers("a"), `{}`), restart},
	"an address in quotes":              {kubeadm(`{}`, servers("'::1'")), restart},
	"switched on":                       {kubeadm(`{}`, `{"ntp":{"enabled":true}}`), "None"},
	"switched off":                      {kubeadm(`{"ntp":{"enabled":true}}`, `{"ntp":{"enabled":false}}`), "None"},
	"switched on by a default":          {kubeadm(`{"ntp":{"enabled":false,"servers":["a"]}}`, servers("a")), "None"},
	"switched on by nothing":            {kubeadm(`{"ntp":{"enabled":false}}`, `{}`), "set ntp.enabled to true instead"},
	"servers of what is off":            {kubeadm(`{"ntp":{"enabled":false,"servers":["a"]}}`, `{"ntp":{"enabled":false,"servers":["b"]}}`), "None"},
	"a server with an underscore first": {kubeadm(`{}`, servers("_a")), "servers[0] is neither a host name"},
	"an empty mapping":                  {kubeadm(`{}`, `{"ntp":{}}`), restart},
	"options of a server":               {kubeadm(`{}`, servers("a iburst")), "servers[0] is neither a host name nor an IP address"},
	"a server on two lines":             {kubeadm(`{}`, servers("a", `b\nc`)), "servers[1] has a line break"},
	"a server that YAML reads as two":   {kubeadm(`{}`, servers("a: b")), "servers[0] is not read as it is written"},
	"an address with a zone":            {kubeadm(`{}`, servers("fe80::1%eth0")), "servers[0] is neither a host name nor an IP address"},
	"an empty server":                   {kubeadm(`{}`, servers("")), "servers[0] is not read as it is written"},
	"a server that is a number":         {kubeadm(`{}`, `{"ntp":{"servers":[1]}}`), "servers[0] is not read as it is written"},
	"servers that are no list":          {kubeadm(`{}`, `{"ntp":{"servers":"a"}}`), "ntp.servers is of another type"},
	"a switch that is no flag":          {kubeadm(`{}`, `{"ntp":{"enabled":"yes"}}`), "ntp.enabled is of another type"},
	"a field of the future":             {kubeadm(`{}`, `{"ntp":{"pools":["a"]}}`), `does not know the field "pools" of ntp`},
	"a field of the future beside":      {kubeadm(`{"ntp":{"pools":["a"]}}`, `{"ntp":{"pools":["a"],"enabled":true}}`), `does not know the field "pools" of ntp`},
	"Ignition":                          {kubeadm(`{"format":"ignition"}`, `{"format":"ignition","ntp":{"enabled":true}}`), "a new machine gets ntpd"},
}

func TestClaim(t *testing.T) {
	for name, tc := range claims {
		t.Run(name, func(t *testing.T) {
			change := tc.Change(t)
			claim, err := ntp.New(disruption.BuiltinRules()).Claim(t.Context(), change)
			require.NoError(t, err)
			require.Len(t, change.Fields(), len(claim.Covered)+len(claim.Left))
			require.True(t, len(claim.Covered) == 0 || len(claim.Left) == 0, "all is claimed, or nothing")
			for _, c := range claim.Covered {
				require.Equal(t, tc.want, c.Actions[0].String())
			}
			for _, l := range claim.Left {
				require.Contains(t, l.Reason, tc.want)
			}
		})
	}
}

func TestStartingReplacesTheRestartOnly(t *testing.T) {
	rules := disruption.BuiltinRules()
	rules.Domains[disruption.NTP] = []disruption.Action{{Type: disruption.Drain}, {Type: disruption.Restart, Unit: disruption.TimeSyncUnit}}
	claim, err := ntp.New(rules).Claim(t.Context(), kubeadm(`{}`, `{"ntp":{"enabled":true,"servers":["a"]}}`).Change(t))
	require.NoError(t, err)
	require.Equal(t, []disruption.Action{{Type: disruption.Drain}}, claim.Covered[0].Actions, "enabled")
	require.Equal(t, rules.Domains[disruption.NTP], claim.Covered[1].Actions, "servers")
}

func TestTheRulesDecide(t *testing.T) {
	rules := disruption.BuiltinRules()
	delete(rules.Domains, disruption.NTP)
	claim, err := ntp.New(rules).Claim(t.Context(), kubeadm(`{}`, servers("a")).Change(t))
	require.NoError(t, err)
	require.Len(t, claim.Left, 1)
	require.Contains(t, claim.Left[0].Reason, "no rule says what a change of NTP takes")
}

func TestConformance(t *testing.T) {
	cases := map[string]updatertest.Case{
		"another field": kubeadm(`{}`, `{"ntpd":true,"users":[{"name":"ntp"}]}`),
		"another kind": {
			Object: fieldset.BootstrapConfig, APIVersion: "bootstrap.example.org/v1", Kind: "OtherConfig", Current: `{}`, Desired: servers("a"),
		},
		"another object": {
			Object: fieldset.InfrastructureMachine, APIVersion: "bootstrap.cluster.x-k8s.io/v1beta2", Kind: "KubeadmConfig",
			Current: `{}`, Desired: servers("a"),
		},
	}
	for name, tc := range claims {
		cases[name] = tc.Case
	}
	updatertest.Conform(t, ntp.New(disruption.BuiltinRules()), cases)
}

func desire(t testing.TB, spec string) []node.Resource {
	v, err := fieldset.Decode([]byte(spec))
	require.NoError(t, err)
	got, err := ntp.New(disruption.BuiltinRules()).Desire(updaters.Desired{
		BootstrapConfig: fieldset.Spec{APIVersion: "bootstrap.cluster.x-k8s.io/v1beta2", Kind: "KubeadmConfig", Value: v},
	})
	require.NoError(t, err)
	return got
}

func TestDesire(t *testing.T) {
	for name, tc := range map[string]struct {
		spec string
		want *node.NTP
	}{
		"nothing":                          {`{}`, nil},
		"an empty mapping":                 {`{"ntp":{}}`, nil},
		"servers switch it on":             {servers("a", "'::1'"), &node.NTP{Enabled: true, Servers: []string{"a", "::1"}}},
		"the node's own servers":           {`{"ntp":{"enabled":true}}`, &node.NTP{Enabled: true}},
		"switched off":                     {`{"ntp":{"enabled":false,"servers":["a"]}}`, &node.NTP{Servers: []string{"a"}}},
		"what is not claimed is no change": {servers("a iburst"), &node.NTP{Enabled: true, Servers: []string{"a iburst"}}},
		"but never more than one line":     {servers(`a\nb`), &node.NTP{Enabled: true}},
		"Ignition":                         {`{"format":"ignition","ntp":{"enabled":true}}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := desire(t, tc.spec)
			if tc.want == nil {
				require.Empty(t, got)
				return
			}
			require.Equal(t, []node.Resource{{NTP: tc.want}}, got)
		})
	}
}

// FuzzServer has any text for a server: what is claimed is one word, and is what is wanted on the node.
func FuzzServer(f *testing.F) {
	for _, seed := range []string{"a", "10.0.0.1", "::1", "'::1'", "a iburst", "a\nb", "{{ a }}", "- a", "fe80::1%eth0", "a..b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, server string) {
		spec, err := json.Marshal(map[string]any{"ntp": map[string]any{"servers": []any{server}}})
		require.NoError(t, err)
		claim, err := ntp.New(disruption.BuiltinRules()).Claim(t.Context(), kubeadm(`{}`, string(spec)).Change(t))
		require.NoError(t, err)
		got := desire(t, string(spec))[0].NTP.Servers
		for _, s := range got {
			require.False(t, strings.ContainsFunc(s, unicode.IsControl), "%q", s)
		}
		if len(claim.Covered) > 0 {
			require.Len(t, got, 1)
			require.NotContains(t, got[0], " ")
			require.NotEmpty(t, got[0])
		}
	})
}

package version_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/updatertest"
	"github.com/capi-refit/refit/updaters/version"
)

// source stands in for a KubernetesSource that has the versions.
type source map[string]bool

func (s source) For(v string) (*node.Source, error) {
	if !s[v] {
		return nil, errors.New("KubernetesSource a does not have it")
	}
	return &node.Source{Name: "a", Version: v}, nil
}

// have finds a source with the versions.
func have(versions ...string) version.Find {
	s := source{}
	for _, v := range versions {
		s[v] = true
	}
	return func(context.Context) (version.Source, error) { return s, nil }
}

func other(context.Context) (version.Source, error) { return version.Foreign, nil }

func none(context.Context) (version.Source, error) { return nil, nil }

// of is a Machine that goes from a version to another; without one it has none.
func of(from, to string) updatertest.Case {
	spec := func(v string) string {
		if v == "" {
			return "{}"
		}
		return fmt.Sprintf(`{"version":%q}`, v)
	}
	return updatertest.Case{
		Object: fieldset.Machine, APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Machine", Current: spec(from), Desired: spec(to),
	}
}

var all = have("v1.36.0", "v1.36.1", "v1.36.3", "v1.37.0", "v1.38.0", "v2.37.0", "v1.36.3+b", "v1.37.0-rc.1", "1.37.0", "v1.37")

// claims are what is said of each change: that it takes a drain, or why it is left.
var claims = map[string]struct {
	updatertest.Case
	find version.Find
	want string
}{
	"a newer patch":                   {of("v1.36.1", "v1.36.3"), all, "Drain"},
	"the next minor":                  {of("v1.36.9", "v1.37.0"), all, "Drain"},
	"from a candidate to its version": {of("v1.37.0-rc.1", "v1.37.0"), all, "Drain"},
	"a candidate of the next minor":   {of("v1.36.3", "v1.37.0-rc.1"), all, "Drain"},
	"a build of a newer patch":        {of("v1.36.1+a", "v1.36.3+b"), all, "Drain"},
	"an older patch":                  {of("v1.36.3", "v1.36.1"), all, "not taken back"},
	"an older minor":                  {of("v1.37.0", "v1.36.3"), all, "not taken back"},
	"from a version to its candidate": {of("v1.37.0", "v1.37.0-rc.1"), all, "not taken back"},
	"a minor is skipped":              {of("v1.36.3", "v1.38.0"), all, "can't skip a minor version"},
	"another major version":           {of("v1.36.3", "v2.37.0"), all, "another major version"},
	"another build":                   {of("v1.36.3+a", "v1.36.3+b"), all, "another build of the same version"},
	"one that is none":                {of("v1.36.3", "v1.37"), all, "the version is not of the form"},
	"one without v":                   {of("v1.36.3", "1.37.0"), all, "the version is not of the form"},
	"from one that is none":           {of("latest", "v1.36.3"), all, "the version that the machine has is not of the form"},
	"from nothing":                    {of("", "v1.36.3"), all, "not said which version the machine has"},
	"to nothing":                      {of("v1.36.3", ""), all, "keeps one"},
	"of another bootstrap provider":   {of("v1.36.1", "v1.36.3"), other, "has no KubeadmConfig"},
	"one that the source lacks":       {of("v1.36.1", "v1.36.2"), all, "KubernetesSource a does not have it"},
	"no source":                       {of("v1.36.1", "v1.36.3"), none, "no KubernetesSource selects the machine"},
}

func TestClaim(t *testing.T) {
	for name, tc := range claims {
		t.Run(name, func(t *testing.T) {
			claim, err := version.New(disruption.BuiltinRules(), tc.find).Claim(t.Context(), tc.Change(t))
			require.NoError(t, err)
			if tc.want == "Drain" {
				require.Empty(t, claim.Left)
				require.Len(t, claim.Covered, 1)
				require.Equal(t, "spec.version", claim.Covered[0].Field.String())
				require.Equal(t, []disruption.Action{{Type: disruption.Drain}}, claim.Covered[0].Actions)
				return
			}
			require.Empty(t, claim.Covered)
			require.Len(t, claim.Left, 1)
			require.Contains(t, claim.Left[0].Reason, tc.want)
		})
	}
}

func TestConformance(t *testing.T) {
	cases := map[string]updatertest.Case{
		"another field":      {Object: fieldset.Machine, APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Machine", Current: `{}`, Desired: `{"failureDomain":"a"}`},
		"another object":     {Object: fieldset.BootstrapConfig, APIVersion: "bootstrap.cluster.x-k8s.io/v1beta2", Kind: "KubeadmConfig", Current: `{}`, Desired: `{"version":"v1.36.3"}`},
		"no spec":            {Object: fieldset.Machine, APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Machine", Current: `{"version":"v1.36.1"}`, Desired: `null`},
		"a number":           {Object: fieldset.Machine, APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Machine", Current: `{"version":1}`, Desired: `{"version":2}`},
		"something below it": {Object: fieldset.Machine, APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Machine", Current: `{"version":{"a":1}}`, Desired: `{"version":{"a":2}}`},
	}
	for name, tc := range claims {
		cases[name] = tc.Case
	}
	updatertest.Conform(t, version.New(disruption.BuiltinRules(), all), cases)
}

func TestWhatIsNotKnownIsNeverANo(t *testing.T) {
	change := of("v1.36.1", "v1.36.3").Change(t)
	unread := errors.New("the KubernetesSources have not been read yet")
	u := version.New(disruption.BuiltinRules(), func(context.Context) (version.Source, error) { return nil, unread })
	claim, err := u.Claim(t.Context(), change)
	require.ErrorIs(t, err, unread)
	require.Empty(t, claim)
	_, err = version.New(disruption.BuiltinRules(), nil).Claim(t.Context(), change)
	require.ErrorContains(t, err, "was not asked")
}

func TestASourceIsAskedOnlyWhenItMatters(t *testing.T) {
	asked := func(context.Context) (version.Source, error) {
		return nil, errors.New("it was asked")
	}
	zone := updatertest.Case{
		Object: fieldset.Machine, APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Machine", Current: `{"version":"v1.36.1"}`, Desired: `{"version":"v1.36.1","failureDomain":"a"}`,
	}
	for name, c := range map[string]updatertest.Case{"another field": zone, "a step back": of("v1.36.3", "v1.36.1")} {
		t.Run(name, func(t *testing.T) {
			_, err := version.New(disruption.BuiltinRules(), asked).Claim(t.Context(), c.Change(t))
			require.NoError(t, err)
		})
	}
}

func TestRulesOfAnOperator(t *testing.T) {
	rules := disruption.BuiltinRules()
	rules.Domains = maps.Clone(rules.Domains)
	change := of("v1.36.1", "v1.36.3").Change(t)
	rules.Domains[disruption.KubernetesVersion] = []disruption.Action{{Type: disruption.Reboot}}
	claim, err := version.New(rules, all).Claim(t.Context(), change)
	require.NoError(t, err)
	require.Equal(t, []disruption.Action{{Type: disruption.Reboot}}, claim.Covered[0].Actions)
	rules.Domains[disruption.KubernetesVersion] = []disruption.Action{{Type: disruption.Replace}}
	claim, err = version.New(rules, all).Claim(t.Context(), change)
	require.NoError(t, err)
	require.Contains(t, claim.Left[0].Reason, "says Replace")
}

func spec(t *testing.T, apiVersion, kind, text string) fieldset.Spec {
	v, err := fieldset.Decode([]byte(text))
	require.NoError(t, err)
	return fieldset.Spec{APIVersion: apiVersion, Kind: kind, Value: v}
}

func desired(t *testing.T, machine, config string) updaters.Desired {
	return updaters.Desired{
		Machine:         spec(t, "cluster.x-k8s.io/v1beta2", "Machine", machine),
		BootstrapConfig: spec(t, "bootstrap.cluster.x-k8s.io/v1beta2", "KubeadmConfig", config),
	}
}

func TestDesire(t *testing.T) {
	const machine = `{"version":"v1.36.3"}`
	for name, tc := range map[string]struct {
		machine, config string
		want            *node.Version
	}{
		"nothing but a version": {machine, `{}`, &node.Version{Kubernetes: "v1.36.3"}},
		"no version":            {`{}`, `{}`, nil},
		"what kubeadm is told when a machine joins": {
			machine,
			`{"joinConfiguration":{"patches":{"directory":"/etc/patches"},"nodeRegistration":{"ignorePreflightErrors":["Swap","Mem"]}},
			  "initConfiguration":{"nodeRegistration":{"ignorePreflightErrors":["all"]}}}`,
			&node.Version{Kubernetes: "v1.36.3", IgnorePreflightErrors: []string{"Swap", "Mem"}, PatchesDirectory: "/etc/patches"},
		},
		"what kubeadm was told for the first machine": {
			machine, `{"initConfiguration":{"patches":{"directory":"/p"},"nodeRegistration":{"ignorePreflightErrors":["Swap"]}}}`,
			&node.Version{Kubernetes: "v1.36.3", IgnorePreflightErrors: []string{"Swap"}, PatchesDirectory: "/p"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := version.New(disruption.BuiltinRules(), nil).Desire(desired(t, tc.machine, tc.config))
			require.NoError(t, err)
			if tc.want == nil {
				require.Empty(t, got)
				return
			}
			require.Equal(t, []node.Resource{{Version: tc.want}}, got)
		})
	}
}

func TestDesireOfAnotherKind(t *testing.T) {
	d := desired(t, `{"version":"v1.36.3"}`, `{}`)
	d.BootstrapConfig.Kind = "RKE2Config"
	got, err := version.New(disruption.BuiltinRules(), nil).Desire(d)
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestDesireOfWhatIsNotOfTheForm(t *testing.T) {
	for name, list := range map[string]string{"a text": `"all"`, "numbers": `[1]`} {
		t.Run(name, func(t *testing.T) {
			_, err := version.New(disruption.BuiltinRules(), nil).Desire(
				desired(t, `{"version":"v1.36.3"}`, `{"joinConfiguration":{"nodeRegistration":{"ignorePreflightErrors":`+list+`}}}`))
			require.ErrorContains(t, err, "joinConfiguration.nodeRegistration.ignorePreflightErrors: it is not a list")
		})
	}
}

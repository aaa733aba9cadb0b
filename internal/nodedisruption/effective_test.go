package nodedisruption

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/updaters/declared"
)

type these = []*refitv1.NodeDisruptionPolicy

func drift(d refitv1.OnDrift) edit { return func(s *spec) { s.Drift = d } }

func future(f refitv1.FutureOnly) edit { return func(s *spec) { s.FutureOnlyFields = f } }

// actionsOf are those of a path, or why there are none, in words.
func actionsOf(e Effective, path string) (out []string) {
	actions, err := e.Rules.Actions(path)
	if err != nil {
		return []string{err.Error()}
	}
	for _, a := range actions {
		out = append(out, a.String())
	}
	return out
}

func TestWithoutPolicies(t *testing.T) {
	e := Join(disruption.BuiltinRules())
	require.Equal(t, refitv1.ReportDrift, e.Drift)
	require.False(t, e.FutureOnly)
	require.Empty(t, e.Inert)
	require.Empty(t, e.Policies)
	require.Equal(t, []string{"None"}, actionsOf(e, "/etc/motd"))
}

func TestRulesOfPolicies(t *testing.T) {
	allowed, err := disruption.AllowPaths([]string{"/etc/app"})
	require.NoError(t, err)
	base := disruption.BuiltinRules()
	base.Files = append(base.Files, allowed...)
	for name, tc := range map[string]struct {
		policies these
		path     string
		want     []string
	}{
		"one adds to what is built in":       {these{policy("a", file("/opt/x", act(refitv1.NoDisruption)))}, "/opt/x/y", []string{"None"}},
		"one replaces what is built in":      {these{policy("a", file("/etc/motd", act(refitv1.DrainDisruption)))}, "/etc/motd", []string{"Drain"}},
		"one replaces what a flag allows":    {these{policy("a", file("/etc/app", act(refitv1.DrainDisruption)))}, "/etc/app/x", []string{"Drain"}},
		"another entry leaves it":            {these{policy("a", file("/etc/app", act(refitv1.DrainDisruption)))}, "/etc/motd", []string{"None"}},
		"one that is longer wins":            {these{policy("a", file("/etc/containerd/certs.d/a", act(refitv1.DrainDisruption)))}, "/etc/containerd/certs.d/a/b", []string{"Drain"}},
		"one that is shorter does not":       {these{policy("a", file("/etc/containerd", act(refitv1.DrainDisruption)))}, "/etc/containerd/certs.d/a/b", []string{"None"}},
		"two for one path are joined":        {these{policy("a", file("/opt/x", act(refitv1.DrainDisruption))), policy("b", file("/opt/x", act(refitv1.RestartDisruption, "x.service")))}, "/opt/x", []string{"Drain", "Restart x.service"}},
		"the worse of two wins":              {these{policy("a", file("/opt/x", act(refitv1.RebootDisruption))), policy("b", file("/opt/x", act(refitv1.NoDisruption)))}, "/opt/x", []string{"Reboot"}},
		"one takes back what is built in":    {these{policy("a", file("/etc/motd", act(refitv1.ReplaceDisruption)))}, "/etc/motd", []string{"a change of /etc/motd is not made in place: NodeDisruptionPolicy a says Replace"}},
		"one takes back what another allows": {these{policy("a", file("/opt/x", act(refitv1.NoDisruption))), policy("b", file("/opt/x", act(refitv1.ReplaceDisruption)))}, "/opt/x", []string{"a change of /opt/x is not made in place: NodeDisruptionPolicy a, b says Replace"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := Join(base, compiled(tc.policies...)...)
			require.Equal(t, tc.want, actionsOf(e, tc.path))
		})
	}
}

func TestDomainsOfPolicies(t *testing.T) {
	e := Join(disruption.BuiltinRules(), compiled(policy("a", func(s *spec) {
		drains, replaces := takes(act(refitv1.DrainDisruption)), takes(act(refitv1.ReplaceDisruption))
		nothing := takes(act(refitv1.NoDisruption))
		s.KubeletArguments, s.Taints, s.KubernetesVersion = &drains, &replaces, &nothing
	}))...)
	actions, err := e.Rules.Domain(disruption.KubeletArguments)
	require.NoError(t, err)
	require.Equal(t, []disruption.Action{{Type: disruption.Drain}}, actions)
	actions, err = e.Rules.Domain(disruption.KubernetesVersion)
	require.NoError(t, err)
	require.Equal(t, []disruption.Action{{Type: disruption.None}}, actions, "whoever does not want a drain says so")
	_, err = e.Rules.Domain(disruption.Taints)
	require.ErrorContains(t, err, "says Replace")
	actions, err = e.Rules.Domain(disruption.SSHKeys)
	require.NoError(t, err)
	require.Equal(t, []disruption.Action{{Type: disruption.None}}, actions, "what is not named is as it is built in")
}

func TestUnitsAndTimeoutsOfPolicies(t *testing.T) {
	timed := func(timeout refitv1.DisruptionTimeout, a refitv1.DisruptionAction) refitv1.DisruptionAction {
		a.Timeout = timeout
		return a
	}
	restart := act(refitv1.RestartDisruption, "a.service")
	e := Join(disruption.BuiltinRules(), compiled(
		policy("a", func(s *spec) {
			d := takes(restart, timed("20s", act(refitv1.DrainDisruption)))
			d.Timeout = "1m"
			s.Units = []refitv1.UnitDisruption{{Name: "a.service", Disruption: d}}
			quick := takes(act(refitv1.NoDisruption))
			quick.Timeout = "1m"
			s.NTP = &quick
		}),
		policy("b", unit("a.service", timed("90s", restart))))...)
	actions, err := e.Rules.Actions("/etc/systemd/system/a.service.d/x.conf")
	require.NoError(t, err)
	require.Equal(t, []disruption.Action{
		{Type: disruption.Drain, Timeout: 20 * time.Second}, {Type: disruption.DaemonReload}, {Type: disruption.Restart, Unit: "a.service", Timeout: 90 * time.Second},
	}, actions)
	actions, err = e.Rules.Domain(disruption.NTP)
	require.NoError(t, err)
	require.Equal(t, []disruption.Action{{Type: disruption.None}}, actions, "what takes nothing takes no time")
}

func TestSoakByPolicies(t *testing.T) {
	base := disruption.BuiltinRules()
	base.Soak = new(30 * time.Second)
	for name, tc := range map[string]struct {
		policies these
		want     time.Duration
	}{
		"nobody says":        {these{policy("a")}, 30 * time.Second},
		"less than by flag":  {these{policy("a"), policy("b", soak("10s"))}, 10 * time.Second},
		"none":               {these{policy("a", soak("0s"))}, 0},
		"the longest counts": {these{policy("a", soak("5m")), policy("b", soak("0s"))}, 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, *Join(base, compiled(tc.policies...)...).Rules.Soak)
		})
	}
}

func TestFailuresByPolicies(t *testing.T) {
	on := func(f refitv1.OnFailure) edit { return func(s *spec) { s.OnFailure = f } }
	for name, tc := range map[string]struct {
		policies these
		want     disruption.OnFailure
	}{
		"nobody says":                   {these{policy("a")}, ""},
		"one says":                      {these{policy("a"), policy("b", on(refitv1.RebootOnFailure))}, disruption.RebootOnFailure},
		"Rollback comes before Reboot":  {these{policy("a", on(refitv1.RollbackOnFailure)), policy("b", on(refitv1.RebootOnFailure))}, disruption.RollbackOnFailure},
		"Stop comes before all of them": {these{policy("a", on(refitv1.StopOnFailure)), policy("b", on(refitv1.RollbackOnFailure))}, disruption.StopOnFailure},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, Join(disruption.BuiltinRules(), compiled(tc.policies...)...).Rules.OnFailure)
		})
	}
}

func TestHowLongALoginIsAwaitedByPolicies(t *testing.T) {
	within := func(d refitv1.ConfirmTimeout) edit { return func(s *spec) { s.ConfirmWithin = d } }
	for name, tc := range map[string]struct {
		policies these
		want     time.Duration
	}{
		"nobody says":         {these{policy("a")}, 0},
		"one says":            {these{policy("a"), policy("b", within("5m"))}, 5 * time.Minute},
		"the shortest counts": {these{policy("a", within("5m")), policy("b", within("45s")), policy("c", within("1h"))}, 45 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, Join(disruption.BuiltinRules(), compiled(tc.policies...)...).Rules.ConfirmWithin)
		})
	}
	for _, wrong := range []refitv1.ConfirmTimeout{"29s", "61m", "soon", "-1m"} {
		require.ErrorContains(t, Compile(policy("a", within(wrong))).Err, "confirmWithin", wrong)
	}
}

func TestAnswersOfPolicies(t *testing.T) {
	for name, tc := range map[string]struct {
		policies these
		drift    refitv1.OnDrift
		future   bool
	}{
		"nothing said":                {these{policy("a")}, refitv1.ReportDrift, false},
		"one says":                    {these{policy("a", drift(refitv1.RepairDrift), future(refitv1.AllowFutureOnly))}, refitv1.RepairDrift, true},
		"another that says nothing":   {these{policy("a", drift(refitv1.RepairDrift), future(refitv1.AllowFutureOnly)), policy("b")}, refitv1.RepairDrift, true},
		"Repair comes before Report":  {these{policy("a", drift(refitv1.RepairDrift)), policy("b", drift(refitv1.ReportDrift))}, refitv1.RepairDrift, false},
		"Refuse comes before both":    {these{policy("a", drift(refitv1.RepairDrift)), policy("b", drift(refitv1.RefuseDrift)), policy("c", drift(refitv1.ReportDrift))}, refitv1.RefuseDrift, false},
		"Never comes before Allow":    {these{policy("a", future(refitv1.AllowFutureOnly)), policy("b", future(refitv1.NeverFutureOnly))}, refitv1.ReportDrift, false},
		"Allow twice is no less than": {these{policy("a", future(refitv1.AllowFutureOnly)), policy("b", future(refitv1.AllowFutureOnly))}, refitv1.ReportDrift, true},
	} {
		t.Run(name, func(t *testing.T) {
			e := Join(disruption.BuiltinRules(), compiled(tc.policies...)...)
			require.Equal(t, tc.drift, e.Drift)
			require.Equal(t, tc.future, e.FutureOnly)
		})
	}
}

func TestInertFieldsAddUp(t *testing.T) {
	e := Join(disruption.BuiltinRules(), compiled(
		policy("b", inert("x.io", "B", "two", "one"), inert("x.io", "A", "three")),
		policy("a", inert("x.io", "B", "one"), inert("a.io", "B", "four")))...)
	require.Equal(t, []declared.Field{
		{Group: "a.io", Kind: "B", Paths: []string{"four"}},
		{Group: "x.io", Kind: "A", Paths: []string{"three"}},
		{Group: "x.io", Kind: "B", Paths: []string{"one", "two"}},
	}, e.Inert)
}

// anyPolicy draws a policy that is valid and meets others in its entries.
func anyPolicy(name string) *rapid.Generator[*refitv1.NodeDisruptionPolicy] {
	one := rapid.SampledFrom([]refitv1.DisruptionAction{
		act(refitv1.NoDisruption), act(refitv1.DrainDisruption), act(refitv1.RebootDisruption), act(refitv1.ReplaceDisruption),
		act(refitv1.ReloadDisruption, "a.service"), act(refitv1.RestartDisruption, "a.service"), act(refitv1.RestartDisruption, "b.service"),
		{Type: refitv1.RestartDisruption, Unit: "a.service", Timeout: "90s"}, {Type: refitv1.DrainDisruption, Timeout: "5m"},
	})
	return rapid.Custom(func(t *rapid.T) *refitv1.NodeDisruptionPolicy {
		p := policy(name)
		for _, path := range []string{"/etc/motd", "/opt/a", "/opt/a/b"} {
			if rapid.Bool().Draw(t, path) {
				file(path, one.Draw(t, "of "+path))(&p.Spec)
			}
		}
		for _, unit := range []string{"a.service", "kubelet.service"} {
			if rapid.Bool().Draw(t, unit) {
				d := takes(one.Draw(t, "of "+unit))
				d.Unsafe = true
				p.Spec.Units = append(p.Spec.Units, refitv1.UnitDisruption{Name: unit, Disruption: d})
			}
		}
		if rapid.Bool().Draw(t, "users") {
			d := takes(one.Draw(t, "of users"))
			p.Spec.Users = &d
		}
		p.Spec.ConfirmWithin = rapid.SampledFrom([]refitv1.ConfirmTimeout{"", "30s", "2m", "1h"}).Draw(t, "login")
		p.Spec.Drift = rapid.SampledFrom([]refitv1.OnDrift{"", refitv1.ReportDrift, refitv1.RepairDrift, refitv1.RefuseDrift}).Draw(t, "drift")
		p.Spec.OnFailure = rapid.SampledFrom([]refitv1.OnFailure{"", refitv1.StopOnFailure, refitv1.RollbackOnFailure, refitv1.RebootOnFailure}).Draw(t, "failure")
		p.Spec.Soak = rapid.SampledFrom([]refitv1.SoakDuration{"", "0s", "90s"}).Draw(t, "soak")
		p.Spec.FutureOnlyFields = rapid.SampledFrom([]refitv1.FutureOnly{"", refitv1.NeverFutureOnly, refitv1.AllowFutureOnly}).Draw(t, "future")
		for _, path := range rapid.SliceOfN(rapid.SampledFrom([]string{"tags", "zone"}), 0, 2).Draw(t, "inert") {
			inert("x.io", "A", path)(&p.Spec)
		}
		return p
	})
}

func TestTheOrderOfPoliciesDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []*refitv1.NodeDisruptionPolicy
		for _, name := range []string{"a", "b", "c"}[:rapid.IntRange(2, 3).Draw(t, "policies")] {
			all = append(all, anyPolicy(name).Draw(t, name))
		}
		policies := compiled(all...)
		for _, p := range policies {
			if p.Err != nil {
				t.Fatalf("policy %s: %v", p.Name, p.Err)
			}
		}
		want := Join(disruption.BuiltinRules(), policies...)
		shuffled := rapid.Permutation(policies).Draw(t, "order")
		require.Equal(t, want, Join(disruption.BuiltinRules(), shuffled...))
		require.Equal(t, []string{"a", "b", "c"}[:len(all)], want.Policies)
		require.True(t, slices.IsSorted(want.Policies))
	})
}

package nodedisruption

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

func unit(name string, actions ...refitv1.DisruptionAction) edit {
	return func(s *spec) {
		s.Units = append(s.Units, refitv1.UnitDisruption{Name: name, Disruption: takes(actions...)})
	}
}

func within(timeout refitv1.DisruptionTimeout, actions ...refitv1.DisruptionAction) edit {
	return func(s *spec) {
		d := takes(actions...)
		d.Timeout = timeout
		s.NTP = &d
	}
}

// What a CRD of another version may accept.
func TestWhatCanNotBeRead(t *testing.T) {
	none, restart := act(refitv1.NoDisruption), act(refitv1.RestartDisruption, "a.service")
	eleven := make([]refitv1.DisruptionAction, 11)
	for i := range eleven {
		eleven[i] = act(refitv1.RestartDisruption, fmt.Sprintf("a%d.service", i))
	}
	for name, tc := range map[string]struct {
		edit edit
		want string
	}{
		"all is well":                     {file("/etc/app", restart), ""},
		"nothing is said":                 {func(*spec) {}, ""},
		"a timeout":                       {within("90s", restart), ""},
		"a path that is not clean":        {file("/etc//app", none), `files[/etc//app]: path "/etc//app" is not clean`},
		"a path that is not absolute":     {file("etc", none), "is not absolute"},
		"a path twice":                    {func(s *spec) { file("/a", none)(s); file("/a", restart)(s) }, "files[/a]: it is there twice"},
		"a unit twice":                    {func(s *spec) { unit("a.service", none)(s); unit("a.service", restart)(s) }, "units[a.service]: it is there twice"},
		"a unit that is none":             {unit(".service", none), `units[.service]: ".service" is not the name of a systemd unit`},
		"no action":                       {file("/a"), "files[/a].actions: it is empty"},
		"None beside another":             {file("/a", none, restart), "stands alone"},
		"Reboot beside another":           {file("/a", restart, act(refitv1.RebootDisruption)), "stands alone"},
		"Replace beside another":          {file("/a", restart, act(refitv1.ReplaceDisruption)), "stands alone"},
		"too many actions":                {file("/a", eleven...), "it has 11 entries, of which 10 are allowed"},
		"a Reload without a unit":         {file("/a", act(refitv1.ReloadDisruption)), "is not the name of a systemd unit"},
		"a Drain of a unit":               {file("/a", act(refitv1.DrainDisruption, "a.service")), "takes no unit"},
		"an action that is not known":     {file("/a", act("Explode")), `unknown action "Explode"`},
		"the end of the system":           {file("/a", act(refitv1.RestartDisruption, "poweroff.target")), "files[/a].actions: unit poweroff.target can't be named"},
		"of a unit, the same":             {unit("a.service", act(refitv1.ReloadDisruption, "reboot.target")), "units[a.service].actions: unit reboot.target can't be named"},
		"a unit that nothing is done to":  {unit("reboot.target", none), ""},
		"a domain, the same":              {within("", act("Explode")), "ntp.actions: "},
		"a timeout that is none":          {within("soon", restart), "ntp.timeout: "},
		"a timeout of nothing":            {within("0s", restart), "ntp.timeout: "},
		"a timeout of more than an hour":  {within("61m", restart), "ntp.timeout: "},
		"the timeout of an action":        {within("", refitv1.DisruptionAction{Type: refitv1.DrainDisruption, Timeout: "2h"}), "ntp.actions[0].timeout: "},
		"an answer to failures, mistyped": {func(s *spec) { s.OnFailure = "Rolback" }, `onFailure: "Rolback" is not known`},
		"an answer to drift, mistyped":    {drift("Ignore"), `drift: "Ignore" is not known`},
		"a soak":                          {soak("5m"), ""},
		"no soak":                         {soak("0s"), ""},
		"a soak that is none":             {soak("long"), `soak: "long" is not a duration`},
		"a soak of more than an hour":     {soak("61m"), `soak: "61m" is not between 0s and 1h0m0s`},
		"a soak of less than nothing":     {soak("-1s"), `soak: "-1s" is not between`},
		"future-only, mistyped":           {future("Always"), `futureOnlyFields: "Always" is not known`},
		"a selector that can't be read": {func(s *spec) {
			s.Selector.Machines.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}
		}, "selector.machines: "},
		"a role that is not known": {roles("Master"), "selector.roles: "},
		"more entries than are allowed": {func(s *spec) {
			for i := range 51 {
				file(fmt.Sprintf("/a/%d", i), none)(s)
			}
		}, "files: it has 51 entries, of which 50 are allowed"},
		"what stands for the unit changed": {file("/a", act(refitv1.RestartDisruption, "*")), "is not the name of a systemd unit"},
	} {
		t.Run(name, func(t *testing.T) {
			p := Compile(policy("a", tc.edit))
			if tc.want == "" {
				require.NoError(t, p.Err)
				return
			}
			require.ErrorContains(t, p.Err, tc.want)
		})
	}
}

func soak(d refitv1.SoakDuration) edit { return func(s *spec) { s.Soak = d } }

func TestAllThatIsWrongIsSaidAtOnce(t *testing.T) {
	p := Compile(policy("a", file("/a"), drift("Ignore"), roles("Master")))
	require.Len(t, strings.Split(p.Err.Error(), "\n"), 3)
}

func TestAPolicyThatWasReadDoesNotChange(t *testing.T) {
	source := policy("a", inert("x.io", "A", "tags"), drift(refitv1.RepairDrift))
	p := Compile(source)
	source.Spec.InertFields[0].Paths[0], source.Spec.Drift = "other", refitv1.RefuseDrift
	require.Equal(t, "tags", p.spec.InertFields[0].Paths[0])
	require.Equal(t, refitv1.RepairDrift, p.spec.Drift)
}

package disruption

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// policy returns a policy that says what changes of files take.
func policy(name string, files map[string][]Action) PolicyRules {
	p := PolicyRules{Name: name}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		p.Rules.Files = append(p.Rules.Files, Rule{Path: path, Actions: files[path]})
	}
	return p
}

// units returns a policy that says what changes of units take.
func units(name string, units map[string][]Action) PolicyRules {
	p := PolicyRules{Name: name}
	for _, unit := range slices.Sorted(maps.Keys(units)) {
		p.Rules.Units = append(p.Rules.Units, UnitRule{Name: unit, Actions: units[unit]})
	}
	return p
}

func TestOverride(t *testing.T) {
	restart := func(unit string) []Action { return []Action{action(Restart, unit)} }
	for name, tc := range map[string]struct {
		policies   []PolicyRules
		path, want string
	}{
		"without policies all is as it is built in":  {nil, "/etc/crio/policies/a.json", "[Reload crio.service]"},
		"what a policy does not name is built in":    {[]PolicyRules{policy("p", map[string][]Action{"/opt": restart("a.service")})}, "/etc/crio/policies/a.json", "[Reload crio.service]"},
		"an entry replaces the one that is built in": {[]PolicyRules{policy("p", map[string][]Action{"/etc/containerd/config.toml": restart("containerd.service")})}, "/etc/containerd/config.toml", "[Restart containerd.service]"},
		"also by less": {[]PolicyRules{policy("p", map[string][]Action{"/etc/sysctl.d": {action(None)}})}, "/etc/sysctl.d/a.conf", "[None]"},
		"also by Replace, and the policy is named":      {[]PolicyRules{policy("strict", map[string][]Action{"/etc/motd": {action(Replace)}})}, "/etc/motd", "a change of /etc/motd is not made in place: NodeDisruptionPolicy strict says Replace"},
		"a longer path that is built in still counts":   {[]PolicyRules{policy("p", map[string][]Action{"/etc": {action(Reboot)}})}, "/etc/motd", "[None]"},
		"a wide path has the rest":                      {[]PolicyRules{policy("p", map[string][]Action{"/etc": {action(Reboot)}})}, "/etc/fstab", "[Reboot]"},
		"two policies that name one path are merged":    {[]PolicyRules{policy("p", map[string][]Action{"/opt": restart("a.service")}), policy("q", map[string][]Action{"/opt": {action(Drain), action(Reload, "a.service")}})}, "/opt/x", "[Drain Restart a.service]"},
		"of two the one with Replace wins, both named":  {[]PolicyRules{policy("q", map[string][]Action{"/opt": {action(Replace)}}), policy("p", map[string][]Action{"/opt": {action(None)}})}, "/opt/x", "a change of /opt/x is not made in place: NodeDisruptionPolicy p, q says Replace"},
		"a policy that names a longer path is no other": {[]PolicyRules{policy("p", map[string][]Action{"/opt": {action(Reboot)}}), policy("q", map[string][]Action{"/opt/x": {action(None)}})}, "/opt/x/y", "[None]"},

		"a unit":                                    {[]PolicyRules{units("p", map[string][]Action{"a.service": {action(Drain), action(Restart, "b.service")}})}, "/etc/systemd/system/a.service", "[Drain DaemonReload Restart b.service]"},
		"its drop-ins":                              {[]PolicyRules{units("p", map[string][]Action{"a.service": {action(Reload, "a.service")}})}, "/etc/systemd/system/a.service.d/x.conf", "[DaemonReload Reload a.service]"},
		"the name of a unit is matched exactly":     {[]PolicyRules{units("p", map[string][]Action{"a.service": {action(Reboot)}})}, "/etc/systemd/system/aa.service", "[DaemonReload Restart aa.service]"},
		"systemd reads its files even for None":     {[]PolicyRules{units("p", map[string][]Action{"a.service": {action(None)}})}, "/etc/systemd/system/a.service", "[DaemonReload]"},
		"a reboot includes that":                    {[]PolicyRules{units("p", map[string][]Action{"a.service": {action(Reboot)}})}, "/etc/systemd/system/a.service", "[Reboot]"},
		"a unit that is replaced":                   {[]PolicyRules{units("p", map[string][]Action{"a.service": {action(Replace)}})}, "/etc/systemd/system/a.service", "a change of /etc/systemd/system/a.service is not made in place: NodeDisruptionPolicy p says Replace"},
		"units of two policies are merged":          {[]PolicyRules{units("p", map[string][]Action{"a.service": {action(None)}}), units("q", map[string][]Action{"a.service": {action(Drain)}})}, "/etc/systemd/system/a.service", "[Drain DaemonReload]"},
		"a file of the same unit counts instead":    {[]PolicyRules{units("p", map[string][]Action{"a.service": {action(Reboot)}}), policy("q", map[string][]Action{"/etc/systemd/system/a.service": restart("b.service")})}, "/etc/systemd/system/a.service", "[DaemonReload Restart b.service]"},
		"so does one of its drop-ins":               {[]PolicyRules{units("p", map[string][]Action{"a.service": {action(Reboot)}}), policy("q", map[string][]Action{"/etc/systemd/system/a.service.d/x.conf": {action(None)}})}, "/etc/systemd/system/a.service.d/x.conf", "[None]"},
		"but for that drop-in only":                 {[]PolicyRules{units("p", map[string][]Action{"a.service": {action(Reboot)}}), policy("q", map[string][]Action{"/etc/systemd/system/a.service.d/x.conf": {action(None)}})}, "/etc/systemd/system/a.service.d/y.conf", "[Reboot]"},
		"a wide path does not count for a unit":     {[]PolicyRules{units("p", map[string][]Action{"a.service": {action(Reboot)}}), policy("q", map[string][]Action{"/etc/systemd/system": {action(None)}})}, "/etc/systemd/system/a.service", "[Reboot]"},
		"and has systemd read what it restarts":     {[]PolicyRules{policy("q", map[string][]Action{"/etc/systemd": restart("b.service")}), policy("q", map[string][]Action{"/etc/systemd/system": restart("b.service")})}, "/etc/systemd/system/a.service", "[DaemonReload Restart b.service]"},
		"what is no unit has nothing systemd reads": {[]PolicyRules{policy("q", map[string][]Action{"/etc/systemd/system": restart("b.service")})}, "/etc/systemd/system/a.txt", "[Restart b.service]"},
	} {
		t.Run(name, func(t *testing.T) {
			actions, err := Override(BuiltinRules(), tc.policies...).Actions(tc.path)
			if err != nil {
				require.Equal(t, tc.want, err.Error())
				return
			}
			require.Equal(t, tc.want, fmt.Sprint(actions))
		})
	}
}

func TestOverrideDomains(t *testing.T) {
	says := func(name string, actions ...Action) PolicyRules {
		return PolicyRules{Name: name, Rules: Rules{Domains: map[Domain][]Action{NTP: actions}}}
	}
	rules := Override(BuiltinRules(), says("p", action(Drain)), says("q", action(None)))
	actions, err := rules.Domain(NTP)
	require.NoError(t, err)
	require.Equal(t, []Action{action(Drain)}, actions)
	actions, err = rules.Domain(KubeletArguments)
	require.NoError(t, err)
	require.Equal(t, []Action{action(Restart, "kubelet.service")}, actions, "what no policy names is built in")
	_, err = Override(BuiltinRules(), says("strict", action(Replace))).Domain(NTP)
	require.EqualError(t, err, "a change of NTP is not made in place: NodeDisruptionPolicy strict says Replace")
	_, err = Override(BuiltinRules(), says("empty")).Domain(NTP)
	require.Error(t, err, "what takes nothing takes None")
	_, err = Override(Rules{}).Domain(NTP)
	require.EqualError(t, err, "no rule says what a change of NTP takes on a node")
}

func TestOverrideOnFailure(t *testing.T) {
	for name, tc := range map[string]struct {
		base OnFailure
		said []OnFailure
		want OnFailure
	}{
		"nobody says":                      {"", []OnFailure{"", ""}, ""},
		"one says":                         {"", []OnFailure{"", RebootOnFailure}, RebootOnFailure},
		"a policy replaces what was said":  {StopOnFailure, []OnFailure{RebootOnFailure}, RebootOnFailure},
		"one that says nothing does not":   {StopOnFailure, []OnFailure{""}, StopOnFailure},
		"Rollback comes before Reboot":     {"", []OnFailure{RollbackOnFailure, RebootOnFailure}, RollbackOnFailure},
		"Stop comes before Rollback":       {"", []OnFailure{StopOnFailure, RollbackOnFailure}, StopOnFailure},
		"what is not known does nothing":   {"", []OnFailure{RebootOnFailure, "Explode"}, StopOnFailure},
		"Stop comes before all the others": {"", []OnFailure{RebootOnFailure, StopOnFailure, RollbackOnFailure}, StopOnFailure},
	} {
		t.Run(name, func(t *testing.T) {
			var policies []PolicyRules
			for _, f := range tc.said {
				policies = append(policies, PolicyRules{Name: string(f), Rules: Rules{OnFailure: f}})
			}
			require.Equal(t, tc.want, Override(Rules{OnFailure: tc.base}, policies...).OnFailure)
			slices.Reverse(policies)
			require.Equal(t, tc.want, Override(Rules{OnFailure: tc.base}, policies...).OnFailure)
		})
	}
}

func TestOverrideSoak(t *testing.T) {
	const short, long = 10 * time.Second, 5 * time.Minute
	for name, tc := range map[string]struct {
		base, want *time.Duration
		said       []*time.Duration
	}{
		"nobody says":                        {said: []*time.Duration{nil}},
		"the base does":                      {base: new(short), said: []*time.Duration{nil, nil}, want: new(short)},
		"a policy replaces what the base is": {base: new(long), said: []*time.Duration{nil, new(short)}, want: new(short)},
		"also by nothing":                    {base: new(long), said: []*time.Duration{new(time.Duration(0))}, want: new(time.Duration(0))},
		"the longest counts":                 {base: new(short), said: []*time.Duration{new(long), new(time.Duration(0)), new(short)}, want: new(long)},
	} {
		t.Run(name, func(t *testing.T) {
			var policies []PolicyRules
			for _, d := range tc.said {
				policies = append(policies, PolicyRules{Rules: Rules{Soak: d}})
			}
			require.Equal(t, tc.want, Override(Rules{Soak: tc.base}, policies...).Soak)
			slices.Reverse(policies)
			require.Equal(t, tc.want, Override(Rules{Soak: tc.base}, policies...).Soak)
		})
	}
}

func TestInterrupts(t *testing.T) {
	for _, a := range []ActionType{Restart, StaticPodRefresh, Drain, Reboot} {
		require.True(t, Interrupts([]Action{{Type: DaemonReload}, {Type: a}}), a)
	}
	require.False(t, Interrupts([]Action{{Type: None}, {Type: DaemonReload}, {Type: TrustStoreUpdate}, {Type: Reload}}))
	require.False(t, Interrupts(nil))
}

// somePolicies draws policies that name the same few things.
func somePolicies() *rapid.Generator[[]PolicyRules] {
	paths := []string{"/etc/motd", "/etc/containerd", "/opt/app", "/opt/app/conf"}
	return rapid.Map(rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Rules {
		actions := someActions(1)
		var r Rules
		for path, a := range rapid.MapOf(rapid.SampledFrom(paths), actions).Draw(t, "files") {
			r.Files = append(r.Files, Rule{Path: path, Actions: a})
		}
		for unit, a := range rapid.MapOf(rapid.SampledFrom([]string{"a.service", "b.service"}), actions).Draw(t, "units") {
			r.Units = append(r.Units, UnitRule{Name: unit, Actions: a})
		}
		r.Domains = rapid.MapOf(rapid.SampledFrom(domains), actions).Draw(t, "domains")
		r.OnFailure = rapid.SampledFrom([]OnFailure{"", StopOnFailure, RebootOnFailure, RollbackOnFailure}).Draw(t, "on failure")
		return r
	}), 0, 4), func(rules []Rules) []PolicyRules {
		policies := make([]PolicyRules, len(rules))
		for i, r := range rules {
			policies[i] = PolicyRules{Name: fmt.Sprintf("policy-%d", i), Rules: r}
		}
		return policies
	})
}

func TestOverrideLaws(t *testing.T) {
	base := BuiltinRules()
	rapid.Check(t, func(t *rapid.T) {
		policies := somePolicies().Draw(t, "policies")
		all := Override(base, policies...)
		shuffled := rapid.Permutation(policies).Draw(t, "shuffled")
		require.Equal(t, all, Override(base, shuffled...), "the order of the policies does not matter")
		require.Equal(t, all, Override(base, slices.Concat(policies, policies)...), "nor how often they are named")
		require.Equal(t, BuiltinRules(), base, "the base is left as it is")
		for _, p := range policies {
			for _, r := range p.Rules.Files {
				i := slices.IndexFunc(all.Files, func(f Rule) bool { return f.Path == r.Path })
				require.Equal(t, Worst(types(slices.Concat(all.Files[i].Actions, r.Actions))...), Worst(types(all.Files[i].Actions)...),
					"what several policies say is at least as disruptive as what one of them says")
				require.Contains(t, all.Files[i].From, p.Name)
			}
			for d, a := range p.Rules.Domains {
				require.Equal(t, Worst(types(slices.Concat(all.Domains[d], a))...), Worst(types(all.Domains[d])...))
				require.Contains(t, all.DomainsFrom[d], p.Name)
			}
		}
		for _, r := range all.Files {
			if r.From == "" {
				builtin, _ := base.Files.match(r.Path)
				require.Equal(t, builtin, r, "what no policy names is as it was")
			}
		}
	})
}

func TestDescribe(t *testing.T) {
	base := Rules{
		Files:   Table{{Path: "/b", Actions: []Action{action(None)}}, {Path: "/a", Actions: []Action{action(None)}}, {Path: "/b", Actions: []Action{action(Drain)}}},
		Domains: map[Domain][]Action{Taints: {action(None)}, SSHKeys: {action(None)}},
	}
	p := PolicyRules{Name: "fleet", Rules: Rules{
		Files:   Table{{Path: "/c", Actions: []Action{{Type: Restart, Unit: "a.service", Timeout: 90 * time.Second}, action(Drain)}}},
		Units:   []UnitRule{{Name: "a.service", Actions: []Action{action(None)}}},
		Domains: map[Domain][]Action{Taints: {action(Reboot)}},
	}}
	require.Equal(t, []Described{
		{"File", "/a", []string{"None"}, "built-in"},
		{"File", "/b", []string{"Drain"}, "built-in"},
		{"File", "/c", []string{"Drain", "Restart a.service (at most 1m30s)"}, "fleet"},
		{"Unit", "a.service", []string{"DaemonReload"}, "fleet"},
		{"SSHKeys", "", []string{"None"}, "built-in"},
		{"Taints", "", []string{"Reboot"}, "fleet"},
	}, Override(base, p).Describe())
	require.Equal(t, base.Describe(), Override(base).Describe(), "what counts is shown, whether or not policies were over it")
	require.Contains(t, BuiltinRules().Describe(), Described{"File", systemdUnits, []string{"DaemonReload", "Restart the unit"}, "built-in"})
}

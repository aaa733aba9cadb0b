package changemanagement

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
)

// overrides of an object, by their annotations.
func overrides(annotations map[string]string) Overrides {
	var o Overrides
	o.read("Cluster", cluster("c1", nil, annotations))
	return o
}

const (
	bypassKey      = refitv1.BypassAnnotation
	permissiveKey  = refitv1.PermissiveUntilAnnotation
	restrictiveKey = refitv1.RestrictiveUntilAnnotation
)

func TestOrderOfEvaluation(t *testing.T) {
	soon := text(inside.Add(time.Hour))
	for name, tc := range map[string]struct {
		now       time.Time // inside, unless it is given
		policies  []*refitv1.ChangeManagementPolicy
		overrides map[string]string
		open      bool
		reason    schedule.Reason
		by        string // the kind of the override that decides
	}{
		"no policy is open":                                        {open: true, reason: schedule.Open},
		"an open policy":                                           {policies: some(saturdays("a")), open: true, reason: schedule.Open},
		"a closed policy":                                          {now: outside, policies: some(saturdays("a")), reason: schedule.OutsideWindow},
		"one that never opens":                                     {policies: some(never("a")), reason: schedule.Paused},
		"two open ones":                                            {policies: some(saturdays("a"), anytime("b")), open: true, reason: schedule.Open},
		"one of two is closed":                                     {policies: some(saturdays("a"), weekly("b", "SU")), reason: schedule.NoWindowWithinHorizon},
		"one of two is paused":                                     {policies: some(saturdays("a"), never("b")), reason: schedule.Paused},
		"one of two is invalid":                                    {policies: some(saturdays("a"), onMars("b")), reason: schedule.InvalidPolicy},
		"invalid comes before closed":                              {policies: some(never("a"), onMars("b")), reason: schedule.InvalidPolicy},
		"invalid comes before a bypass":                            {policies: some(onMars("a")), overrides: map[string]string{bypassKey: "d1"}, reason: schedule.InvalidPolicy},
		"invalid comes before permissive-until":                    {policies: some(onMars("a")), overrides: map[string]string{permissiveKey: soon}, reason: schedule.InvalidPolicy},
		"invalid comes before restrictive-until":                   {policies: some(onMars("a")), overrides: map[string]string{restrictiveKey: soon}, reason: schedule.InvalidPolicy},
		"a bypass comes before permissive-until":                   {policies: some(never("a")), overrides: map[string]string{bypassKey: "d1", permissiveKey: soon}, open: true, reason: schedule.Overridden, by: "bypass-change-management"},
		"a bypass comes before restrictive-until":                  {policies: some(anytime("a")), overrides: map[string]string{bypassKey: "d1", restrictiveKey: soon}, open: true, reason: schedule.Overridden, by: "bypass-change-management"},
		"a bypass comes before a closed policy":                    {policies: some(never("a")), overrides: map[string]string{bypassKey: "d1"}, open: true, reason: schedule.Overridden, by: "bypass-change-management"},
		"a bypass comes before jitter":                             {now: opened, policies: some(saturdays("a", jitter("2h"))), overrides: map[string]string{bypassKey: "d1"}, open: true, reason: schedule.Overridden, by: "bypass-change-management"},
		"a bypass is one of a list":                                {policies: some(never("a")), overrides: map[string]string{bypassKey: "d0, d1,d2"}, open: true, reason: schedule.Overridden, by: "bypass-change-management"},
		"a bypass for another change has no effect":                {policies: some(never("a")), overrides: map[string]string{bypassKey: "d2"}, reason: schedule.Paused},
		"a bypass for a part of the digest has no effect":          {policies: some(never("a")), overrides: map[string]string{bypassKey: "d,d11,"}, reason: schedule.Paused},
		"a bypass for all changes has no effect":                   {policies: some(never("a")), overrides: map[string]string{bypassKey: "true"}, reason: schedule.Paused},
		"restrictive-until comes before permissive-until":          {policies: some(anytime("a")), overrides: map[string]string{permissiveKey: soon, restrictiveKey: soon}, reason: schedule.Overridden, by: "restrictive-until"},
		"restrictive without an end comes before permissive-until": {policies: some(anytime("a")), overrides: map[string]string{permissiveKey: soon, restrictiveKey: "true"}, reason: schedule.Overridden, by: "restrictive-until"},
		"permissive-until comes before a closed policy":            {now: outside, policies: some(saturdays("a")), overrides: map[string]string{permissiveKey: text(outside.Add(time.Hour))}, open: true, reason: schedule.Overridden, by: "permissive-until"},
		"permissive-until comes before what never fits":            {policies: some(saturdays("a", expects("20h"))), overrides: map[string]string{permissiveKey: soon}, open: true, reason: schedule.Overridden, by: "permissive-until"},
		"permissive-until comes before jitter":                     {now: opened, policies: some(saturdays("a", jitter("2h"))), overrides: map[string]string{permissiveKey: soon}, open: true, reason: schedule.Overridden, by: "permissive-until"},
		"permissive-until is over at its instant":                  {now: outside, policies: some(saturdays("a")), overrides: map[string]string{permissiveKey: text(outside)}, reason: schedule.OutsideWindow},
		"restrictive-until comes before an open policy":            {policies: some(anytime("a")), overrides: map[string]string{restrictiveKey: soon}, reason: schedule.Overridden, by: "restrictive-until"},
		"restrictive-until comes before jitter":                    {now: opened, policies: some(saturdays("a", jitter("2h"))), overrides: map[string]string{restrictiveKey: soon}, reason: schedule.Overridden, by: "restrictive-until"},
		"restrictive-until without a policy":                       {overrides: map[string]string{restrictiveKey: soon}, reason: schedule.Overridden, by: "restrictive-until"},
		"restrictive-until is over at its instant":                 {policies: some(anytime("a")), overrides: map[string]string{restrictiveKey: text(inside)}, open: true, reason: schedule.Open},
		"restrictive without an end":                               {policies: some(anytime("a")), overrides: map[string]string{restrictiveKey: "true"}, reason: schedule.Overridden, by: "restrictive-until"},
		"restrictive until some day":                               {policies: some(anytime("a")), overrides: map[string]string{restrictiveKey: "Monday"}, reason: schedule.Overridden, by: "restrictive-until"},
		"restrictive with nothing said":                            {policies: some(anytime("a")), overrides: map[string]string{restrictiveKey: ""}, reason: schedule.Overridden, by: "restrictive-until"},
		"jitter comes after all policies":                          {now: opened, policies: some(saturdays("a", jitter("2h")), never("b")), reason: schedule.Paused},
		"jitter closes what is open":                               {now: opened, policies: some(saturdays("a", jitter("2h"))), reason: schedule.OutsideWindow},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Candidate{UID: "uid-1", Overrides: overrides(tc.overrides)}
			if tc.now.IsZero() {
				tc.now = inside
			}
			d := Decide(tc.now, s, read(tc.policies...), Change{Digest: "d1"})
			requireTold(t, d)
			require.Equal(t, tc.reason, d.Reason, d.Message)
			require.Equal(t, tc.open, d.Open, d.Message)
			kinds := map[string]bool{}
			for _, o := range d.By {
				kinds[o.Kind] = true
				require.Contains(t, d.Message, o.String())
			}
			want := map[string]bool{}
			if tc.by != "" {
				want[tc.by] = true
			}
			require.Equal(t, want, kinds)
			require.NotEmpty(t, d.Message)
			if d.Open {
				require.Zero(t, d.NextChangeETASeconds)
			} else {
				require.NotZero(t, d.NextChangeETASeconds)
			}
		})
	}
}

// some makes a list short to write.
func some(all ...*refitv1.ChangeManagementPolicy) []*refitv1.ChangeManagementPolicy { return all }

func TestBypassOfAChangeThatIsNotIdentified(t *testing.T) {
	s := &Candidate{Overrides: overrides(map[string]string{bypassKey: ""})}
	require.False(t, Decide(inside, s, read(never("a")), Change{}).Open)
}

func TestMessagesStayTheSameWithinAState(t *testing.T) {
	weekLater := 7 * 24 * time.Hour
	for name, tc := range map[string]struct {
		policies  []*refitv1.ChangeManagementPolicy
		overrides map[string]string
		from, to  time.Time
	}{
		"open":                           {some(saturdays("a")), nil, opened, closes.Add(-time.Second)},
		"outside":                        {some(saturdays("a")), nil, closes, opened.Add(weekLater - time.Second)},
		"always":                         {some(anytime("a")), nil, outside, inside},
		"never":                          {some(never("a")), nil, outside, inside},
		"they do not meet":               {some(saturdays("a"), weekly("b", "SU")), nil, closes, closes.Add(time.Hour)},
		"invalid":                        {some(onMars("a")), nil, outside, inside},
		"before the jitter is over":      {some(saturdays("a", jitter("8h"))), nil, opened, opened.Add(time.Second)},
		"too little is left":             {some(saturdays("a", expects("4h"))), nil, closes.Add(-3 * time.Hour), closes.Add(-time.Second)},
		"permissive for some time":       {some(never("a")), map[string]string{permissiveKey: text(inside)}, opened, inside.Add(-time.Second)},
		"permissiveKey, too far ahead":   {some(never("a")), map[string]string{permissiveKey: text(inside.Add(100 * time.Hour))}, opened, inside},
		"permissive for too long":        {some(never("a")), map[string]string{permissiveKey: "true", refitv1.PermissiveSinceAnnotation: text(created) + " true"}, opened, inside},
		"permissive until nobody knows":  {some(never("a")), map[string]string{permissiveKey: "1"}, opened, inside},
		"restrictive for some time":      {some(anytime("a")), map[string]string{restrictiveKey: text(inside)}, opened, inside.Add(-time.Second)},
		"restrictive":                    {some(anytime("a")), map[string]string{restrictiveKey: "true"}, opened, inside},
		"restrictive until nobody knows": {some(saturdays("a")), map[string]string{restrictiveKey: "1"}, opened, inside},
		"bypassed":                       {some(never("a")), map[string]string{bypassKey: "d1"}, outside, inside},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Candidate{UID: "uid-3", Overrides: overrides(tc.overrides)}
			first := Decide(tc.from, s, read(tc.policies...), Change{Digest: "d1"})
			last := Decide(tc.to, s, read(tc.policies...), Change{Digest: "d1"})
			require.Equal(t, first.Message, last.Message)
			require.Equal(t, first.Reason, last.Reason)
			require.Equal(t, first.Digest(), last.Digest())
		})
	}
}

func TestDecisionsKnowThePoliciesAndWhatTheyHold(t *testing.T) {
	all := func(s *spec) { s.Hold = refitv1.HoldAll }
	for name, tc := range map[string]struct {
		policies  []*refitv1.ChangeManagementPolicy
		overrides map[string]string
		// holds: what is not material is held back; off: the node is not looked at.
		holds, off bool
	}{
		"what is material":                   {policies: some(weekly("a", "WE"))},
		"all":                                {policies: some(anytime("a"), weekly("b", "WE", all)), holds: true, off: true},
		"that can't be told":                 {policies: some(onMars("a")), holds: true, off: true},
		"there are none":                     {},
		"a policy stops changes":             {policies: some(anytime("a"), never("b")), holds: true},
		"an override stops changes":          {policies: some(anytime("a")), overrides: map[string]string{restrictiveKey: "true"}, holds: true},
		"an override without a policy":       {overrides: map[string]string{restrictiveKey: text(inside.Add(time.Hour))}, holds: true},
		"an override that is over":           {policies: some(weekly("a", "WE")), overrides: map[string]string{restrictiveKey: text(inside)}},
		"a stop that is passed by an opener": {policies: some(never("a")), overrides: map[string]string{permissiveKey: text(inside.Add(time.Hour))}},
	} {
		t.Run(name, func(t *testing.T) {
			d := Decide(inside, &Candidate{Overrides: overrides(tc.overrides)}, read(tc.policies...), Change{})
			requireTold(t, d)
			require.Equal(t, tc.holds, d.HoldsAll())
			require.Equal(t, tc.off, d.KeepsOff())
			require.Len(t, d.Policies, len(tc.policies))
		})
	}
}

// TestOverridesOfWhatAMachineBelongsTo sets an override on each object that there is, and looks for which Machines it counts.
func TestOverridesOfWhatAMachineBelongsTo(t *testing.T) {
	for name, tc := range map[string]struct {
		object               string
		worker, controlPlane bool
	}{
		"of the Cluster, for all of its Machines":    {"Cluster c1", true, true},
		"of the control plane, for its Machines":     {"KubeadmControlPlane kcp", false, true},
		"of the MachineDeployment, for its Machines": {"MachineDeployment md", true, false},
		"of a Machine, for this one":                 {"Machine w1", true, false},
		"of a control plane's Machine, for this one": {"Machine cp1", false, true},
		"of another Cluster, for none":               {"Cluster c2", false, false},
		"of another MachineDeployment, for none":     {"MachineDeployment md2", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			all := everyKind()
			for _, obj := range all {
				if tc.object == kindName(obj) {
					obj.SetAnnotations(noted(map[string]string{permissiveKey: text(inside.Add(time.Hour)), permissiveKey + "-reason": "CVE-2026-1"}))
				}
			}
			w := newWorld(t, append(all, never("a"))...)
			for machine, want := range map[string]bool{"w1": tc.worker, "cp1": tc.controlPlane} {
				s, err := Candidates{w}.Machine(t.Context(), get(w, machine, &clusterv1.Machine{}))
				require.NoError(t, err)
				policies, err := w.policies.Select(s)
				require.NoError(t, err)
				d := Decide(inside, s, policies, Change{})
				require.Equal(t, want, d.Open, machine)
				if want {
					require.Contains(t, d.Message, "on "+tc.object+" (CVE-2026-1)")
				}
			}
		})
	}
}

func TestPoliciesThatNeverMeetAreNotAskedForEachMachine(t *testing.T) {
	policies := read(saturdays("a"), weekly("b", "WE"))
	none := Decide(inside, &Candidate{}, policies, Change{})
	require.Equal(t, schedule.NoWindowWithinHorizon, none.Reason)
	require.Equal(t, none, Decide(inside.Add(closedFor-1), &Candidate{}, policies, Change{}), "it is known for a while")
	looked := func() time.Time {
		key := together{}
		for i, p := range policies {
			key.schedules[i] = p.Schedule
		}
		v, ok := policies[0].closed.Get(key)
		require.True(t, ok)
		return v.(closedSince).at
	}
	require.Equal(t, inside, looked())
	for _, at := range []time.Time{closes, inside.Add(-2 * time.Hour)} {
		require.Equal(t, none.Message, Decide(at, &Candidate{}, policies, Change{}).Message)
		require.Equal(t, at, looked(), "and then looked at again")
	}
	for name, o := range map[string]map[string]string{
		"permissive": {permissiveKey: text(inside.Add(time.Hour))}, "bypassed": {bypassKey: "d1"},
	} {
		require.True(t, Decide(inside, &Candidate{Overrides: overrides(o)}, policies, Change{Digest: "d1"}).Open, name)
	}
	require.True(t, Decide(inside, &Candidate{}, policies[:1], Change{}).Open, "one of them is open")
	require.True(t, Decide(inside, &Candidate{}, read(saturdays("a"), weekly("b", "WE,SA")), Change{}).Open, "one that was changed is another")
}

package changemanagement

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
)

// manual is a policy a under which somebody permits each change.
func manual(edits ...edit) *refitv1.ChangeManagementPolicy {
	return policy("a", schedule.ManualStrategy, edits...)
}

// permitted has somebody have permitted a change of an update.
func permitted(change string, at, until time.Time) func(*refitv1.MachineUpdate) {
	return func(mu *refitv1.MachineUpdate) {
		mu.Annotations = map[string]string{refitv1.PermitAnnotation: PermitValue(at, change, until, "ann of the night shift")}
	}
}

func TestManual(t *testing.T) {
	var always time.Time
	minuteAgo, hour := inside.Add(-time.Minute), inside.Add(time.Hour)
	garbled := func(value string) func(*refitv1.MachineUpdate) {
		return func(mu *refitv1.MachineUpdate) {
			mu.Annotations = map[string]string{refitv1.PermitAnnotation: value}
		}
	}
	for name, tc := range map[string]struct {
		policies []*refitv1.ChangeManagementPolicy
		state    func(*refitv1.MachineUpdate)
		machine  map[string]string
		reason   schedule.Reason
		says     string
	}{
		"nobody has permitted it":       {policies: some(manual()), reason: schedule.Manual, says: "policy a is manual, and nobody has permitted this change"},
		"somebody has":                  {policies: some(manual()), state: permitted("digest-w", minuteAgo, always), reason: schedule.Open, says: "permitted by ann of the night shift at " + text(minuteAgo)},
		"for an hour":                   {policies: some(manual()), state: permitted("digest-w", minuteAgo, hour), reason: schedule.Open, says: "permitted by"},
		"until now":                     {policies: some(manual()), state: permitted("digest-w", minuteAgo, inside), reason: schedule.Manual},
		"another change":                {policies: some(manual()), state: permitted("digest-v", minuteAgo, always), reason: schedule.Manual},
		"in no way that is known":       {policies: some(manual()), state: garbled("true"), reason: schedule.Manual},
		"at no time":                    {policies: some(manual()), state: garbled("now digest-w - ann"), reason: schedule.Manual},
		"until some day":                {policies: some(manual()), state: garbled(text(minuteAgo) + " digest-w tomorrow ann"), reason: schedule.Manual},
		"another policy has its window": {policies: some(manual(), saturdays("b")), state: permitted("digest-w", minuteAgo, always), reason: schedule.Open, says: "open until"},
		"another policy is closed":      {policies: some(manual(), weekly("b", "WE")), state: permitted("digest-w", minuteAgo, always), reason: schedule.OutsideWindow},
		"another policy is restrictive": {policies: some(manual(), never("b")), state: permitted("digest-w", minuteAgo, always), reason: schedule.Paused, says: "policy b is restrictive"},
		"two are closed":                {policies: some(manual(), never("b")), reason: schedule.Paused, says: "policy b is restrictive"},
		"changes are stopped":           {policies: some(manual()), state: permitted("digest-w", minuteAgo, always), machine: map[string]string{restrictiveKey: "true"}, reason: schedule.Overridden},
		"the change is bypassed":        {policies: some(manual()), machine: map[string]string{bypassKey: "digest-w"}, reason: schedule.Overridden},
	} {
		t.Run(name, func(t *testing.T) {
			m := worker("w")
			m.Annotations = tc.machine
			state := []func(*refitv1.MachineUpdate){waiting}
			if tc.state != nil {
				state = append(state, tc.state)
			}
			w := newWorld(t, cluster("c1", nil, nil), m, update("w", state...))
			for _, p := range tc.policies {
				w.addPolicy(p)
			}
			d := w.ask("w")
			require.Equal(t, tc.reason, d.Reason, d.Message)
			require.Contains(t, d.Message, tc.says)
			require.Equal(t, !d.Open, d.HoldsAll() || d.Reason == schedule.OutsideWindow, "what nobody has permitted does not begin, whatever it does")
		})
	}
}

// TestWhoIsPermittedFirstIsFirst: a person's order comes before that of the oldest configuration.
func TestWhoIsPermittedFirstIsFirst(t *testing.T) {
	w := newWorld(t, fleet(map[string]states{
		"old":   {waiting, configured(9), permitted("digest-old", inside.Add(-time.Minute), time.Time{})},
		"young": {waiting, configured(1), permitted("digest-young", inside.Add(-2*time.Minute), time.Time{})},
	}, nil, manual(budget(refitv1.Budget{MaxConcurrent: 1})))...)
	require.False(t, w.ask("old").Open)
	require.True(t, w.ask("young").Open)
}

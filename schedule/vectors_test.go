package schedule_test

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/schedule"
)

func TestWorkedCases(t *testing.T) {
	var cases []struct {
		Name             string
		Policies         []schedule.Policy
		Now              time.Time
		ExpectedDuration string
		HorizonDays      int
		Kinds            []schedule.Kind
		Disruption       schedule.Disruption
		Expect           struct {
			Open                       bool
			NextChangeETASeconds       int64
			PermissiveRemainingSeconds int64
			Window                     []time.Time
		}
	}
	data, err := os.ReadFile("testdata/vectors.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &cases))
	require.Len(t, cases, 57)
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			q := schedule.Query{Now: c.Now, Horizon: time.Duration(c.HorizonDays) * 24 * time.Hour}
			if c.ExpectedDuration != "" {
				q.ExpectedDuration, err = schedule.ParseDuration(c.ExpectedDuration)
				require.NoError(t, err)
			}
			var all []*schedule.Schedule
			for _, p := range c.Policies {
				s, err := schedule.Compile("case", p, nil)
				require.NoError(t, err)
				all = append(all, s.For(schedule.Class{Kinds: c.Kinds, Disruption: c.Disruption}))
			}
			d := schedule.Decide(q, all...)
			require.Equal(t, c.Expect.Open, d.Open)
			require.Equal(t, c.Expect.NextChangeETASeconds, d.NextChangeETASeconds)
			require.Equal(t, c.Expect.PermissiveRemainingSeconds, d.PermissiveRemainingSeconds)
			if len(c.Expect.Window) == 0 {
				require.Nil(t, d.Window)
				return
			}
			require.Equal(t, c.Expect.Window, []time.Time{d.Window.Start, d.Window.End})
		})
	}
}

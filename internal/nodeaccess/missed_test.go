package nodeaccess

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/managementtest"
)

// TestWhatWasDeletedBeforeTheProcessBegan is not known, so that nothing is decided until it would not matter any more.
func TestWhatWasDeletedBeforeTheProcessBegan(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for name, tc := range map[string]struct {
		// installed and made are how long before the process the kind, and the Machine, were there. Zero: there is no kind.
		installed, made time.Duration
		// ago is how long ago the process began; negative: its cache is not filled.
		ago  time.Duration
		says string // empty: it is decided
	}{
		"it has just begun":                   {year, year, time.Second, "nothing is decided until one selects it, or until 2026-10-03T20:10:00Z"},
		"it began a while ago":                {year, year, formerFor - time.Second, "refit began at 2026-10-03T20:00:00Z"},
		"it began long enough ago":            {year, year, formerFor, ""},
		"its cache is not filled":             {year, year, -1, "refit has just begun"},
		"a Machine that was made since":       {year, -time.Second, 2 * time.Second, ""},
		"refit was installed just now":        {time.Minute, year, time.Second, ""},
		"refit was installed some time ago":   {formerFor, year, time.Second, "nothing is decided"},
		"since when can't be told":            {0, year, time.Second, "whether one did until a moment ago can't be told"},
		"since when does not matter any more": {0, year, formerFor, ""},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(managementtest.Start)
			at := func(before time.Duration) metav1.Time { return metav1.NewTime(clock.Now().Add(-before)) }
			objects := []client.Object{managementtest.Machine("fleet", "m1", "c1", func(m *clusterv1.Machine) { m.CreationTimestamp = at(tc.made) })}
			if tc.installed > 0 {
				objects = append(objects, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: definition, CreationTimestamp: at(tc.installed)}})
			}
			c := managementtest.New(objects...)
			m := Machines{Client: c, Live: c, Former: &Former{Clock: clock}}
			if tc.ago > 0 {
				m.Former.begin()
				clock.Step(tc.ago)
			}
			for range 2 { // that it was not decided is not taken for an answer
				why, err := m.Without(t.Context(), "fleet", "m1", false)
				if tc.says == "" {
					require.NoError(t, err)
					require.Contains(t, why, "no NodeAccess")
					continue
				}
				require.ErrorContains(t, err, tc.says)
				require.ErrorContains(t, err, "no NodeAccess in namespace fleet selects Machine m1")
				require.Empty(t, why)
			}
		})
	}
}

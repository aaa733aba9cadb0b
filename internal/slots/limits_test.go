package slots

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

func TestParseLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		workers, failureDomain string
		want                   Limits
		err                    string
	}{
		"the defaults":            {want: Limits{Workers: intstr.FromString("20%")}},
		"a number":                {workers: "3", want: Limits{Workers: intstr.FromInt32(3)}},
		"percentages":             {workers: "1%", failureDomain: "100%", want: Limits{intstr.FromString("1%"), ptr.To(intstr.FromString("100%"))}},
		"a number in a domain":    {failureDomain: "1", want: Limits{intstr.FromString("20%"), ptr.To(intstr.FromInt32(1))}},
		"none is not meant":       {workers: "0", err: "at most 0 workers out at once: the limit must be"},
		"nor none in a domain":    {failureDomain: "0", err: "at most 0 nodes of a failure domain out at once: the limit must be"},
		"nor less":                {workers: "-1", err: "-1 workers"},
		"nor no percent":          {workers: "0%", err: "0% workers"},
		"nor more than all":       {workers: "101%", err: "101% workers"},
		"nor less than nothing":   {workers: "-5%", err: "-5% workers"},
		"a word":                  {workers: "some", err: "some workers"},
		"a word for a domain":     {failureDomain: "az-1", err: "az-1 nodes"},
		"a part of a percent":     {workers: "0.5%", err: "0.5% workers"},
		"a number with something": {workers: "3 ", err: "3  workers"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseLimits(tc.workers, tc.failureDomain)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
}

func TestScale(t *testing.T) {
	for name, tc := range map[string]struct {
		limit       string
		total, want int
	}{
		"rounded up":         {"20%", 11, 3},
		"exactly":            {"20%", 10, 2},
		"one at least":       {"1%", 3, 1},
		"of one":             {"20%", 1, 1},
		"all":                {"100%", 7, 7},
		"a number":           {"4", 100, 4},
		"more than there is": {"4", 2, 4},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := scale(intstr.Parse(tc.limit), tc.total)
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
	_, err := scale(intstr.FromString("some"), 10)
	require.ErrorContains(t, err, "read the limit some")
}

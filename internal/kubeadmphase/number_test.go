package kubeadmphase

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOrderOfVersions(t *testing.T) {
	ordered := []string{
		"v1.36.0-alpha.1", "v1.36.0-alpha.beta", "v1.36.0-beta", "v1.36.0-beta.2", "v1.36.0-beta.11", "v1.36.0-rc.1", "v1.36.0", "v1.36.1+build",
		"v1.36.9", "v1.36.10", "v1.37.0", "v2.0.0",
	}
	for i, a := range ordered {
		for j, b := range ordered {
			x, err := Parse(a)
			require.NoError(t, err)
			y, err := Parse(b)
			require.NoError(t, err)
			switch is := x.Compare(y); {
			case i < j:
				require.Negative(t, is, "%s %s", a, b)
			case i > j:
				require.Positive(t, is, "%s %s", a, b)
			default:
				require.Zero(t, is, "%s %s", a, b)
			}
		}
	}
	a, err := Parse("v1.36.1_one")
	require.NoError(t, err)
	b, err := Parse("v1.36.1+other")
	require.NoError(t, err)
	require.Zero(t, a.Compare(b), "a build does not count, and a tag stands for it")
	for _, text := range []string{"", "1.36.1", "v1.36", "v1.36.01", "v1.36.1-", "v1.36.1+", "latest", "v1.36.1 ", "v99999999999.0.0"} {
		_, err := Parse(text)
		require.Error(t, err, text)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"v1.36.1", "v1.36.1-rc.1+build", "v1.36.1-18446744073709551616"} {
		f.Add(text, "v1.36.0")
	}
	f.Fuzz(func(t *testing.T, one, other string) {
		a, err := Parse(one)
		if err != nil {
			return
		}
		same, err := Parse(one)
		require.NoError(t, err)
		require.Zero(t, a.Compare(same))
		if b, err := Parse(other); err == nil {
			require.Equal(t, a.Compare(b), -b.Compare(a))
		}
	})
}

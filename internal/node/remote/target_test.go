package remote_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/node/remote"
)

func TestParseAddress(t *testing.T) {
	for in, want := range map[string]string{
		"node-1": "node-1:22", "10.0.0.1:2222": "10.0.0.1:2222", "fd00::1": "[fd00::1]:22", "[fd00::1]:2222": "[fd00::1]:2222",
		"": "", ":22": "", "a:b": "", "a:0": "", "a:70000": "", "[a": "",
	} {
		t.Run(in, func(t *testing.T) {
			a, err := remote.ParseAddress(in)
			if want == "" {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, want, a.String())
		})
	}
	assert.Equal(t, "x:22", remote.Address{Host: "x"}.String())
}

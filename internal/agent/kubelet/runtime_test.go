package kubelet

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAKubeletThatFindsNoNameServersIsNotWell: it says that it is, and can't start a pod.
func TestAKubeletThatFindsNoNameServersIsNotWell(t *testing.T) {
	for name, tc := range map[string]struct {
		config, flags string
		fails         bool
	}{
		"nothing is said":  {config: "healthzPort: 0\n"},
		"one that is":      {config: "healthzPort: 0\nresolvConf: /run/resolv.conf\n"},
		"none is wanted":   {config: "healthzPort: 0\nresolvConf: \"\"\n"},
		"one that is not":  {config: "healthzPort: 0\nresolvConf: /run/gone.conf\n", fails: true},
		"by its arguments": {config: "healthzPort: 0\nresolvConf: /run/resolv.conf\n", flags: `KUBELET_KUBEADM_ARGS="--resolv-conf=/run/gone.conf"` + "\n", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			x := newFixture(t, tc.flags)
			x.Put(ConfigFile, tc.config)
			x.Put("/run/resolv.conf", "")
			_, err := Ask(t.Context(), x.kind.host.Root)
			if tc.fails {
				require.EqualError(t, err, "its resolvConf is /run/gone.conf, which is not there, so it can start no pod")
			} else {
				require.NoError(t, err)
			}
		})
	}
}

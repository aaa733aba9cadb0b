package version

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/kubelet"
)

// TestDeathAtEachStep has the process die after each step, and another one take the change up, and then back.
func TestDeathAtEachStep(t *testing.T) {
	for name, tc := range map[string]struct {
		world  func(t *testing.T) *world
		deaths int
	}{
		// Three programs are installed, with a step for each call beside, kubeadm begins and ends, and systemd is told three things.
		"a worker": {newWorld, 10},
		// Eight moves of manifests more.
		// The address is looked for, taken away, and written.
		"a worker whose runtime's address moves": {func(t *testing.T) *world {
			w := newWorld(t)
			w.Put(kubelet.FlagsFile, "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/crio.sock --v=2\"\n")
			w.Put("/moves-endpoint", "")
			return w
		}, 13},
		"a control plane with another etcd": {func(t *testing.T) *world {
			w := newControlPlane(t, newVersion)
			w.Put("/etcd-tag", "3.6.9-0")
			w.Put("/next/etcd.yaml", replaced(w.manifest("etcd", newVersion), "3.6.8-0", "3.6.9-0"))
			return w
		}, 18},
	} {
		t.Run(name, func(t *testing.T) {
			deaths := 0
			for steps := 0; ; steps++ {
				w := tc.world(t)
				config, flags := w.Get(kubelet.ConfigFile), w.Get(kubelet.FlagsFile)
				runtime, err := kubelet.FindRuntime(w.kind.host.Root)
				require.NoError(t, err)
				c := w.change(newVersion)
				w.Put("/steps", strconv.Itoa(steps))
				_, err = w.kind.Make(t.Context(), c)
				died := err != nil
				if died {
					deaths++
				}
				w.remove("/steps")
				if steps%2 == 0 {
					c.Again = true
					w.make(c)
					require.Equal(t, newVersion, w.runs(), "after %d steps", steps)
					require.Equal(t, [2]string{newVersion, newVersion}, w.programs())
					if w.Get("/moves-endpoint") != "(missing)" {
						require.Equal(t, "containerRuntimeEndpoint: \"unix://"+runtime.Socket+"\"\n", w.Get(kubelet.InstanceFile), "after %d steps", steps)
						require.NotContains(t, w.Get(kubelet.FlagsFile), runtime.Socket)
					}
					require.Empty(t, w.ask(newVersion, newVersion), "after %d steps", steps)
				}
				require.NoError(t, w.kind.Undo(t.Context(), c), "after %d steps", steps)
				require.Equal(t, oldVersion, w.runs(), "after %d steps", steps)
				require.Equal(t, oldVersion, w.programs()[0], "after %d steps", steps)
				require.Equal(t, config, w.Get(kubelet.ConfigFile), "after %d steps", steps)
				require.Equal(t, flags, w.Get(kubelet.FlagsFile), "after %d steps", steps)
				require.Equal(t, "(missing)", w.Get(kubelet.InstanceFile), "after %d steps", steps)
				if !died {
					break
				}
			}
			require.Equal(t, tc.deaths, deaths)
		})
	}
}

// TestDeathAtEachStepBack has the process die after each step of going back, and another one go on.
func TestDeathAtEachStepBack(t *testing.T) {
	deaths := 0
	for steps := 0; ; steps++ {
		w := newWorld(t)
		config := w.Get(kubelet.ConfigFile)
		c := w.change(newVersion)
		w.make(c)
		w.Put("/steps", strconv.Itoa(steps))
		err := w.kind.Undo(t.Context(), c)
		w.remove("/steps")
		if err == nil {
			break
		}
		deaths++
		require.NoError(t, w.kind.Undo(t.Context(), c))
		require.Equal(t, oldVersion, w.runs(), "after %d steps", steps)
		require.Equal(t, [2]string{oldVersion, oldVersion}, w.programs(), "after %d steps", steps)
		require.Equal(t, oldVersion, w.kind.installedKubectl(t.Context()), "after %d steps", steps)
		require.Equal(t, config, w.Get(kubelet.ConfigFile), "after %d steps", steps)
	}
	require.Equal(t, 8, deaths, "two calls that install three programs, and three of systemd's")
}

package server

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-refit/refit/internal/shard"
)

// elected is a manager that leads once the channel is closed.
type elected struct {
	ctrl.Manager
	c chan struct{}
}

func (e elected) Elected() <-chan struct{} { return e.c }

func TestWhatEachReplicaShows(t *testing.T) {
	held := func(mgr shard.Manager) (string, *prometheus.Registry) {
		r := prometheus.NewPedanticRegistry()
		registerProcess(r, "v1.2.3", mgr)
		families, err := r.Gather()
		require.NoError(t, err)
		var all []string
		for _, f := range families {
			all = append(all, f.String())
		}
		return strings.Join(all, "\n"), r
	}
	one := elected{c: make(chan struct{})}
	text, r := held(shard.Manager{Manager: one})
	require.Contains(t, text, `value:"v1.2.3"`)
	const shown = "# HELP refit_shards_held How many of the parts this replica leads.\n# TYPE refit_shards_held gauge\nrefit_shards_held "
	require.NoError(t, testutil.GatherAndCompare(r, strings.NewReader(shown+"0\n"), "refit_shards_held"))
	close(one.c)
	require.NoError(t, testutil.GatherAndCompare(r, strings.NewReader(shown+"1\n"), "refit_shards_held"))

	_, r = held(shard.Manager{Shards: &shard.Shards{Count: 3}})
	require.NoError(t, testutil.GatherAndCompare(r, strings.NewReader(shown+"0\n"), "refit_shards_held"))
	require.NoError(t, testutil.GatherAndCompare(r, strings.NewReader(
		"# HELP refit_shards Into how many parts the namespaces are divided, each with a leader: --shards.\n# TYPE refit_shards gauge\nrefit_shards 3\n"), "refit_shards"))
}

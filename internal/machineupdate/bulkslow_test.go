package machineupdate

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// TestWhatTakesTooLongToListIsReadByItself has the lists of a Cluster take longer than what they say may be used: else it would be listed for ever.
func TestWhatTakesTooLongToListIsReadByItself(t *testing.T) {
	w, r := recorded(t)
	keys := w.addMachines(6)
	c := tally{}
	w.onLists(c, func(string) error { w.clock.Step(listedFor / 2); return nil })
	w.askEach(keys)
	w.one(r)
	require.Equal(t, namesOf(keys), w.recordedOf(keys))
	require.Equal(t, 2, c[listed])
	require.Zero(t, r.asks.number())
}

// TestClustersThatCannotBeListedKeepNoTurn has the API server not answer, for Clusters of one kind of infrastructure say, when these are listed and read.
func TestClustersThatCannotBeListedKeepNoTurn(t *testing.T) {
	w, r := recorded(t)
	keys := w.addMachines(6)
	w.onLists(tally{}, func(string) error { return context.DeadlineExceeded })
	reads := make(chan struct{})
	live := w.store.Live.(client.WithWatch)
	w.store.Live = interceptor.NewClient(live, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			select {
			case reads <- struct{}{}:
			case <-ctx.Done():
			}
			<-ctx.Done() // a webhook that converts hangs
			return ctx.Err()
		},
	})
	w.askEach(keys)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); r.next(ctx) }()
	select {
	case <-reads: // the list has failed, and they are read one by one
	case <-time.After(time.Minute):
		require.Fail(t, "they are not read")
	}
	require.Empty(t, r.lists.turns, "other Clusters can be listed")
	cancel()
	<-ended
	_, singly := r.lists.singly.Get(ofC1)
	require.True(t, singly, "it does not take a turn until then each time")
}

// TestOnlyWhatTheMachinesOfARoundReferToIsKept has a Cluster have much more: anybody who may make such objects can give them its label.
func TestOnlyWhatTheMachinesOfARoundReferToIsKept(t *testing.T) {
	w, _ := recorded(t)
	keys := w.addMachines(6)
	for i := range 30 {
		other := &bootstrapv1.KubeadmConfig{}
		other.Namespace, other.Name, other.Labels = key.Namespace, fmt.Sprintf("other-%d", i), map[string]string{clusterv1.ClusterNameLabel: "c1"}
		require.NoError(t, w.Create(t.Context(), other))
	}
	var round []*candidate
	for _, k := range keys[:5] {
		round = append(round, &candidate{key: k})
	}
	b := newBulk(w.Client, w.clock, ofC1, round)
	for _, k := range keys[:5] {
		machine, spec, err := readMachine(t.Context(), b, k)
		require.NoError(t, err)
		_, err = readSpecs(t.Context(), b, machine, spec)
		require.NoError(t, err)
	}
	require.NotEmpty(t, b.kinds)
	for kind, kept := range b.kinds {
		require.Len(t, kept, 5, kind)
	}
}

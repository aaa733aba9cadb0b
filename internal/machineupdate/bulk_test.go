package machineupdate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/managementtest"
)

// addMachines adds Machines to the Cluster that Cluster API has updated in place, and returns their keys.
func (w *world) addMachines(n int) []types.NamespacedName {
	var keys []types.NamespacedName
	for i := range n {
		k := types.NamespacedName{Namespace: key.Namespace, Name: fmt.Sprintf("more-%d", i)}
		for _, obj := range managementtest.Updatable(k, "node-"+k.Name, bootstrapv1.File{Path: "/etc/app/a", Content: k.Name}) {
			switch o := obj.(type) {
			case *clusterv1.Machine:
				o.UID, o.Annotations = types.UID("uid-"+k.Name), marks()
			case *bootstrapv1.KubeadmConfig:
				o.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1"}
			default:
				continue
			}
			require.NoError(w.t, w.Create(w.t.Context(), obj))
		}
		keys = append(keys, k)
	}
	return keys
}

// digestOf is that of the specs of one of them.
func (w *world) digestOf(k types.NamespacedName) string {
	machine, spec, err := readMachine(w.t.Context(), w, k)
	require.NoError(w.t, err)
	s, err := readSpecs(w.t.Context(), w, machine, spec)
	require.NoError(w.t, err)
	return s.digest
}

// askEach does as Cluster API does for each of them.
func (w *world) askEach(keys []types.NamespacedName) {
	for _, k := range keys {
		p, err := w.store.Update(w.t.Context(), k.Namespace, k.Name, w.digestOf(k))
		require.NoError(w.t, err)
		require.Contains(w.t, p.Message, "is being recorded")
	}
}

// recordedOf returns the names of the Machines that have a MachineUpdate for the specs that they have.
func (w *world) recordedOf(keys []types.NamespacedName) []string {
	var names []string
	for _, k := range keys {
		var mu refitv1.MachineUpdate
		err := w.Get(w.t.Context(), k, &mu)
		require.NoError(w.t, client.IgnoreNotFound(err))
		if err == nil && mu.Spec.Digest == w.digestOf(k) {
			names = append(names, k.Name)
		}
	}
	return names
}

func namesOf(keys []types.NamespacedName) []string {
	var names []string
	for _, k := range keys {
		names = append(names, k.Name)
	}
	return names
}

// onLists has the API server do something before it answers a list of a kind, or fail.
func (w *world) onLists(c tally, before func(kind string) error) {
	w.store.Live = interceptor.NewClient(w.counting(w.Client.(client.WithWatch), c, true), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := before(strings.TrimSuffix(list.GetObjectKind().GroupVersionKind().Kind, "List")); err != nil {
				return err
			}
			return c.List(ctx, list, opts...)
		},
	})
}

const (
	listed = "list unstructured.UnstructuredList"
	single = "get unstructured.Unstructured"
)

// edit gives a Machine another KubeadmConfig.
func (w *world) edit(k types.NamespacedName) {
	var config bootstrapv1.KubeadmConfig
	require.NoError(w.t, w.Get(w.t.Context(), k, &config))
	config.Spec.Files[0].Content += " and more"
	require.NoError(w.t, w.Update(w.t.Context(), &config))
}

// TestWhatIsAskedForLaterIsNotJudgedByAnOlderList has specs change, and these be asked for, while what was asked for before is being listed.
func TestWhatIsAskedForLaterIsNotJudgedByAnOlderList(t *testing.T) {
	w, r := recorded(t)
	keys := w.addMachines(6)
	before, c, later := w.digestOf(keys[0]), tally{}, false
	w.onLists(c, func(string) error {
		if c[listed] == 1 && !later { // the KubeadmConfigs are next
			later = true
			w.edit(keys[0])
			p, err := w.store.Update(t.Context(), keys[0].Namespace, keys[0].Name, w.digestOf(keys[0]))
			require.NoError(t, err)
			require.Contains(t, p.Message, "is being recorded")
		}
		return nil
	})
	w.askEach(keys)
	w.one(r)
	require.Equal(t, namesOf(keys[1:]), w.recordedOf(keys), "neither the specs before, which are no more, nor those that were asked for since")
	require.Equal(t, []string{w.digestOf(keys[0])}, r.asks.of[keys[0]].digests)
	require.NotContains(t, r.asks.of[keys[0]].digests, before)
	w.one(r)
	require.Equal(t, namesOf(keys), w.recordedOf(keys))
	require.Equal(t, tally{listed: 2, single: 3, "get v1.PartialObjectMetadata": c["get v1.PartialObjectMetadata"]}, c)
	require.Zero(t, r.asks.number())
}

// TestAWriteSinceTheListIsAConflict has another replica, which knows newer specs, record these while this one has read older ones.
func TestAWriteSinceTheListIsAConflict(t *testing.T) {
	w, r := recorded(t)
	keys := w.addMachines(6)
	w.askEach(keys)
	w.one(r)
	require.Equal(t, namesOf(keys), w.recordedOf(keys))
	for _, k := range keys {
		w.edit(k)
	}
	w.askEach(keys)
	c := tally{}
	w.onLists(c, func(string) error {
		if c[listed] == 1 {
			var mu refitv1.MachineUpdate
			require.NoError(t, w.Get(t.Context(), keys[0], &mu))
			mu.Spec.Digest = "of another replica"
			require.NoError(t, w.Update(t.Context(), &mu))
		}
		return nil
	})
	w.one(r)
	require.Equal(t, namesOf(keys[1:]), w.recordedOf(keys))
	var mu refitv1.MachineUpdate
	require.NoError(t, w.Get(t.Context(), keys[0], &mu))
	require.Equal(t, "of another replica", mu.Spec.Digest)
}

// TestWhatCannotBeListedIsReadByItself counts the requests by which each is read.
func TestWhatCannotBeListedIsReadByItself(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "bootstrap.cluster.x-k8s.io", Resource: "kubeadmconfigs"}, "", errors.New("no role allows it"))
	for name, tc := range map[string]struct {
		fails       func(kind string) error
		change      func(w *world, keys []types.NamespacedName)
		first, next tally
	}{
		"nothing fails":          {first: tally{listed: 2}, next: tally{listed: 2}},
		"the API server is ill":  {fails: func(string) error { return errors.New("ill") }, first: tally{single: 18}, next: tally{single: 18}},
		"Machines are forbidden": {fails: func(string) error { return forbidden }, first: tally{single: 18}, next: tally{single: 18}},
		"specs are forbidden": {fails: func(kind string) error {
			if kind == "Machine" {
				return nil
			}
			return forbidden
		}, first: tally{listed: 1, single: 18}, next: tally{single: 18}},
		"a Machine without the label": {change: func(w *world, keys []types.NamespacedName) {
			var m clusterv1.Machine
			require.NoError(w.t, w.Get(w.t.Context(), keys[2], &m))
			m.Labels = nil
			require.NoError(w.t, w.Update(w.t.Context(), &m))
		}, first: tally{listed: 2, single: 3}, next: tally{listed: 2, single: 3}},
		"specs without the label": {change: func(w *world, keys []types.NamespacedName) {
			var config bootstrapv1.KubeadmConfig
			require.NoError(w.t, w.Get(w.t.Context(), keys[2], &config))
			config.Labels = nil
			require.NoError(w.t, w.Update(w.t.Context(), &config))
		}, first: tally{listed: 2, single: 3}, next: tally{listed: 2, single: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := recorded(t)
			keys := w.addMachines(6)
			if tc.change != nil {
				tc.change(w, keys)
			}
			for _, want := range []tally{tc.first, tc.next} {
				c := tally{}
				w.onLists(c, func(kind string) error {
					if tc.fails != nil {
						return tc.fails(kind)
					}
					return nil
				})
				w.askEach(keys)
				w.one(r)
				require.Equal(t, namesOf(keys), w.recordedOf(keys))
				delete(c, "get v1.PartialObjectMetadata")
				require.Equal(t, want, c)
				for _, k := range keys {
					w.edit(k)
				}
			}
		})
	}
}

// TestForbiddenListsAreTriedAgainLater when somebody may have allowed them.
func TestForbiddenListsAreTriedAgainLater(t *testing.T) {
	w, r := recorded(t)
	keys := w.addMachines(leastListed)
	tries := 0
	w.onLists(tally{}, func(string) error {
		tries++
		return apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no role allows it"))
	})
	for _, want := range []int{1, 1, 2} {
		w.askEach(keys)
		w.one(r)
		require.Equal(t, want, tries)
		for _, k := range keys {
			w.edit(k)
		}
		w.clock.Step(singlyFor / 2)
	}
}

// TestALargeClusterIsNotListedForAFew compares what is asked for with what the Cluster has.
func TestALargeClusterIsNotListedForAFew(t *testing.T) {
	w, r := recorded(t)
	keys := w.addMachines(leastPart * leastListed)
	for _, n := range []int{leastListed - 1, leastListed} { // the world has a Machine of its own
		c := tally{}
		w.onLists(c, func(string) error { return nil })
		w.askEach(keys[:n])
		w.one(r)
		require.Equal(t, namesOf(keys[:n]), w.recordedOf(keys))
		require.Zero(t, c[listed])
		for _, k := range keys[:n] {
			w.edit(k)
		}
	}
	c := tally{}
	w.onLists(c, func(string) error { return nil })
	w.askEach(keys[:leastListed+1])
	w.one(r)
	require.Equal(t, namesOf(keys[:leastListed+1]), w.recordedOf(keys))
	require.Equal(t, 2, c[listed])
	require.Zero(t, c[single])
}

// TestWhatWasListedLongAgoIsReadAgain has writes take so long that what was listed is old.
func TestWhatWasListedLongAgoIsReadAgain(t *testing.T) {
	w, r := recorded(t)
	r.turns = make(chan struct{}, 1) // one after the other
	keys := w.addMachines(6)
	writes := 0
	w.store.Client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if writes++; writes == 1 {
				w.clock.Step(listedFor)
			}
			return c.Create(ctx, obj, opts...)
		},
	})
	c := tally{}
	w.onLists(c, func(string) error { return nil })
	w.askEach(keys)
	w.one(r)
	require.Len(t, w.recordedOf(keys), 1)
	w.one(r)
	require.Equal(t, namesOf(keys), w.recordedOf(keys))
	require.Equal(t, 4, c[listed])
	require.Zero(t, r.asks.number())
}

// TestAListOfManyPages has the API server answer a page at a time, and without end.
func TestAListOfManyPages(t *testing.T) {
	for name, endless := range map[string]bool{"it ends": false, "it does not": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			keys := w.addMachines(3)
			var round []*candidate
			for _, k := range keys {
				round = append(round, &candidate{key: k})
			}
			var pages []string
			live := interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					o := (&client.ListOptions{}).ApplyOptions(opts)
					require.Equal(t, int64(listPage), o.Limit)
					require.Nil(t, o.Raw, "the most recent state")
					pages = append(pages, o.Continue)
					if err := c.List(ctx, list, client.InNamespace(o.Namespace)); err != nil {
						return err
					}
					page := list.(*unstructured.UnstructuredList)
					if i := len(pages) - 1; i < len(keys) {
						page.Items = slices.DeleteFunc(page.Items, func(u unstructured.Unstructured) bool { return u.GetName() != keys[i].Name })
					}
					if endless || len(pages) < len(keys) {
						list.SetContinue(fmt.Sprint(len(pages)))
					}
					return nil
				},
			})
			b := newBulk(live, w.clock, ofC1, round)
			found, err := b.list(t.Context(), clusterv1.GroupVersion.WithKind("Machine"))
			if endless {
				require.ErrorIs(t, err, errTooMany)
				require.Len(t, pages, maxPages)
				return
			}
			require.NoError(t, err)
			require.Equal(t, []string{"", "1", "2"}, pages)
			require.Equal(t, namesOf(keys), slices.Sorted(maps.Keys(found)))
		})
	}
}

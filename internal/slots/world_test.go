package slots

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/index"
	"github.com/capi-refit/refit/internal/managementtest"
)

var (
	start   = managementtest.Start
	errDown = errors.New("it is down")
	updates = schema.GroupResource{Group: refitv1.GroupVersion.Group, Resource: "machineupdates"}
)

// testingT is a test or a property.
type testingT interface {
	require.TestingT
	Helper()
}

// state is what is stored, by type and key.
type state map[string]client.Object

func keyOf(obj client.Object, key types.NamespacedName) string { return fmt.Sprintf("%T %s", obj, key) }

// change is one write: an object as it is from then on, or that it is gone.
type change struct {
	key string
	obj client.Object
}

// world is a management cluster with a cache that may be behind, and a leader.
type world struct {
	testingT
	clock *clocktesting.FakePassiveClock
	slots *Slots
	held  map[string]string
	asked int

	mu       sync.Mutex
	live     state
	cache    state
	log      []change
	seen     int // how much of the log the cache has
	frozen   bool
	made     int
	fail     func(verb string, obj any) error // of the API server
	getsLive int
}

func newWorld(t testingT, limits Limits, objects ...client.Object) *world {
	w := &world{testingT: t, clock: clocktesting.NewFakePassiveClock(start), live: state{}, cache: state{}}
	for _, obj := range objects {
		w.put(obj)
	}
	w.lead(limits)
	return w
}

// lead has another process lead, which remembers nothing.
func (w *world) lead(limits Limits) {
	w.slots = &Slots{Client: reader{w, false}, Live: reader{w, true}, Limits: limits, Clock: w.clock}
}

// put writes an object, without a look at what is there. It gets a uid if it has none.
func (w *world) put(obj client.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.store(obj)
}

func (w *world) store(obj client.Object) {
	if obj.GetUID() == "" {
		w.made++
		obj.SetUID(types.UID(fmt.Sprintf("uid-%d", w.made)))
	}
	obj.SetResourceVersion(strconv.Itoa(100 + len(w.log)))
	w.apply(change{keyOf(obj, client.ObjectKeyFromObject(obj)), obj.DeepCopyObject().(client.Object)})
}

func (w *world) apply(c change) {
	w.live.apply(c)
	w.log = append(w.log, c)
	if !w.frozen {
		w.watch(len(w.log))
	}
}

func (s state) apply(c change) {
	if c.obj == nil {
		delete(s, c.key)
		return
	}
	s[c.key] = c.obj
}

// remove deletes the Machine of a name, and its MachineUpdate.
func (w *world) remove(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, obj := range []client.Object{&clusterv1.Machine{}, &refitv1.MachineUpdate{}} {
		w.apply(change{key: keyOf(obj, keyed(name))})
	}
}

// watch brings the cache to where it is after the first n writes, which can be before where it was: another replica's.
func (w *world) watch(n int) {
	if n < w.seen {
		w.cache, w.seen = state{}, 0
	}
	for ; w.seen < n; w.seen++ {
		w.cache.apply(w.log[w.seen])
	}
}

// freeze has the cache stay as it is, thaw lets it see everything.
func (w *world) freeze() { w.frozen = true }
func (w *world) thaw()   { w.frozen = false; w.watch(len(w.log)) }

// update writes an object as the API server does.
func (w *world) update(mu *refitv1.MachineUpdate) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, ok := w.live[keyOf(mu, client.ObjectKeyFromObject(mu))]
	switch {
	case !ok:
		return apierrors.NewNotFound(updates, mu.Name)
	case now.GetResourceVersion() != mu.ResourceVersion || now.GetUID() != mu.UID:
		return apierrors.NewConflict(updates, mu.Name, errors.New("the object has been modified"))
	}
	w.store(mu)
	return nil
}

// edit changes the live MachineUpdate of a name.
func (w *world) edit(name string, edits ...func(*refitv1.MachineUpdate)) {
	w.Helper()
	mu := get(w, name, &refitv1.MachineUpdate{})
	for _, e := range edits {
		e(mu)
	}
	require.NoError(w, w.update(mu))
}

func keyed(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "fleet", Name: name}
}

// get returns an object of a name as it is on the API server.
func get[T client.Object](w *world, name string, obj T) T {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	require.NoError(w, w.live.get(keyed(name), obj))
	return obj
}

// Taken implements Peers.
func (w *world) Taken(context.Context) (map[string]string, error) {
	w.asked++
	return w.held, nil
}

// take takes a slot for the Machine of a name as the controller does. It returns why there is none, or "".
func (w *world) take(name string) string {
	w.Helper()
	full, err := w.tryTake(name, nil)
	require.NoError(w, err)
	if full == nil {
		return ""
	}
	require.NotEmpty(w, full.Message)
	require.GreaterOrEqual(w, full.RetryAfter, retryAtLeast)
	require.LessOrEqual(w, full.RetryAfter, retryAtMost)
	return full.Message
}

// tryTake takes a slot. before is done when the slot is to be written, and if it returns an error that is the answer.
func (w *world) tryTake(name string, before func(*refitv1.MachineUpdate) error) (*Full, error) {
	mu := get(w, name, &refitv1.MachineUpdate{})
	return w.slots.Take(context.Background(), get(w, name, &clusterv1.Machine{}), mu, w, func() error {
		holds(mu)
		if before != nil {
			if err := before(mu); err != nil {
				return err
			}
		}
		return w.update(mu)
	})
}

// holding returns the names of the Machines of a role that have a slot.
func (w *world) holding(role refitv1.Role) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var names []string
	for _, key := range slices.Sorted(maps.Keys(w.live)) {
		mu, ok := w.live[key].(*refitv1.MachineUpdate)
		if !ok || mu.Status.Slot == nil {
			continue
		}
		m, ok := w.live[keyOf(&clusterv1.Machine{}, client.ObjectKeyFromObject(mu))].(*clusterv1.Machine)
		if ok && metav1.IsControlledBy(mu, m) && memberOf(m).role == role {
			names = append(names, mu.Name)
		}
	}
	return names
}

// reader reads from the API server or from the cache.
type reader struct {
	w    *world
	live bool
}

func (r reader) state() state {
	if r.live {
		return r.w.live
	}
	return r.w.cache
}

func (r reader) failing(verb string, obj any) error {
	if r.w.fail == nil || !r.live {
		return nil
	}
	return r.w.fail(verb, obj)
}

func (r reader) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if r.live {
		r.w.getsLive++
	}
	if err := r.failing("get", obj); err != nil {
		return err
	}
	return r.state().get(key, obj)
}

func (s state) get(key types.NamespacedName, obj client.Object) error {
	found, ok := s[keyOf(obj, key)]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(found.DeepCopyObject()).Elem())
	return nil
}

func (r reader) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if err := r.failing("list", list); err != nil {
		return err
	}
	var o client.ListOptions
	o.ApplyOptions(options)
	of := strings.TrimSuffix(fmt.Sprintf("%T ", list), "List ") + " "
	var items []runtime.Object
	for key, obj := range r.state() {
		found := o.FieldSelector == nil || o.FieldSelector.Matches(fields.Set{index.Cluster: strings.Join(index.ByCluster(obj), "")})
		if strings.HasPrefix(key, of) && obj.GetNamespace() == o.Namespace && found {
			items = append(items, obj)
		}
	}
	return meta.SetList(list, items)
}

// noList is a reader that can't list one type.
type noList struct {
	client.Reader
	what client.ObjectList
}

func (r noList) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if reflect.TypeOf(list) == reflect.TypeOf(r.what) {
		return errDown
	}
	return r.Reader.List(ctx, list, options...)
}

// noGet is a reader that can't read a MachineUpdate.
type noGet struct{ client.Reader }

func (r noGet) Get(ctx context.Context, key client.ObjectKey, obj client.Object, options ...client.GetOption) error {
	if _, ok := obj.(*refitv1.MachineUpdate); ok {
		return errDown
	}
	return r.Reader.Get(ctx, key, obj, options...)
}

// counter counts lists.
type counter struct {
	client.Reader
	n int
}

func (r *counter) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	r.n++
	return r.Reader.List(ctx, list, options...)
}

package changemanagement

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/policykind/policykindtest"
)

// fields tells when an annotation was set, or something else by the same manager, as an API server does.
type fields struct {
	client.Reader
	at time.Time
}

func (f fields) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	err := f.Reader.Get(ctx, key, obj, opts...)
	if !f.at.IsZero() {
		obj.SetManagedFields(managed(f.at, permissiveKey))
	}
	return err
}

// noting is a world with one override, and what notes since when it is there.
type noting struct {
	*world
	since  *Since
	object string
}

func newNoting(t *testing.T, object string) *noting {
	all := everyKind()
	for _, obj := range all {
		if kindName(obj) == object {
			obj.SetAnnotations(map[string]string{permissiveKey: always})
		}
	}
	w := newWorld(t, append(all, never("a"))...)
	return &noting{world: w, since: &Since{Client: w, Live: w, Clock: w.Clock}, object: object}
}

// look has each object looked at, as its controller does.
func (n *noting) look() error {
	for name, look := range map[string]func(context.Context, ctrl.Request) (ctrl.Result, error){
		"c1": n.since.of("Cluster"), "md": n.since.of("MachineDeployment"), "w1": n.since.machine, "cp1": n.since.machine, "gone": n.since.machine,
	} {
		if _, err := look(n.T.Context(), policykindtest.Request(name)); err != nil {
			return err
		}
	}
	return nil
}

// found returns the object with the override.
func (n *noting) found() client.Object {
	for _, obj := range everyKind() {
		if kindName(obj) == n.object {
			require.NoError(n.T, n.Get(n.T.Context(), client.ObjectKeyFromObject(obj), obj))
			return obj
		}
	}
	require.Fail(n.T, "there is no "+n.object)
	return nil
}

func (n *noting) note() string { return n.found().GetAnnotations()[refitv1.PermissiveSinceAnnotation] }

// set sets permissive-until to another value, or takes it away.
func (n *noting) set(value string) {
	obj := n.found()
	all := obj.GetAnnotations()
	all[permissiveKey] = value
	if value == "" {
		delete(all, permissiveKey)
	}
	obj.SetAnnotations(all)
	require.NoError(n.T, n.Update(n.T.Context(), obj))
}

// ask asks about the Machine of the object.
func (n *noting) ask() Decision {
	m := get(n.world, map[bool]string{true: "cp1", false: "w1"}[n.object == "KubeadmControlPlane kcp" || n.object == "Machine cp1"], &clusterv1.Machine{})
	s, err := Candidates{n}.Machine(n.T.Context(), m)
	require.NoError(n.T, err)
	policies, err := n.policies.Select(s)
	require.NoError(n.T, err)
	return Decide(n.Clock.Now(), s, policies, Change{})
}

// TestSinceWhenAnOverrideIsThere: it is noted once, and whatever else the same manager changes later does not move it. An override that
// is over does not come back.
func TestSinceWhenAnOverrideIsThere(t *testing.T) {
	for _, object := range []string{"Cluster c1", "MachineDeployment md", "KubeadmControlPlane kcp", "Machine w1", "Machine cp1"} {
		t.Run(object, func(t *testing.T) {
			n := newNoting(t, object)
			require.False(t, n.ask().Open, "nobody has noted it yet")
			require.NoError(t, n.look())
			require.Equal(t, text(inside)+" true", n.note())
			require.True(t, n.ask().Open)

			n.Clock.SetTime(inside.Add(72 * time.Hour))
			n.since.Live = fields{n, n.Clock.Now()}
			require.NoError(t, n.look())
			require.Equal(t, text(inside)+" true", n.note())
			require.Contains(t, n.ask().Message, "has been there for longer than 48h0m0s")

			soon := text(n.Clock.Now().Add(time.Hour))
			n.set(soon)
			require.False(t, n.ask().Open, "the note is of another value")
			require.NoError(t, n.look())
			require.Equal(t, text(n.Clock.Now())+" "+soon, n.note())
			require.True(t, n.ask().Open)

			n.set("")
			require.NoError(t, n.look())
			require.NotContains(t, n.found().GetAnnotations(), refitv1.PermissiveSinceAnnotation)
			version := n.found().GetResourceVersion()
			require.NoError(t, n.look())
			require.Equal(t, version, n.found().GetResourceVersion(), "there is nothing left to do")
		})
	}
}

// TestTooFarAheadStaysTooFarAhead, also when its end comes near.
func TestTooFarAheadStaysTooFarAhead(t *testing.T) {
	n := newNoting(t, "Cluster c1")
	n.set(text(inside.Add(7 * 24 * time.Hour)))
	require.NoError(t, n.look())
	require.Contains(t, n.ask().Message, "the policies allow at most 48h0m0s ahead")
	n.Clock.SetTime(inside.Add(6 * 24 * time.Hour))
	n.since.Live = fields{n, n.Clock.Now()}
	require.NoError(t, n.look())
	require.Contains(t, n.ask().Message, "the policies allow at most 48h0m0s ahead")
}

// TestAnOverrideThatWasSetWhileNobodyLed counts from when the API server says that it was there.
func TestAnOverrideThatWasSetWhileNobodyLed(t *testing.T) {
	n := newNoting(t, "Cluster c1")
	n.since.Live = fields{n, inside.Add(-time.Hour)}
	require.NoError(t, n.look())
	require.Equal(t, text(inside.Add(-time.Hour))+" true", n.note())

	n = newNoting(t, "Cluster c1")
	n.since.Live = fields{n, inside.Add(time.Hour)} // its clock is ahead
	require.NoError(t, n.look())
	require.Equal(t, text(inside)+" true", n.note())
}

func TestANoteThatCannotBeWritten(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want func(*testing.T, ctrl.Result, error)
	}{
		"somebody else writes": {apierrors.NewConflict(schema.GroupResource{}, "c1", nil), func(t *testing.T, r ctrl.Result, err error) {
			require.NoError(t, err)
			require.Equal(t, time.Second, r.RequeueAfter)
		}},
		"it is gone": {apierrors.NewNotFound(schema.GroupResource{}, "c1"), func(t *testing.T, r ctrl.Result, err error) {
			require.NoError(t, err)
			require.Zero(t, r)
		}},
		"the API server is away": {errDown, func(t *testing.T, _ ctrl.Result, err error) {
			require.ErrorIs(t, err, errDown)
			require.ErrorContains(t, err, "Cluster fleet/c1")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNoting(t, "Cluster c1")
			under, ok := n.Client.(client.WithWatch)
			require.True(t, ok)
			n.since.Client = interceptor.NewClient(under, interceptor.Funcs{
				Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
					return tc.err
				},
			})
			result, err := n.since.of("Cluster")(t.Context(), policykindtest.Request("c1"))
			tc.want(t, result, err)
			require.False(t, n.ask().Open)
		})
	}
	n := newNoting(t, "KubeadmControlPlane kcp")
	n.since.Client, n.since.Live = failing{}, failing{}
	require.ErrorIs(t, n.look(), errDown)
}

// TestControlPlanesAreLookedAtAgain: nothing watches them.
func TestControlPlanesAreLookedAtAgain(t *testing.T) {
	n := newNoting(t, "Machine w1")
	for machine, again := range map[string]time.Duration{"cp1": lookAgain, "w1": 0, "gone": 0} {
		result, err := n.since.machine(t.Context(), policykindtest.Request(machine))
		require.NoError(t, err)
		require.Equal(t, again, result.RequeueAfter, machine)
	}
}

func TestWhenAnAnnotationWasSet(t *testing.T) {
	hourAgo := inside.Add(-time.Hour)
	for name, tc := range map[string]struct {
		fields []metav1.ManagedFieldsEntry
		want   time.Time
	}{
		"nobody tells":                          {nil, time.Time{}},
		"by one manager":                        {managed(hourAgo, permissiveKey), hourAgo},
		"other annotations are not this one":    {managed(hourAgo, permissiveKey+"-reason"), time.Time{}},
		"of more managers the first one counts": {append(managed(hourAgo, permissiveKey), managed(inside, permissiveKey)...), hourAgo},
		"in whatever order they are":            {append(managed(inside, permissiveKey), managed(hourAgo, permissiveKey)...), hourAgo},
		"managers without a time or fields":     {[]metav1.ManagedFieldsEntry{{Manager: "a"}, {Manager: "b", Time: &metav1.Time{Time: inside}}}, time.Time{}},
	} {
		require.Equal(t, tc.want, setAt(&clusterv1.Machine{ObjectMeta: objectMeta{ManagedFields: tc.fields}}, permissiveKey), name)
	}
}

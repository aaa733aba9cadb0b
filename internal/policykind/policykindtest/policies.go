package policykindtest

import (
	"context"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// Kind is a kind of policies P, whose field Spec is an S with a field Selector.
type Kind[P client.Object, S any] struct{}

func (Kind[P, S]) new() P { return reflect.New(reflect.TypeFor[P]().Elem()).Interface().(P) }

func (Kind[P, S]) edit(p P, edits []func(*S)) {
	for _, e := range edits {
		e(field[S](p, "Spec"))
	}
}

func field[T any](of any, name string) *T {
	return reflect.ValueOf(of).Elem().FieldByName(name).Addr().Interface().(*T)
}

// Policy returns a policy as it was created.
func (k Kind[P, S]) Policy(name string, edits ...func(*S)) P {
	p := k.new()
	*field[metav1.ObjectMeta](p, "ObjectMeta") = metav1.ObjectMeta{Namespace: Namespace, Name: name, UID: types.UID("uid-" + name), Generation: 1}
	k.edit(p, edits)
	return p
}

// Roles has a policy select Machines of roles.
func (Kind[P, S]) Roles(all ...refitv1.Role) func(*S) {
	return func(s *S) { field[refitv1.MachinesSelector](s, "Selector").Roles = all }
}

// Clusters has a policy select the Machines of Clusters with labels.
func (Kind[P, S]) Clusters(labels map[string]string) func(*S) {
	return func(s *S) { field[refitv1.MachinesSelector](s, "Selector").Clusters.MatchLabels = labels }
}

// Policies is a World with policies of a kind.
type Policies[P client.Object, S any] struct {
	*World
	kind   Kind[P, S]
	reader reconcile.Reconciler
}

// World returns a World for the policies of the kind.
func (k Kind[P, S]) World(t testing.TB, options ...Option) *Policies[P, S] {
	t.Helper()
	return &Policies[P, S]{World: New(t, options...), kind: k}
}

// Prime has all policies read, and Reread read them by the same reader.
func (w *Policies[P, S]) Prime(reader interface {
	reconcile.Reconciler
	Prime(context.Context) error
},
) {
	w.T.Helper()
	w.reader = reader
	require.NoError(w.T, reader.Prime(w.T.Context()))
}

// Reread has the policy of a name read again.
func (w *Policies[P, S]) Reread(name string) ctrl.Result {
	w.T.Helper()
	return w.Reconcile(w.reader, name)
}

// Policy returns the policy of a name as it is now.
func (w *Policies[P, S]) Policy(name string) P {
	w.T.Helper()
	return Get(w.World, name, w.kind.new())
}

// Change changes a policy as an API server does: it has a new generation then, which is not read yet.
func (w *Policies[P, S]) Change(name string, edits ...func(*S)) {
	w.T.Helper()
	Change(w.World, name, w.kind.new(), func(p P) { w.kind.edit(p, edits) })
}

package policykindtest

import (
	"github.com/stretchr/testify/require"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Get reads an object by its name, also while the API server is down.
func Get[T client.Object](w *World, name string, obj T) T {
	w.T.Helper()
	require.NoError(w.T, w.Client.Get(w.T.Context(), Key(name), obj))
	return obj
}

// Change changes the spec of an object as an API server does: it has a new generation then.
func Change[T client.Object](w *World, name string, obj T, edit func(T)) {
	w.T.Helper()
	edit(Get(w, name, obj))
	obj.SetGeneration(obj.GetGeneration() + 1)
	require.NoError(w.T, w.Update(w.T.Context(), obj))
}

// Reconcile has a reconciler look at what has a name.
func (w *World) Reconcile(r reconcile.Reconciler, name string) ctrl.Result {
	w.T.Helper()
	result, err := r.Reconcile(w.T.Context(), Request(name))
	require.NoError(w.T, err)
	return result
}

// RequireEvent requires that the first Event that was not asked for yet matches a regular expression.
func (w *World) RequireEvent(pattern string) {
	w.T.Helper()
	select {
	case e := <-w.Events.Events:
		require.Regexp(w.T, pattern, e)
	default:
		require.Failf(w.T, "no Event", "want one that matches %q", pattern)
	}
}

// RequireNoEvent requires that all Events were asked for.
func (w *World) RequireNoEvent(why ...any) {
	w.T.Helper()
	require.Empty(w.T, w.Events.Events, why...)
}

package rotation

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/policykind/policykindtest"
)

var extensionConfigs = runtimev1.GroupVersion.WithKind("ExtensionConfig")

// extension is an ExtensionConfig by which Cluster API asks refit about all machines.
func extension() *unstructured.Unstructured {
	const name = "refit"
	o := &unstructured.Unstructured{Object: object{
		"spec": object{"clientConfig": object{"url": "https://refit.example", "caBundle": "Y2E="}, "namespaceSelector": object{}},
		"status": object{"handlers": []any{
			object{"name": "before-cluster-upgrade." + name}, object{"name": "can-update-machine." + name}, object{"name": "can-update-machine-set." + name},
		}},
	}}
	o.SetGroupVersionKind(extensionConfigs)
	o.SetName(name)
	o.SetUID(types.UID("uid-" + name))
	o.SetGeneration(1)
	return with(o, discovered("True", 1, "2026-10-01T00:00:00Z"))
}

func discovered(status string, generation int64, since string) func(*unstructured.Unstructured) {
	return field([]any{object{
		"type": "Discovered", "status": status, "observedGeneration": generation, "lastTransitionTime": since, "message": "no\n  route",
	}}, "status", "conditions")
}

func selecting(value string) func(*unstructured.Unstructured) {
	return field(object{"matchLabels": object{"refit": value}}, "spec", "namespaceSelector")
}

// extension changes the ExtensionConfig refit as an API server and Cluster API do.
func (w *world) extension(edits ...func(*unstructured.Unstructured)) {
	w.T.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(extensionConfigs)
	require.NoError(w.T, w.Get(w.T.Context(), types.NamespacedName{Name: "refit"}, o))
	require.NoError(w.T, w.Update(w.T.Context(), with(o, edits...)))
}

// TestNobodyIsAsked: where Cluster API does not ask refit it replaces machines, whatever refit would answer.
func TestNobodyIsAsked(t *testing.T) {
	without := func(handler string) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) {
			all, _, _ := unstructured.NestedSlice(o.Object, "status", "handlers")
			field(slices.DeleteFunc(all, func(h any) bool { return h.(object)["name"] == handler }), "status", "handlers")(o)
		}
	}
	for name, tc := range map[string]struct {
		edit    func(*unstructured.Unstructured)
		message string
	}{
		"it answers for the namespace":    {selecting("yes"), ""},
		"it answers for other namespaces": {selecting("no"), "about machines of namespace fleet, since ExtensionConfig refit does not select it; widen"},
		"it answers for no namespace": {func(o *unstructured.Unstructured) {
			unstructured.RemoveNestedField(o.Object, "spec", "namespaceSelector")
		}, "does not select it"},
		"its selector can't be read":         {field(object{"matchExpressions": []any{object{"key": "a", "operator": "Is"}}}, "spec", "namespaceSelector"), "can't be read"},
		"it was not discovered yet":          {func(o *unstructured.Unstructured) { delete(o.Object, "status") }, "no ExtensionConfig has refit's handlers can-update-machine and"},
		"it can't be reached":                {discovered("False", 1, "2026-10-01T00:00:00Z"), "is not discovered (no route)"},
		"it was changed after the discovery": {func(o *unstructured.Unstructured) { o.SetGeneration(2) }, "is not discovered yet"},
		"the control-plane manager takes none": {func(o *unstructured.Unstructured) {
			unstructured.RemoveNestedField(o.Object, "spec", "clientConfig", "caBundle")
		}, "has no caBundle"},
		"nobody is asked for a Machine":    {without("can-update-machine.refit"), "no ExtensionConfig has refit's handlers"},
		"nobody is asked for a MachineSet": {without("can-update-machine-set.refit"), "no ExtensionConfig has refit's handlers"},
		"the handlers are another's": {func(o *unstructured.Unstructured) {
			without("can-update-machine.refit")(with(o, served("can-update-machine.other")))
		}, "no ExtensionConfig"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(basis(), deployment("workers", "Metal3MachineTemplate", "base"))...)
			w.extension(tc.edit)
			w.settle()
			if tc.message == "" {
				require.Equal(t, refitv1.TargetRotated, w.target().State, w.target().Message)
				return
			}
			w.requireStays(deployments, "workers", refitv1.TargetRefused,
				"nothing was committed, since Cluster API would replace machines: it does not ask refit", tc.message)
			w.requireRotatedIfAllowed()
		})
	}
}

// requireStays requires that the target was left at its template, and that its message says all of that.
func (w *world) requireStays(f family, name string, state refitv1.BootImageTargetState, says ...string) {
	w.T.Helper()
	require.Equal(w.T, state, w.target().State)
	for _, text := range says {
		require.Contains(w.T, w.target().Message, text)
	}
	require.Zero(w.T, w.creates)
	require.Equal(w.T, "base", w.refersTo(f, name))
}

// requireRotatedIfAllowed requires that the target is brought to the image when machines may be replaced.
func (w *world) requireRotatedIfAllowed() {
	w.T.Helper()
	w.Change("p", func(s *refitv1.BootImagePolicySpec) { s.Rotation.Replacement = refitv1.AllowReplacement })
	w.settle()
	require.Equal(w.T, refitv1.TargetRotated, w.target().State, "machines may be replaced")
}

// served adds a handler.
func served(handler string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		all, _, _ := unstructured.NestedSlice(o.Object, "status", "handlers")
		field(append(all, object{"name": handler}), "status", "handlers")(o)
	}
}

// TestAnExtensionThatGoes is not asked any more, though it is still there.
func TestAnExtensionThatGoes(t *testing.T) {
	w := newWorld(t, append(basis(), deployment("workers", "Metal3MachineTemplate", "base"))...)
	w.extension(func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"example.com/held"}) })
	require.NoError(t, w.Delete(t.Context(), extension()))
	w.settle()
	require.Equal(t, refitv1.TargetRefused, w.target().State)
	require.Contains(t, w.target().Message, "ExtensionConfig refit is being deleted")
}

// TestMachinesThatPeopleDeleteAskNobody: with OnDelete the hooks are not called at all.
func TestMachinesThatPeopleDeleteAskNobody(t *testing.T) {
	w := newWorld(t, append(basis(), with(deployment("workers", "Metal3MachineTemplate", "base"), field("OnDelete", "spec", "rollout", "strategy", "type")))...)
	require.NoError(t, w.Delete(t.Context(), extension()))
	w.settle()
	require.Equal(t, refitv1.TargetRotated, w.target().State)
}

// TestManagersLearnLater: the manager of control planes learns of an extension, and of what it is for, after the one that says so.
func TestManagersLearnLater(t *testing.T) {
	changed := func(generation int64) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) {
			o.SetGeneration(generation)
			discovered("True", generation, "2026-10-01T00:00:00Z")(o)
		}
	}
	for name, tc := range map[string]struct{ before, after func(*world) }{
		"it is discovered": {
			func(w *world) { w.extension(discovered("False", 1, "2026-10-01T00:00:00Z")) },
			func(w *world) { w.extension(discovered("True", 1, "2026-10-03T20:00:30Z")) },
		},
		"its selector is widened": {
			func(w *world) { w.extension(selecting("no")) },
			func(w *world) { w.extension(selecting("yes"), changed(2)) },
		},
		"the namespace is labelled": {
			func(w *world) { w.extension(selecting("soon")) },
			func(w *world) {
				var ns corev1.Namespace
				require.NoError(w.T, w.Get(w.T.Context(), types.NamespacedName{Name: namespace}, &ns))
				ns.Labels["refit"] = "soon"
				require.NoError(w.T, w.Update(w.T.Context(), &ns))
			},
		},
		"it was narrowed and widened": {func(*world) {}, func(w *world) { w.extension(changed(3)) }},
		"it was lost and found":       {func(*world) {}, func(w *world) { w.extension(discovered("True", 1, "2026-10-03T20:00:30Z")) }},
		"it is registered again": {
			func(*world) {}, func(w *world) {
				require.NoError(w.T, w.Delete(w.T.Context(), extension()))
				again := extension()
				again.SetUID("uid-again")
				require.NoError(w.T, w.Create(w.T.Context(), again))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(basis(), with(deployment("workers", "Metal3MachineTemplate", "base"), annotated("cluster.x-k8s.io/paused", "")))...)
			tc.before(w)
			w.settle()
			w.setBack("base", func(o *unstructured.Unstructured) { o.SetAnnotations(nil) })
			tc.after(w)
			w.requireSettling("all of Cluster API's managers can be expected to know that they are to ask refit")
		})
	}
}

// TestWithoutTheRights: refit says which rights it lacks, and commits nothing.
func TestWithoutTheRights(t *testing.T) {
	no := func(resource string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", nil)
	}
	for name, tc := range map[string]struct {
		list, get error
		message   string
	}{
		"to list ExtensionConfigs":  {no("extensionconfigs"), nil, "refit may not list ExtensionConfigs"},
		"to read the Namespace":     {nil, no("namespaces"), "refit may not read the Namespace"},
		"the API server is down":    {policykindtest.ErrDown, nil, ""},
		"it goes down between them": {nil, policykindtest.ErrDown, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(basis(), deployment("workers", "Metal3MachineTemplate", "base"))...)
			w.extension(selecting("yes"))
			w.controller.Live = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					if list.GetObjectKind().GroupVersionKind().Kind == "ExtensionConfigList" && tc.list != nil {
						return tc.list
					}
					return c.List(ctx, list, opts...)
				},
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
					if _, is := obj.(*corev1.Namespace); is && tc.get != nil {
						return tc.get
					}
					return c.Get(ctx, key, obj, opts...)
				},
			})
			if tc.message == "" {
				_, err := w.reconcile()
				require.ErrorIs(t, err, policykindtest.ErrDown)
				return
			}
			w.settle()
			require.Equal(t, refitv1.TargetRefused, w.target().State)
			require.Contains(t, w.target().Message, tc.message)
		})
	}
}

// TestHandlersAreThoseServed: what is looked for in ExtensionConfigs is what refit registers.
func TestHandlersAreThoseServed(t *testing.T) {
	served := read(t, "..", "..", "..", "internal", "server", "server.go")
	require.Contains(t, served, `{Hook: runtimehooksv1.CanUpdateMachine, Name: "`+hooks[0]+`",`)
	require.Contains(t, served, `{Hook: runtimehooksv1.CanUpdateMachineSet, Name: "`+hooks[1]+`",`)
}

package rotation

import (
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// TestSetBack: whoever sets a target back again and again is given way to.
func TestSetBack(t *testing.T) {
	forget := func(o *unstructured.Unstructured) { o.SetAnnotations(nil) }
	for name, more := range map[string][]func(*unstructured.Unstructured){
		"and leaves the record":                nil,
		"and takes the record away":            {forget},
		"and writes something into the record": {annotated(refitv1.BootImageRotatedAnnotation, "{")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(basis(), deployment("workers", "Metal3MachineTemplate", "base"))...)
			w.settle()
			for i := range maxTimes {
				require.Equal(t, refitv1.TargetRotated, w.target().State)
				require.Equal(t, int32(i+1), w.target().Times)
				w.setBack("base", more...)
				w.settle()
			}
			require.Equal(t, "base", w.refersTo(deployments, "workers"))
			got := w.target()
			require.Equal(t, refitv1.TargetStopped, got.State)
			require.Contains(t, got.Message, "brought to this image 3 times")
			require.Equal(t, "Stopped", w.condition().Reason)
			require.Len(t, w.told(), maxTimes+1)

			require.NoError(t, w.Update(t.Context(), images(map[string]string{"stream": stream(newImage), "note": "git is right now"})))
			w.settle()
			require.Equal(t, refitv1.TargetRotated, w.target().State, "the ConfigMap has changed")
			require.Equal(t, int32(1), w.target().Times)
		})
	}
}

// TestSetBackWithoutStatus: the record on the target counts even if no status was ever written after it.
func TestSetBackWithoutStatus(t *testing.T) {
	w := newWorld(t, append(basis(), deployment("workers", "Metal3MachineTemplate", "base"))...)
	w.settle()
	for range maxTimes {
		p := w.policy()
		p.Status.Rotation.Targets = nil
		require.NoError(t, w.Status().Update(t.Context(), p))
		w.setBack("base")
		w.settle()
	}
	require.Equal(t, refitv1.TargetStopped, w.target().State)
}

// TestOptingOut leaves all as it is.
func TestOptingOut(t *testing.T) {
	for name, out := range map[string]func(*world){
		"the rotation goes": func(w *world) { w.Change("p", func(s *refitv1.BootImagePolicySpec) { s.Rotation = nil }) },
		"the policy goes":   func(w *world) { require.NoError(w.T, w.Delete(w.T.Context(), w.policy())) },
		"the target is no longer selected": func(w *world) {
			w.setBack(w.refersTo(deployments, "workers"), labelled("golden", "no"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(basis(), deployment("workers", "Metal3MachineTemplate", "base"))...)
			w.settle()
			there, templates := w.refersTo(deployments, "workers"), w.templates()
			out(w)
			w.deletes = 0
			w.settle()
			require.Equal(t, there, w.refersTo(deployments, "workers"))
			require.Equal(t, templates, w.templates())
			require.Zero(t, w.deletes)
			if name == "the rotation goes" { // what it has said goes with it
				require.Nil(t, w.policy().Status.Rotation)
				require.Empty(t, w.policy().Status.Conditions)
			}
		})
	}
}

func TestRefusedByTheAPIServer(t *testing.T) {
	invalid := apierrors.NewInvalid(schema.GroupKind{Group: infrastructure, Kind: "Metal3MachineTemplate"}, "x", nil)
	for name, tc := range map[string]struct {
		arrange func(*world)
		message string
		creates int
	}{
		"the template, in the dry run": {func(w *world) {
			w.onCreate = func(client.Object, bool) error { return invalid }
		}, "the API server does not let refit make Metal3MachineTemplate base-", 0},
		"the target": {func(w *world) {
			w.onPatch = func(o client.Object, _ bool) error {
				if o.GetName() == "workers" {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "machinedeployments"}, "workers", nil)
				}
				return nil
			}
		}, "does not let refit have MachineDeployment workers refer", 1},
		"a template to which the API server would add something": {func(w *world) {
			w.onCreate = func(o client.Object, dryRun bool) error {
				if dryRun {
					field("added", "spec", "template", "spec", "cleaning")(o.(*unstructured.Unstructured))
				}
				return nil
			}
		}, "would add to the spec", 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(basis(), deployment("workers", "Metal3MachineTemplate", "base"))...)
			tc.arrange(w)
			w.settle()
			got := w.target()
			require.Equal(t, refitv1.TargetRefused, got.State)
			require.Contains(t, got.Message, tc.message)
			require.Equal(t, tc.creates, w.creates)
			require.Equal(t, "base", w.refersTo(deployments, "workers"))
			result, err := w.reconcile()
			require.NoError(t, err, "no haste")
			require.Equal(t, refresh, result.RequeueAfter)
			require.Equal(t, tc.creates, w.creates, "and no template more")
		})
	}
}

// TestAnotherOfTheName: what refit did not make is neither taken nor changed.
func TestAnotherOfTheName(t *testing.T) {
	w := newWorld(t, append(basis(), deployment("workers", "Metal3MachineTemplate", "base"))...)
	w.settle()
	name := w.refersTo(deployments, "workers")
	for what, tc := range map[string]struct {
		there   *unstructured.Unstructured
		message string
	}{
		"somebody's": {template(name, newImage), "that refit did not make"},
		"changed": {with(template(name, "https://evil.example/x"), labelled(refitv1.BootImageTemplateLabel, ""),
			annotated(refitv1.BootImageBaseAnnotation, "base")), "has another spec than it had"},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, append(basis(), tc.there, deployment("workers", "Metal3MachineTemplate", "base"))...)
			w.settle()
			require.Equal(t, refitv1.TargetRefused, w.target().State)
			require.Contains(t, w.target().Message, tc.message)
			require.Equal(t, "base", w.refersTo(deployments, "workers"))
		})
	}
}

// TestConflict: a target that has changed since it was judged is judged again.
func TestConflict(t *testing.T) {
	w := newWorld(t, append(basis(), deployment("workers", "Metal3MachineTemplate", "base"))...)
	_, err := w.reconcile()
	require.NoError(t, err)
	w.Clock.Step(settling)
	w.onPatch = func(o client.Object, _ bool) error {
		if o.GetName() == "workers" {
			w.onPatch = nil
			w.setBack("base", annotated("cluster.x-k8s.io/paused", ""))
		}
		return nil
	}
	result, err := w.reconcile()
	require.NoError(t, err)
	require.Equal(t, soon, result.RequeueAfter)
	require.Equal(t, refitv1.TargetPending, w.target().State)
	require.Equal(t, "base", w.refersTo(deployments, "workers"), "somebody has paused it meanwhile")
	w.settle()
	require.Equal(t, refitv1.TargetPaused, w.target().State)
}

// TestStatusWrittenByOthers: conditions of others are not lost, and a conflict is no error.
func TestStatusWrittenByOthers(t *testing.T) {
	w := newWorld(t, append(basis(), deployment("workers", "Metal3MachineTemplate", "base"))...)
	base := w.policy()
	stale := base.DeepCopy()
	other := base.DeepCopy()
	other.Status.Conditions = []metav1.Condition{{Type: refitv1.ReadyCondition, Status: metav1.ConditionTrue, Reason: "Read"}}
	require.NoError(t, w.Status().Update(t.Context(), other))
	stale.Status.Rotation = &refitv1.BootImageRotationStatus{Inputs: "x"}
	written, err := w.controller.write(t.Context(), stale, base)
	require.NoError(t, err)
	require.False(t, written)
	w.settle()
	require.Len(t, w.policy().Status.Conditions, 2)
}

// TestImagesByVersion: each target has the image of its own version of Kubernetes.
func TestImagesByVersion(t *testing.T) {
	w := newWorld(t, append(basis(), deployment("a", "Metal3MachineTemplate", "base"),
		with(deployment("b", "Metal3MachineTemplate", "base"), field("v1.37.0", "spec", "template", "spec", "version")))...)
	require.NoError(t, w.Update(t.Context(), images(map[string]string{
		"stream": stream("https://images.example/any"), "stream.v1.37": stream("https://images.example/for-1.37"),
	})))
	w.settle()
	got := map[string]string{}
	for _, one := range w.policy().Status.Rotation.Targets {
		got[one.Name] = one.Image
	}
	require.Equal(t, map[string]string{"a": "https://images.example/any", "b": "https://images.example/for-1.37"}, got)
	require.NotEqual(t, w.refersTo(deployments, "a"), w.refersTo(deployments, "b"))
}

// TestSecretsInAddresses: what gives access to an image is in its template only.
func TestSecretsInAddresses(t *testing.T) {
	const signed = "https://me:hunter2@images.example/os?signature=hunter2"
	w := newWorld(t, append(basis(), deployment("workers", "Metal3MachineTemplate", "base"))...)
	require.NoError(t, w.Update(t.Context(), images(map[string]string{"stream": stream(signed)})))
	w.settle()
	require.Equal(t, refitv1.TargetRotated, w.target().State)
	require.Regexp(t, `^https://images.example/os \(sha256:[0-9a-f]{12}\)$`, w.target().Image)
	require.NotContains(t, w.object(deployments.gvk, "workers").GetAnnotations()[refitv1.BootImageRotatedAnnotation], "hunter2")
	require.NotContains(t, w.told()[0], "hunter2")
}

// TestBoundedStatus: a status names those first that need somebody, and not more than an API server takes.
func TestBoundedStatus(t *testing.T) {
	objects := append(basis(), with(deployment("zz-last", "Metal3MachineTemplate", "base"), annotated("cluster.x-k8s.io/paused", "")))
	for i := range maxTargets + 5 {
		objects = append(objects, deployment("workers-"+string(rune('a'+i/26))+string(rune('a'+i%26)), "Metal3MachineTemplate", "base"))
	}
	w := newWorld(t, objects...)
	w.settle()
	st := w.policy().Status.Rotation
	require.Len(t, st.Targets, maxTargets)
	require.Equal(t, "zz-last", st.Targets[0].Name)
	require.Equal(t, []int32{maxTargets + 6, maxTargets + 5}, []int32{*st.Selected, *st.UpToDate})
}

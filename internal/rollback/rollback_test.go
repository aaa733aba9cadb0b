package rollback

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// paths are those of what a plan changes.
func paths(p *Plan) []string {
	var out []string
	for _, c := range p.Change {
		for _, f := range c.Fields {
			out = append(out, string(f.Object)+" "+f.String())
		}
	}
	return out
}

func TestAWorkerBecomesWhatItsMachineDeploymentWants(t *testing.T) {
	w := worker(t)
	before := w.get(kindOfCluster("Machine"), "m1")
	p, err := w.rollback().Plan(t.Context(), machineKey)
	require.NoError(t, err)
	require.Equal(t, "MachineDeployment lab/workers", p.Owner)
	require.ElementsMatch(t, []string{
		"machine spec.version", "infrastructureMachine spec.bad", "infrastructureMachine spec.good",
		`bootstrapConfig spec.files[path="/etc/a"].content`, `bootstrapConfig spec.users[name="bad"]`,
	}, paths(p))
	require.Equal(t, "two\n", fileOf(w), "nothing is written yet")

	require.NoError(t, w.rollback().Write(t.Context(), p))
	// What others have set stays, and what only the bad template had is gone.
	require.Equal(t, fields{"size": "small", "good": true, "providerID": "acme://1"}, w.spec(infraKind))
	require.Equal(t, fields{
		"files": []any{file("one\n")}, "joinConfiguration": fields{"nodeRegistration": fields{"name": "n"}},
		"clusterConfiguration": fields{"controlPlaneEndpoint": "10.0.0.1:6443"},
	}, w.spec(configKind))
	for _, kind := range []schema.GroupVersionKind{configKind, infraKind} {
		require.Equal(t, map[string]string{
			clusterv1.UpdateInProgressAnnotation: "", clusterv1.TemplateClonedFromNameAnnotation: "good",
			clusterv1.TemplateClonedFromGroupKindAnnotation: templateOf(kind).GroupKind().String(),
		}, w.get(kind, "m1").GetAnnotations())
		require.Empty(t, w.get(kind, "m1").GetLabels())
	}
	require.NoError(t, unstructured.SetNestedField(before.Object, "v1.36.0", "spec", "version"))
	require.Equal(t, before.Object["spec"], w.spec(kindOfCluster("Machine")))

	p, err = w.rollback().Plan(t.Context(), machineKey)
	require.NoError(t, err)
	require.Empty(t, p.Change, "there is nothing left")
}

func fileOf(w *world) any {
	files, _, _ := unstructured.NestedSlice(w.get(configKind, "m1").Object, "spec", "files")
	return files[0].(fields)["content"]
}

// What refit has written is Cluster API's: a field that its next template no longer has goes.
func TestTheOwnerStillOwnsItsFields(t *testing.T) {
	w := worker(t)
	p, err := w.rollback().Plan(t.Context(), machineKey)
	require.NoError(t, err)
	require.NoError(t, w.rollback().Write(t.Context(), p))
	w.applied(machineSetManager, infraKind, fields{"size": "large"}, nil)
	require.Equal(t, fields{"size": "large", "providerID": "acme://1"}, w.spec(infraKind))
}

func TestAControlPlaneMachineIsUpdatedToJoin(t *testing.T) {
	w := first(t)
	p, err := w.rollback().Plan(t.Context(), machineKey)
	require.NoError(t, err)
	require.Equal(t, "KubeadmControlPlane lab/cp", p.Owner)
	require.Equal(t, []string{`bootstrapConfig spec.files[path="/etc/a"].content`}, paths(p))
	require.NoError(t, w.rollback().Write(t.Context(), p))
	require.Equal(t, fields{
		"files":                []any{file("one\n")},
		"joinConfiguration":    fields{"nodeRegistration": fields{"name": "join"}, "controlPlane": fields{}},
		"clusterConfiguration": fields{"certificatesDir": "/pki", "featureGates": fields{"ControlPlaneKubeletLocalMode": true}},
	}, w.spec(configKind))
	require.Equal(t, map[string]string{clusterv1.UpdateInProgressAnnotation: ""}, w.get(configKind, "m1").GetAnnotations())
	require.Equal(t, "good", w.get(infraKind, "m1").GetAnnotations()[clusterv1.TemplateClonedFromNameAnnotation])
}

// KubeadmControlPlane has written kubeadm-config for the wrong change, and does not write it again when no machine is to be updated.
func TestWhatTheControlPlaneLeavesInTheClusterIsTold(t *testing.T) {
	w := first(t)
	p, err := w.rollback().Plan(t.Context(), machineKey)
	require.NoError(t, err)
	require.Empty(t, p.Warning, "files are not in it")
	for name, value := range map[string]any{"version": "v1.35.1", "kubeadmConfigSpec": fields{"clusterConfiguration": fields{"certificatesDir": "/other"}}} {
		w := first(t)
		w.edit(controlPlane, "cp", value, "spec", name)
		p, err := w.rollback().Plan(t.Context(), machineKey)
		require.NoError(t, err)
		require.Contains(t, p.Warning, "kube-system/kubeadm-config", name)
	}
	w = worker(t)
	p, err = w.rollback().Plan(t.Context(), machineKey)
	require.NoError(t, err)
	require.Empty(t, p.Warning, "that of workers is nobody's but theirs")
}

func TestAMachineSetOnItsOwn(t *testing.T) {
	w := worker(t)
	ms := w.get(kindOfCluster("MachineSet"), "workers-bad")
	ms.SetOwnerReferences(nil)
	require.NoError(t, w.Update(t.Context(), ms))
	p, err := w.rollback().Plan(t.Context(), machineKey)
	require.NoError(t, err)
	require.Equal(t, "MachineSet lab/workers-bad", p.Owner)
	require.Equal(t, []string{`bootstrapConfig spec.users[name="bad"]`}, paths(p), "which the template does not have")
}

func TestRefused(t *testing.T) {
	machine, set, deployment := kindOfCluster("Machine"), kindOfCluster("MachineSet"), kindOfCluster("MachineDeployment")
	owner := func(w *world, o *unstructured.Unstructured, change func(*metav1.OwnerReference)) {
		refs := o.GetOwnerReferences()
		change(&refs[0])
		o.SetOwnerReferences(refs)
		require.NoError(w.t, w.Update(w.t.Context(), o))
	}
	for name, tc := range map[string]struct {
		make    func(*testing.T) *world
		arrange func(*world)
		says    string
	}{
		"no owner": {worker, func(w *world) {
			m := w.get(machine, "m1")
			m.SetOwnerReferences(nil)
			require.NoError(w.t, w.Update(w.t.Context(), m))
		}, "Machine lab/m1 has no owner"},
		"an owner that nobody knows": {worker, func(w *world) {
			owner(w, w.get(machine, "m1"), func(r *metav1.OwnerReference) {
				r.APIVersion, r.Kind = "controlplane.cluster.x-k8s.io/v1", "RKE2ControlPlane"
			})
		}, "Machine lab/m1 belongs to RKE2ControlPlane workers-bad, and refit can tell only"},
		"a MachineSet of a stranger's": {worker, func(w *world) {
			owner(w, w.get(set, "workers-bad"), func(r *metav1.OwnerReference) { r.APIVersion, r.Kind = "acme/v1", "Fleet" })
		}, "MachineSet workers-bad belongs to Fleet workers"},
		"an owner that is another by now": {worker, func(w *world) {
			owner(w, w.get(set, "workers-bad"), func(r *metav1.OwnerReference) { r.UID = "before" })
		}, "MachineDeployment lab/workers, which the Machine belongs to, is gone"},
		"an owner that goes": {worker, func(w *world) {
			o := w.get(deployment, "workers")
			o.SetFinalizers([]string{"a/b"})
			require.NoError(w.t, w.Update(w.t.Context(), o))
			require.NoError(w.t, w.Delete(w.t.Context(), o))
		}, "MachineDeployment lab/workers is being deleted"},
		"no template": {worker, func(w *world) {
			require.NoError(w.t, w.Delete(w.t.Context(), w.get(templateOf(infraKind), "good")))
		}, "AcmeMachineTemplate good, which MachineDeployment lab/workers points to, is not there"},
		"another kind": {worker, func(w *world) {
			other := infraKind
			other.Kind = "OtherMachine"
			w.template(other, "other", fields{})
			w.edit(deployment, "workers", ref(templateOf(other), "other"), "spec", "template", "spec", "infrastructureRef")
		}, "wants a OtherMachine of infrastructure.cluster.x-k8s.io/v1, and the Machine has AcmeMachine of"},
		"another field of the Machine": {worker, func(w *world) {
			w.edit(deployment, "workers", "b", "spec", "template", "spec", "failureDomain")
		}, "wants another spec.failureDomain of the Machine"},
		"a field of the Machine that is new": {worker, func(w *world) {
			w.edit(deployment, "workers", "b", "spec", "template", "spec", "addedLater")
		}, "wants another spec.addedLater of the Machine"},
		"no bootstrap config": {worker, func(w *world) {
			w.edit(deployment, "workers", fields{"dataSecretName": "s"}, "spec", "template", "spec", "bootstrap")
		}, "wants a bootstrap config and the Machine has none, or the other way round"},
		"fields that are nobody's": {worker, func(w *world) {
			o := w.get(configKind, "m1")
			require.NoError(w.t, w.Delete(w.t.Context(), o))
			o.SetResourceVersion("")
			o.SetManagedFields(nil)
			w.create(o)
		}, `Cluster API has applied nothing to KubeadmConfig m1 as "capi-machineset"`},
		"a field of the control plane that is new": {first, func(w *world) {
			w.edit(controlPlane, "cp", "b", "spec", "kubeadmConfigSpec", "addedLater")
		}, `has fields that this version of refit does not know`},
		"a version that is none": {first, func(w *world) {
			w.edit(controlPlane, "cp", "latest", "spec", "version")
		}, "the KubeadmConfig that KubeadmControlPlane lab/cp wants can't be told"},
	} {
		t.Run(name, func(t *testing.T) {
			w := tc.make(t)
			tc.arrange(w)
			_, err := w.rollback().Plan(t.Context(), machineKey)
			var refused *RefusedError
			require.ErrorAs(t, err, &refused)
			require.ErrorContains(t, err, tc.says)
		})
	}
}

// writer fails as it is told.
type writer struct {
	Writer
	apply func(dry bool) error
	patch func(dry bool) error
}

func (f *writer) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	if err := f.apply(len((&client.ApplyOptions{}).ApplyOptions(opts).DryRun) > 0); err != nil {
		return err
	}
	return f.Writer.Apply(ctx, obj, opts...)
}

func (f *writer) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if f.patch != nil {
		if err := f.patch(len((&client.PatchOptions{}).ApplyOptions(opts).DryRun) > 0); err != nil {
			return err
		}
	}
	return f.Writer.Patch(ctx, obj, patch, opts...)
}

// Wherever the writing ends, it is taken up again and comes to the same.
func TestWritingIsTakenUpAgain(t *testing.T) {
	for stop := range 3 {
		w := worker(t)
		writes := 0
		lost := errors.New("the connection is lost")
		f := &writer{Writer: w, apply: func(dry bool) error {
			if dry {
				return nil
			}
			if writes++; writes > stop {
				return lost
			}
			return nil
		}}
		if stop == 2 {
			f.patch = func(dry bool) error {
				if dry {
					return nil
				}
				return lost
			}
		}
		r := &Rollback{Writer: f, Live: w}
		p, err := r.Plan(t.Context(), machineKey)
		require.NoError(t, err)
		require.ErrorIs(t, r.Write(t.Context(), p), lost)
		p, err = w.rollback().Plan(t.Context(), machineKey)
		require.NoError(t, err)
		require.NotEmpty(t, p.Change)
		require.NoError(t, w.rollback().Write(t.Context(), p))
		p, err = w.rollback().Plan(t.Context(), machineKey)
		require.NoError(t, err)
		require.Empty(t, p.Change)
		require.Equal(t, "one\n", fileOf(w))
	}
}

func TestWhatTheAPIServerRefuses(t *testing.T) {
	const secret = "hunter2"
	gk := schema.GroupKind{Group: infraKind.Group, Kind: infraKind.Kind}
	for name, tc := range map[string]struct {
		err  error
		says string
	}{
		"invalid": {
			apierrors.NewInvalid(gk, "m1", field.ErrorList{field.Invalid(field.NewPath("spec", "size"), secret, "field is immutable")}),
			"AcmeMachine lab/m1 can't be what MachineDeployment lab/workers wants: the API server calls it invalid: spec.size (FieldValueInvalid)",
		},
		"forbidden": {apierrors.NewForbidden(schema.GroupResource{Resource: "acmemachines"}, "m1", errors.New("no right")), "AcmeMachine lab/m1 can't be written"},
	} {
		t.Run(name, func(t *testing.T) {
			w := worker(t)
			r := &Rollback{Writer: &writer{Writer: w, apply: func(bool) error { return tc.err }}, Live: w}
			_, err := r.Plan(t.Context(), machineKey)
			var refused *RefusedError
			require.ErrorAs(t, err, &refused)
			require.ErrorContains(t, err, tc.says)
			require.NotContains(t, err.Error(), secret)
		})
	}
}

// All is tried before anything is written: a Machine whose version is refused would be left with objects of two templates.
func TestNothingIsWrittenWhenTheMachineIsRefused(t *testing.T) {
	w := worker(t)
	f := &writer{Writer: w, apply: func(bool) error { return nil }}
	f.patch = func(bool) error {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "Machine"}, "m1", field.ErrorList{field.Invalid(field.NewPath("spec", "version"), "v1", "no")})
	}
	_, err := (&Rollback{Writer: f, Live: w}).Plan(t.Context(), machineKey)
	var refused *RefusedError
	require.ErrorAs(t, err, &refused)
	require.ErrorContains(t, err, "Machine lab/m1 can't be what MachineDeployment lab/workers wants: the API server calls it invalid: spec.version")
}

// What an API server says that fails without a reason may have values in it; a webhook that can't be reached is named.
func TestErrorsHaveNoValues(t *testing.T) {
	for name, tc := range map[string]struct {
		err  *apierrors.StatusError
		says string
	}{
		"a type that is wrong": {
			&apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 500, Message: "failed to create typed patch object: expected string, got hunter2"}},
			"write AcmeMachine lab/m1 as MachineDeployment lab/workers wants it: the API server fails with an error that may have values",
		},
		"a webhook that is away": {apierrors.NewInternalError(errors.New("failed calling webhook acme: connection refused")), "failed calling webhook acme"},
	} {
		t.Run(name, func(t *testing.T) {
			w := worker(t)
			r := &Rollback{Writer: &writer{Writer: w, apply: func(bool) error { return tc.err }}, Live: w}
			_, err := r.Plan(t.Context(), machineKey)
			require.ErrorContains(t, err, tc.says)
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
}

func TestNobodyElsesWriteIsLost(t *testing.T) {
	w := worker(t)
	p, err := w.rollback().Plan(t.Context(), machineKey)
	require.NoError(t, err)
	w.edit(kindOfCluster("Machine"), "m1", "acme://2", "spec", "providerID")
	err = w.rollback().Write(t.Context(), p)
	require.True(t, apierrors.IsConflict(err), err)
}

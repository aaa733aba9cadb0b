package rollback

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"

	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/rollout"
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinesets;machinedeployments,verbs=get
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=kubeadmcontrolplanes,verbs=get
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io;infrastructure.cluster.x-k8s.io,resources=*,verbs=get;patch

// RefusedError says why a Machine can't be brought to what its owner wants. It is for people, and has no values of fields in it.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return e.Reason }

func refuse(format string, args ...any) error {
	return &RefusedError{Reason: fmt.Sprintf(format, args...)}
}

// Writer writes objects to the management cluster.
type Writer interface {
	Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error
	Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error
}

// Rollback finds out what owners of Machines want, and writes it.
type Rollback struct {
	Writer Writer
	// Live reads from the API server, and shows managed fields.
	Live client.Reader
}

// Plan is what is to be written so that a Machine's objects are as its owner wants them.
type Plan struct {
	// Owner is whose template that is, as people read it.
	Owner string
	// Change is what differs in the objects' specs. It is empty if the owner wants what the Machine has.
	Change fieldset.Change
	// Warning is what a person has to look after once this is written; empty if there is nothing.
	Warning string

	machine *machine
	manager string
	objects []*unstructured.Unstructured
	version any
}

// machine is a Machine as it was read: no field is lost.
type machine struct {
	raw   *unstructured.Unstructured
	typed clusterv1.Machine
}

func (m *machine) name() string { return m.raw.GetNamespace() + "/" + m.raw.GetName() }

func (m *machine) spec() map[string]any {
	spec, _ := m.raw.Object["spec"].(map[string]any)
	return spec
}

// Plan returns what is to be written, of which a dry run has shown that the API server takes all of it. A *RefusedError says that a person has to do something first, or that it can't be done.
func (r *Rollback) Plan(ctx context.Context, key client.ObjectKey) (*Plan, error) {
	m, err := r.read(ctx, key)
	if err != nil {
		return nil, err
	}
	w, err := r.wanted(ctx, m)
	if err != nil {
		return nil, err
	}
	p := &Plan{Owner: w.owner, machine: m, manager: w.manager}
	if err := p.compareMachine(ctx, w.machine); err != nil {
		return nil, err
	}
	infrastructure, bootstrap := m.typed.Spec.InfrastructureRef, m.typed.Spec.Bootstrap.ConfigRef
	if err := r.compare(ctx, p, fieldset.InfrastructureMachine, infrastructure, w.infrastructure); err != nil {
		return nil, err
	}
	if bootstrap.IsDefined() != (w.bootstrap != nil) {
		return nil, refuse("%s wants a bootstrap config and the Machine has none, or the other way round", w.owner)
	}
	if bootstrap.IsDefined() {
		if err := r.compare(ctx, p, fieldset.BootstrapConfig, bootstrap, w.bootstrap); err != nil {
			return nil, err
		}
	}
	if err := r.writeMachine(ctx, p, client.DryRunAll); err != nil {
		return nil, err
	}
	p.warn()
	return p, nil
}

// staleConfiguration is said where a KubeadmControlPlane has written something to its cluster that it does not take back by itself: it
// writes kubeadm-config before it has a machine updated, and neither while one is being updated nor when all are as they should be.
const staleConfiguration = "the ConfigMap kube-system/kubeadm-config of the workload cluster still has what is taken back, since KubeadmControlPlane writes it " +
	"only before it updates a machine: until its next change, control-plane machines that join would get that, so correct the ConfigMap by hand"

// warn says what is left to do.
func (p *Plan) warn() {
	if p.manager != controlPlaneManager {
		return
	}
	for _, f := range p.Change.Fields() {
		if path := f.String(); f.Object == fieldset.Machine || strings.HasPrefix(path, "spec.clusterConfiguration") {
			p.Warning = staleConfiguration
		}
	}
}

func (r *Rollback) read(ctx context.Context, key client.ObjectKey) (*machine, error) {
	m := &machine{raw: &unstructured.Unstructured{}}
	m.raw.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Machine"))
	if err := r.Live.Get(ctx, key, m.raw); err != nil {
		return nil, fmt.Errorf("read Machine %s: %w", key, err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(m.raw.Object, &m.typed); err != nil {
		return nil, fmt.Errorf("read Machine %s: %w", key, err)
	}
	return m, nil
}

// compareMachine compares the Machine itself. Nothing but its version is written: an owner changes no other field of what it
// compares while the Machine lives.
func (p *Plan) compareMachine(ctx context.Context, wanted any) error {
	change, differs, err := fieldset.Compare(ctx, fieldset.Machine, rollout.MachineSpec(p.machine.raw.Object["spec"]), rollout.MachineSpec(wanted))
	if err != nil {
		return refuse("the Machine can't be compared with what %s wants: %v", p.Owner, err)
	}
	if !differs {
		return nil
	}
	for _, f := range change.Fields {
		if f.String() != "spec.version" {
			return refuse("%s wants another %s of the Machine, which can't be written to a Machine that is there: delete the Machine, and Cluster API makes a new one",
				p.Owner, f)
		}
	}
	p.Change = append(p.Change, change)
	p.version, _, _ = unstructured.NestedFieldNoCopy(map[string]any{"spec": wanted}, "spec", "version")
	return nil
}

// compare asks the API server what becomes of an object if the owner's wish is applied, webhooks included, and what differs then.
func (r *Rollback) compare(ctx context.Context, p *Plan, o fieldset.Object, ref clusterv1.ContractVersionedObjectReference, wanted *unstructured.Unstructured) error {
	now, err := external.GetObjectFromContractVersionedRef(ctx, r.Live, ref, p.machine.raw.GetNamespace())
	if err != nil {
		return fmt.Errorf("read %s %s: %w", ref.Kind, ref.Name, err)
	}
	if now.GroupVersionKind() != wanted.GroupVersionKind() {
		return refuse("%s wants a %s, and the Machine has %s %s: delete the Machine, and Cluster API makes a new one",
			p.Owner, kindOf(wanted.GroupVersionKind()), kindOf(now.GroupVersionKind()), ref.Name)
	}
	if !slices.ContainsFunc(now.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == p.manager && f.Operation == metav1.ManagedFieldsOperationApply && f.Subresource == ""
	}) {
		return refuse("Cluster API has applied nothing to %s %s as %q, so that refit can't tell which of its fields are the owner's", ref.Kind, ref.Name, p.manager)
	}
	wanted.SetName(now.GetName())
	wanted.SetNamespace(now.GetNamespace())
	wanted.SetUID(now.GetUID()) // so that nothing is created
	wanted.SetResourceVersion(now.GetResourceVersion())
	after := wanted.DeepCopy()
	if err := r.apply(ctx, p, after, client.DryRunAll); err != nil {
		return err
	}
	change, differs, err := fieldset.Compare(ctx, o, specOf(now), specOf(after))
	if err != nil {
		return refuse("%s %s can't be compared with what %s wants: %v", ref.Kind, ref.Name, p.Owner, err)
	}
	if differs {
		p.Change = append(p.Change, change)
	}
	p.objects = append(p.objects, wanted)
	return nil
}

func specOf(o *unstructured.Unstructured) fieldset.Spec {
	return fieldset.Spec{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Value: o.Object["spec"]}
}

func kindOf(kind schema.GroupVersionKind) string {
	return kind.Kind + " of " + kind.GroupVersion().String()
}

// Write writes what differs. It fails with a conflict when an object has changed since it was compared. It can be repeated, with a
// new plan: what is written already does not differ any more.
func (r *Rollback) Write(ctx context.Context, p *Plan) error {
	for _, o := range p.objects {
		if err := r.apply(ctx, p, o.DeepCopy()); err != nil {
			return err
		}
	}
	return r.writeMachine(ctx, p)
}

// writeMachine writes the Machine itself, if that differs.
func (r *Rollback) writeMachine(ctx context.Context, p *Plan, opts ...client.PatchOption) error {
	if !slices.ContainsFunc(p.Change, func(c fieldset.ObjectChange) bool { return c.Object == fieldset.Machine }) {
		return nil
	}
	changed := p.machine.raw.DeepCopy()
	if p.version == nil {
		unstructured.RemoveNestedField(changed.Object, "spec", "version")
	} else if err := unstructured.SetNestedField(changed.Object, p.version, "spec", "version"); err != nil {
		return fmt.Errorf("set the version of Machine %s: %w", p.machine.name(), err)
	}
	patch := client.MergeFromWithOptions(p.machine.raw, client.MergeFromWithOptimisticLock{})
	return p.written(r.Writer.Patch(ctx, changed, patch, opts...), changed)
}

func (r *Rollback) apply(ctx context.Context, p *Plan, o *unstructured.Unstructured, opts ...client.ApplyOption) error {
	opts = append(opts, client.FieldOwner(p.manager), client.ForceOwnership)
	return p.written(r.Writer.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), opts...), o)
}

// written explains an error of a write. What the API server calls invalid may be shown by it with its values.
func (p *Plan) written(err error, o *unstructured.Unstructured) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsInvalid(err):
		return refuse("%s can't be what %s wants: the API server calls it invalid%s", nameOf(o), p.Owner, causes(err))
	case apierrors.IsForbidden(err):
		return refuse("%s can't be written: %v", nameOf(o), err)
	case isUnexplained(err):
		return fmt.Errorf("write %s as %s wants it: the API server fails with an error that may have values of fields in it; see its log", nameOf(o), p.Owner)
	default:
		return fmt.Errorf("write %s as %s wants it: %w", nameOf(o), p.Owner, err)
	}
}

// isUnexplained reports whether an error is an API server's that has no reason in one word: that of fields, say, which are not of the type
// that their schema has.
func isUnexplained(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown
}

// causes names the fields that are invalid.
func causes(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return ""
	}
	var fields []string
	for _, c := range status.Status().Details.Causes {
		fields = append(fields, fmt.Sprintf("%s (%s)", c.Field, c.Type))
	}
	if len(fields) == 0 {
		return ""
	}
	return ": " + strings.Join(fields, ", ")
}

package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/rollout"
)

// typed reads an object into its type. What the type does not know is left out. The error names the field only: what the converter says has its value.
func typed[T any](o *unstructured.Unstructured) (*T, error) {
	var out T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &out); err != nil {
		field := unreadable(o.Object, func(value any) error {
			var one T
			return runtime.DefaultUnstructuredConverter.FromUnstructured(value.(map[string]any), &one)
		})
		return nil, fmt.Errorf("%s can't be read: %s is not what Cluster API has there", keyOf(o), cmp.Or(strings.Join(field, "."), "it"))
	}
	return &out, nil
}

// unreadable returns the path of the first field that can't be read, up to a list.
func unreadable(value any, read func(any) error) []string {
	fields, _ := value.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		one := func(value any) error { return read(map[string]any{name: value}) }
		if one(fields[name]) != nil {
			return append([]string{name}, unreadable(fields[name], one)...)
		}
	}
	return nil
}

// read reads what matters of an owner.
func (s sides) read(of *Set, o *unstructured.Unstructured) (*side, error) {
	if keyOf(o).GroupKind == controlPlanes {
		return readControlPlane(of, o)
	}
	md, err := typed[clusterv1.MachineDeployment](o)
	if err != nil {
		return nil, err
	}
	rolling := md.Spec.Rollout.Strategy.RollingUpdate
	out := &side{
		given: md.Spec.Replicas != nil, replicas: int(ptr.Deref(md.Spec.Replicas, 1)), paused: ptr.Deref(md.Spec.Paused, false),
		onDelete: md.Spec.Rollout.Strategy.Type == clusterv1.OnDeleteMachineDeploymentStrategyType, after: instant(md.Spec.Rollout.After),
		cluster: md.Spec.ClusterName, version: md.Spec.Template.Spec.Version, bootstrap: configKind(templatesOf(o).bootstrap),
	}
	out.labels = labelled(md.Spec.Template.Labels, map[string]string{clusterv1.ClusterNameLabel: out.cluster, clusterv1.MachineDeploymentNameLabel: md.Name})
	out.limits = rollout.LimitsOf(rolling.MaxSurge, rolling.MaxUnavailable, out.replicas)
	out.surges = out.limits.Surges()
	out.pause(md)
	return out, nil
}

func readControlPlane(of *Set, o *unstructured.Unstructured) (*side, error) {
	kcp, err := typed[controlplanev1.KubeadmControlPlane](o)
	if err != nil {
		return nil, err
	}
	out := &side{
		given: kcp.Spec.Replicas != nil, replicas: int(ptr.Deref(kcp.Spec.Replicas, 1)), after: instant(kcp.Spec.Rollout.After),
		before: kcp.Spec.Rollout.Before.CertificatesExpiryDays, version: kcp.Spec.Version, cluster: clusterOf(of, kcp),
		bootstrap: kubeadm,
	}
	out.ofControlPlane(kcp.Spec.Rollout.Strategy.RollingUpdate)
	out.labels = labelled(kcp.Spec.MachineTemplate.ObjectMeta.Labels, map[string]string{clusterv1.ClusterNameLabel: out.cluster, clusterv1.MachineControlPlaneLabel: ""})
	out.pause(kcp)
	return out, nil
}

// ofControlPlane takes how a KubeadmControlPlane rolls out: one by one.
func (s *side) ofControlPlane(rolling controlplanev1.KubeadmControlPlaneRolloutStrategyRollingUpdate) {
	s.controlPlane, s.limits, s.surges = true, rollout.Limits{Unavailable: 1}, rollout.ControlPlaneSurges(rolling.MaxSurge)
	if s.surges {
		s.limits = rollout.Limits{Surge: 1}
	}
}

// pause looks for the annotation by which Cluster API leaves an object alone.
func (s *side) pause(o metav1.Object) {
	if _, ok := o.GetAnnotations()[clusterv1.PausedAnnotation]; ok {
		s.paused = true
	}
}

// clusterOf returns the name of the Cluster of a control plane: that of the label, or of the Cluster that names it.
func clusterOf(of *Set, kcp *controlplanev1.KubeadmControlPlane) string {
	if name := kcp.Labels[clusterv1.ClusterNameLabel]; name != "" {
		return name
	}
	for _, ref := range kcp.OwnerReferences {
		if ref.Kind == clusters.Kind {
			return ref.Name
		}
	}
	for _, key := range of.Keys() {
		if key.GroupKind != clusters || key.Namespace != kcp.Namespace {
			continue
		}
		name, _, _ := unstructured.NestedString(of.Get(key).Object, "spec", "controlPlaneRef", "name")
		kind, _, _ := unstructured.NestedString(of.Get(key).Object, "spec", "controlPlaneRef", "kind")
		if name == kcp.Name && kind == controlPlanes.Kind {
			return key.Name
		}
	}
	return ""
}

func labelled(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, some := range all {
		maps.Copy(out, some)
	}
	return out
}

func instant(t metav1.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t.Time
}

// references are the templates that an owner points to.
type references struct{ infrastructure, bootstrap *Key }

// templatesOf returns the templates that an owner points to: of a KubeadmControlPlane the one, of a MachineDeployment one or two.
func templatesOf(o *unstructured.Unstructured) references {
	ref := func(path ...string) *Key {
		m, ok, _ := unstructured.NestedStringMap(o.Object, path...)
		if !ok || m["name"] == "" {
			return nil
		}
		key := Key{Namespace: o.GetNamespace(), Name: m["name"]}
		key.Group, key.Kind = m["apiGroup"], m["kind"]
		return &key
	}
	if keyOf(o).GroupKind == controlPlanes {
		return references{infrastructure: ref("spec", "machineTemplate", "spec", "infrastructureRef")}
	}
	return references{ref("spec", "template", "spec", "infrastructureRef"), ref("spec", "template", "spec", "bootstrap", "configRef")}
}

// configKind returns the kind of what is made of a bootstrap template; empty without one. That of a KubeadmControlPlane has KubeadmConfigs made.
func configKind(template *Key) schema.GroupKind {
	switch {
	case template == nil:
		return schema.GroupKind{}
	case template.Group == controlPlanes.Group && template.Kind == controlPlanes.Kind+clusterv1.TemplateSuffix:
		return kubeadm
	}
	return schema.GroupKind{Group: template.Group, Kind: machineKind(template.Kind)}
}

func (r references) all() (keys []Key) {
	for _, k := range []*Key{r.infrastructure, r.bootstrap} {
		if k != nil {
			keys = append(keys, *k)
		}
	}
	return keys
}

// edited says which templates of an owner differ under their own names, for which Cluster API rolls nothing out.
func (s sides) edited(ctx context.Context, owner Key, o *unstructured.Unstructured) ([]string, error) {
	var notes []string
	for _, key := range templatesOf(o).all() {
		a, b := s.from.Get(key), s.to.Get(key)
		switch {
		case a != nil && b == nil:
			notes = append(notes, fmt.Sprintf("%s is not there any more, and %s points to it: no machine can be made", key, owner))
		case a == nil || b == nil:
		default:
			_, differs, err := fieldset.Compare(ctx, fieldset.InfrastructureMachine, specOf(a), specOf(b))
			if err != nil {
				return nil, fmt.Errorf("compare %s: %w", key, err)
			}
			if differs {
				notes = append(notes, fmt.Sprintf("%s is edited under its own name, for which Cluster API rolls nothing out: machines that run keep what they have, and new ones get the edit. "+
					"For a rollout make a template of another name, and point %s to it", key, owner))
			}
		}
	}
	return notes, nil
}

// specOf returns what is made of a template.
func specOf(template *unstructured.Unstructured) fieldset.Spec {
	value, _, _ := unstructured.NestedFieldNoCopy(template.Object, "spec", "template", "spec")
	return fieldset.Spec{APIVersion: template.GetAPIVersion(), Kind: machineKind(template.GetKind()), Value: value}
}

// made returns what machines are made of, by both versions of an owner.
func (s sides) made(a, b *unstructured.Unstructured) (now, wanted rollout.Made, err error) {
	before, after := templatesOf(a), templatesOf(b)
	if now.Infrastructure, wanted.Infrastructure, err = s.templates(before.infrastructure, after.infrastructure, keyOf(a).GroupKind == controlPlanes); err != nil {
		return now, wanted, err
	}
	if keyOf(a).GroupKind == controlPlanes {
		return controlPlaneMade(a, b, now, wanted)
	}
	spec := func(o *unstructured.Unstructured) fieldset.Spec {
		value, _, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "template", "spec")
		return rollout.MachineSpec(value)
	}
	now.Machine, wanted.Machine = spec(a), spec(b)
	if (before.bootstrap == nil) != (after.bootstrap == nil) {
		return now, wanted, rollout.ErrBootstrap
	}
	if before.bootstrap == nil {
		return now, wanted, nil
	}
	one, other, err := s.templates(before.bootstrap, after.bootstrap, false)
	now.Bootstrap, wanted.Bootstrap = &one, &other
	return now, wanted, err
}

// controlPlaneMade completes what control-plane machines are made of: a version, and the KubeadmConfig out of the KubeadmControlPlane itself.
func controlPlaneMade(a, b *unstructured.Unstructured, now, wanted rollout.Made) (rollout.Made, rollout.Made, error) {
	for _, one := range []struct {
		o    *unstructured.Unstructured
		made *rollout.Made
	}{{a, &now}, {b, &wanted}} {
		version, _, _ := unstructured.NestedString(one.o.Object, "spec", "version")
		one.made.Machine = rollout.MachineSpec(map[string]any{"version": version})
		config, err := rollout.ConfigOf(one.o, "", "")
		if err != nil {
			return now, wanted, err
		}
		config.Value = rollout.Compared(config.Value)
		one.made.Bootstrap = &config
	}
	return now, wanted, nil
}

// errMissing is returned for a template that is not given.
var errMissing = errors.New("it is not among the objects, so that what differs can't be told: add it")

// templates returns what machines are made of by two templates. Under one name it is the same object for Cluster API, so that it differs for no
// MachineDeployment; a machine of a control plane is compared with what the template says now.
func (s sides) templates(before, after *Key, byContent bool) (now, wanted fieldset.Spec, err error) {
	if before == nil || after == nil {
		return now, wanted, errors.New("the owner points to no template")
	}
	a, b := s.from.Get(*before), s.to.Get(*after)
	if *before == *after && (!byContent || a == nil || b == nil) {
		return now, wanted, nil // what does not differ is not looked at
	}
	switch {
	case a == nil:
		return now, wanted, fmt.Errorf("%s: %w", before, errMissing)
	case b == nil:
		return now, wanted, fmt.Errorf("%s: %w", after, errMissing)
	}
	return specOf(a), specOf(b), nil
}

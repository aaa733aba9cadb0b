package explain

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/rollout"
)

// machineKind is the kind of what is made from a kind of templates; Cluster API has it so.
func machineKind(template string) string {
	return strings.TrimSuffix(template, clusterv1.TemplateSuffix)
}

// alone says what becomes of machines whose owner moves from one template to the other, of templates that no owner names: of those of one name, and where
// one has gone and one has come, of these two. Where more have, that is Unknown.
func (e *Explainer) alone(ctx context.Context, s sides) ([]*Owner, []string, error) {
	var owners []*Owner
	var notes []string
	gone, come := map[Key][]Key{}, map[Key][]Key{} // by kind and namespace
	unnamed := s.unnamed()
	for _, key := range unnamed {
		of := Key{GroupKind: key.GroupKind, Namespace: key.Namespace}
		switch {
		case s.from.Get(key) == nil:
			come[of] = append(come[of], key)
		case s.to.Get(key) == nil:
			gone[of] = append(gone[of], key)
		default:
			o, err := e.template(ctx, key, s.from.Get(key), s.to.Get(key))
			if err != nil {
				return nil, nil, err
			}
			owners = append(owners, o...)
		}
	}
	for _, key := range unnamed {
		of := Key{GroupKind: key.GroupKind, Namespace: key.Namespace}
		one, told, err := e.renamed(ctx, s, key, gone[of], come[of])
		if err != nil {
			return nil, nil, err
		}
		owners, notes = append(owners, one...), append(notes, told...)
	}
	return owners, append(notes, s.classesAlone()...), nil
}

// renamed says what becomes of machines for a template that has come or gone, by which others of its kind have. Of which one follows which, where they are
// more than two, only owners tell.
func (e *Explainer) renamed(ctx context.Context, s sides, key Key, gone, come []Key) ([]*Owner, []string, error) {
	switch {
	case len(gone) == 0 || len(come) == 0:
		return nil, s.unpaired(key), nil
	case !slices.Contains(come, key):
		return nil, nil, nil
	case len(gone) == 1 && len(come) == 1:
		owners, err := e.template(ctx, key, s.from.Get(gone[0]), s.to.Get(key))
		return owners, nil, err
	}
	o := newOwner(key)
	o.unknown(fmt.Sprintf("no owner that is given names it, and of its kind %d have gone and %d have come: add the owners, which tell which one follows which", len(gone), len(come)))
	return []*Owner{o}, nil, nil
}

// unpaired says of a template that has come or gone that no owner tells what becomes of it.
func (s sides) unpaired(key Key) []string {
	switch {
	case s.from.Get(key) == nil:
		return []string{fmt.Sprintf("%s is new, and no owner that is given names it: no machine changes for it", key)}
	case s.to.Get(key) == nil:
		return []string{fmt.Sprintf("%s is not there any more, and no owner that is given names it: an owner that does can make no machine", key)}
	default:
		return nil
	}
}

// unnamed returns the templates that no owner and no ClusterClass of either side names, in order.
func (s sides) unnamed() []Key {
	named := s.named()
	return slices.DeleteFunc(union(s.from, s.to), func(k Key) bool { return !isTemplate(k.GroupKind) || named[k] })
}

// named returns the templates that owners and ClusterClasses of either side name.
func (s sides) named() map[Key]bool {
	out := map[Key]bool{}
	for _, key := range append(s.from.Templates(), s.to.Templates()...) {
		out[key] = true
	}
	return out
}

// Templates returns the keys of the templates that owners and ClusterClasses name, whether or not they are there, in order.
func (s *Set) Templates() []Key {
	var out []Key
	for _, key := range s.Keys() {
		switch key.GroupKind {
		case deployments, controlPlanes:
			out = append(out, templatesOf(s.Get(key)).all()...)
		case classes:
			out = append(out, slices.DeleteFunc(templatesOfClass(s.Get(key)), func(k Key) bool { return !isTemplate(k.GroupKind) })...)
		}
	}
	slices.SortFunc(out, compareKeys)
	return slices.Compact(out)
}

// template says what becomes of machines that are made of one template when they are to be made of the other.
func (e *Explainer) template(ctx context.Context, key Key, a, b *unstructured.Unstructured) ([]*Owner, error) {
	of := &side{}
	if key.Group == kubeadm.Group || key.Group == controlPlanes.Group {
		of.bootstrap = configKind(&key)
	}
	object := fieldset.InfrastructureMachine
	switch key.Group {
	case kubeadm.Group:
		object = fieldset.BootstrapConfig
	case controlPlanes.Group:
		object, of.labels = fieldset.BootstrapConfig, map[string]string{clusterv1.MachineControlPlaneLabel: ""}
	}
	now, wanted := configOf(a), configOf(b)
	_, differs, err := fieldset.Compare(ctx, object, now, wanted)
	if err != nil {
		return nil, fmt.Errorf("compare %s: %w", key, err)
	}
	initDiffers := !reflect.DeepEqual(initOf(a), initOf(b))
	if !differs && !initDiffers {
		return nil, nil
	}
	o := newOwner(key)
	o.Notes = append(o.Notes, "no owner that is given names it: this is what becomes of machines whose owner moves from the one to the other")
	if keyOf(a) == keyOf(b) {
		o.Notes = append(o.Notes, "edited under its own name, Cluster API rolls nothing out for it: machines that run keep what they have, and new ones get the edit")
	}
	if !differs {
		o.firstMachine()
		return []*Owner{o}, nil
	}
	var before, after rollout.Made
	if object == fieldset.BootstrapConfig {
		before.Bootstrap, after.Bootstrap = &now, &wanted
	} else {
		before.Infrastructure, after.Infrastructure = now, wanted
	}
	return []*Owner{o}, e.judge(ctx, o, of, before, after)
}

// initConfiguration is what only the machine has that a cluster is initialized with.
const initConfiguration = "initConfiguration"

// initOf returns that of the template of a KubeadmControlPlane; of another one nil.
func initOf(template *unstructured.Unstructured) any {
	if template.GetKind() != controlPlanes.Kind+clusterv1.TemplateSuffix {
		return nil
	}
	return rollout.Compared(field(template.Object, "spec", "template", "spec", "kubeadmConfigSpec"))[initConfiguration]
}

// configOf is specOf, and for the template of a KubeadmControlPlane its KubeadmConfig.
func configOf(template *unstructured.Unstructured) fieldset.Spec {
	if template.GetKind() != controlPlanes.Kind+clusterv1.TemplateSuffix {
		return specOf(template)
	}
	value, _, _ := unstructured.NestedFieldNoCopy(template.Object, "spec", "template", "spec", "kubeadmConfigSpec")
	compared := rollout.Compared(value)
	unstructured.RemoveNestedField(compared, initConfiguration) // no machine that joins has it
	return fieldset.Spec{APIVersion: kubeadm.Group + "/" + clusterv1.GroupVersion.Version, Kind: kubeadm.Kind, Value: compared}
}

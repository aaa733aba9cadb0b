package explain

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/rollout"
)

// topology says what becomes of the machines of a Cluster that has a topology: of its control plane, and of each of its MachineDeployments.
func (e *Explainer) topology(ctx context.Context, s sides, key Key) ([]*Owner, error) {
	was, err := s.blueprint(s.from, key)
	if err != nil {
		return nil, err
	}
	will, err := s.blueprint(s.to, key)
	if err != nil {
		return nil, err
	}
	if was == nil && s.from.Get(key) != nil && s.to.Get(key) == nil {
		return s.clusterGoes(key)
	}
	var owners []*Owner
	for _, part := range partsOf(was, will) {
		o := newOwner(key)
		o.Part, o.Cluster = part, key.Name
		owners = append(owners, o)
		if err := e.part(ctx, s, o, key, was.part(part), will.part(part)); err != nil {
			return nil, err
		}
	}
	return append(owners, s.pools(key, was, will)...), nil
}

// clusterGoes says what becomes of the machines of a Cluster without a topology that is not there any more: they go with it, also where their owners are
// still given.
func (s sides) clusterGoes(key Key) ([]*Owner, error) {
	all := &side{cluster: key.Name, given: true}
	for _, of := range s.from.Keys() {
		if of.Namespace != key.Namespace || of.GroupKind != deployments && of.GroupKind != controlPlanes {
			continue
		}
		one, err := s.read(s.from, s.from.Get(of))
		if err != nil {
			return nil, err
		}
		if one.cluster == key.Name {
			all.replicas += one.replicas
			all.given = all.given && one.given
		}
	}
	o := newOwner(key)
	o.goes(all)
	o.Notes = append(o.Notes, "a Cluster takes all that is of it along: its control plane, its workers and their machines, also those that are still among the objects")
	return []*Owner{o}, nil
}

// blueprint is a Cluster with its ClusterClass, which may be missing.
type blueprint struct {
	object *clusterv1.Cluster
	class  *clusterv1.ClusterClass
	of     Key // of the class
}

// blueprint reads a Cluster of one side. Nil: it is not there, or has no topology.
func (s sides) blueprint(of *Set, key Key) (*blueprint, error) {
	o := of.Get(key)
	if o == nil {
		return nil, nil
	}
	cluster, err := typed[clusterv1.Cluster](o)
	if err != nil || !cluster.Spec.Topology.IsDefined() {
		return nil, err
	}
	out := &blueprint{object: cluster, of: Key{classes, cluster.GetClassKey().Namespace, cluster.GetClassKey().Name}}
	if class := of.Get(out.of); class != nil {
		if out.class, err = typed[clusterv1.ClusterClass](class); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// The parts of a topology.
const (
	controlPlanePart = "control plane"
	deploymentPart   = "MachineDeployment " // and its name in the topology
)

// partsOf returns the parts of both versions, in the order of the wanted one.
func partsOf(was, will *blueprint) []string {
	var out []string
	for _, b := range []*blueprint{will, was} {
		if b == nil {
			continue
		}
		names := []string{controlPlanePart}
		for _, md := range b.object.Spec.Topology.Workers.MachineDeployments {
			names = append(names, deploymentPart+md.Name)
		}
		for _, name := range names {
			if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// part is one of a topology: what its machines are, and of which templates they are made.
type part struct {
	*blueprint
	side
	field     string // of the Cluster
	class     string // of the ClusterClass
	variables []clusterv1.ClusterVariable
	// infrastructure and bootstrap are the templates; nil where the ClusterClass is missing, or has none.
	infrastructure, bootstrap *Key
	failureDomain             string
}

// part returns one, or nil if the topology has it not.
func (b *blueprint) part(name string) *part {
	if b == nil {
		return nil
	}
	topology := &b.object.Spec.Topology
	if name == controlPlanePart {
		return b.controlPlane(&topology.ControlPlane)
	}
	for i := range topology.Workers.MachineDeployments {
		if md := &topology.Workers.MachineDeployments[i]; deploymentPart+md.Name == name {
			return b.deployment(md)
		}
	}
	return nil
}

func (b *blueprint) side(replicas *int32) side {
	_, paused := b.object.Annotations[clusterv1.PausedAnnotation]
	return side{
		replicas: int(ptr.Deref(replicas, 1)), given: replicas != nil, cluster: b.object.Name, version: b.object.Spec.Topology.Version,
		paused: paused || ptr.Deref(b.object.Spec.Paused, false),
	}
}

func (b *blueprint) controlPlane(t *clusterv1.ControlPlaneTopology) *part {
	p := &part{blueprint: b, side: b.side(t.Replicas), field: "spec.topology.controlPlane", variables: t.Variables.Overrides}
	p.labels = labelled(t.Metadata.Labels, map[string]string{
		clusterv1.ClusterNameLabel: b.object.Name, clusterv1.ClusterTopologyOwnedLabel: "", clusterv1.MachineControlPlaneLabel: "",
	})
	p.after = instant(t.Rollout.After)
	if b.class != nil {
		p.labels = labelled(b.class.Spec.ControlPlane.Metadata.Labels, p.labels)
		p.infrastructure = b.template(b.class.Spec.ControlPlane.MachineInfrastructure.TemplateRef)
		p.bootstrap = b.template(b.class.Spec.ControlPlane.TemplateRef)
	}
	return p
}

func (b *blueprint) deployment(t *clusterv1.MachineDeploymentTopology) *part {
	p := &part{
		blueprint: b, side: b.side(t.Replicas), field: fmt.Sprintf("spec.topology.workers.machineDeployments[name=%q]", t.Name),
		class: t.Class, variables: t.Variables.Overrides, failureDomain: t.FailureDomain,
	}
	p.labels = labelled(t.Metadata.Labels, map[string]string{
		clusterv1.ClusterNameLabel: b.object.Name, clusterv1.ClusterTopologyOwnedLabel: "", clusterv1.ClusterTopologyMachineDeploymentNameLabel: t.Name,
	})
	strategy := t.Rollout.Strategy
	if b.class != nil {
		for _, class := range b.class.Spec.Workers.MachineDeployments {
			if class.Class != t.Class {
				continue
			}
			p.labels = labelled(class.Metadata.Labels, p.labels)
			p.infrastructure, p.bootstrap = b.template(class.Infrastructure.TemplateRef), b.template(class.Bootstrap.TemplateRef)
			if p.failureDomain == "" {
				p.failureDomain = class.FailureDomain
			}
			if reflect.DeepEqual(t.Rollout, clusterv1.MachineDeploymentTopologyRolloutSpec{}) { // else it goes for the whole of the class's
				strategy.Type, strategy.RollingUpdate = class.Rollout.Strategy.Type, clusterv1.MachineDeploymentTopologyRolloutStrategyRollingUpdate(class.Rollout.Strategy.RollingUpdate)
			}
		}
	}
	p.onDelete = strategy.Type == clusterv1.OnDeleteMachineDeploymentStrategyType
	p.limits = rollout.LimitsOf(strategy.RollingUpdate.MaxSurge, strategy.RollingUpdate.MaxUnavailable, p.replicas)
	p.surges, p.after = p.limits.Surges(), instant(t.Rollout.After)
	return p
}

// template returns the key of a template that a ClusterClass names; nil if it names none.
func (b *blueprint) template(ref clusterv1.ClusterClassTemplateReference) *Key {
	if ref.Name == "" {
		return nil
	}
	return &Key{schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind(), b.of.Namespace, ref.Name}
}

// templatesOfClass returns the templates that a ClusterClass names, as far as it can be read.
func templatesOfClass(o *unstructured.Unstructured) (all []Key) {
	class, err := typed[clusterv1.ClusterClass](o)
	if err != nil {
		return nil
	}
	b := &blueprint{of: keyOf(o)}
	refs := []clusterv1.ClusterClassTemplateReference{class.Spec.Infrastructure.TemplateRef, class.Spec.ControlPlane.TemplateRef, class.Spec.ControlPlane.MachineInfrastructure.TemplateRef}
	for _, md := range class.Spec.Workers.MachineDeployments {
		refs = append(refs, md.Bootstrap.TemplateRef, md.Infrastructure.TemplateRef)
	}
	for _, ref := range refs {
		if key := b.template(ref); key != nil {
			all = append(all, *key)
		}
	}
	return all
}

// part says what becomes of the machines of a part.
func (e *Explainer) part(ctx context.Context, s sides, o *Owner, key Key, was, will *part) error {
	switch {
	case was == nil:
		o.comes(&will.side)
		return nil
	case will == nil:
		o.goes(&was.side)
		return nil
	}
	was.side.bootstrap, will.side.bootstrap = configKind(was.bootstrap), configKind(will.bootstrap)
	s.rolls(s.from, was)
	s.rolls(s.to, will)
	now, err := s.madeBy(s.from, was, will)
	wanted, err2 := s.madeBy(s.to, will, was)
	if err = errors.Join(err, err2); err != nil {
		o.unknown(err.Error())
	} else if rotates := s.rotates(was, will); rotates || !reflect.DeepEqual(now, wanted) {
		o.Because = append(o.Because, because(was, will)...)
		if err := e.judge(ctx, o, &was.side, now, wanted); err != nil {
			return err
		}
		o.same(rotates)
	}
	s.initialized(o, was, will)
	patched(o, was, will)
	if err := e.settle(ctx, o, key, &was.side, &will.side); err != nil {
		return err
	}
	if was.version != will.version && o.Part != controlPlanePart {
		o.Adds = append(o.Adds, "upgrades the control plane first, and workers after it")
	}
	return nil
}

// initialized looks at what only the machine of a control plane has that the Cluster was initialized with, where nothing else differs.
func (s sides) initialized(o *Owner, was, will *part) {
	if o.Part != controlPlanePart || o.Verdict != None || was.bootstrap == nil || will.bootstrap == nil {
		return
	}
	a, b := s.from.Get(*was.bootstrap), s.to.Get(*will.bootstrap)
	if a != nil && b != nil && !reflect.DeepEqual(initOf(a), initOf(b)) {
		o.firstMachine("the templates of " + will.of.String())
	}
}

// rotates reports whether Cluster API makes another template of one that a part's machines point to: it does for all that the template of a ClusterClass
// says, its metadata too, and rolls the machines out then.
func (s sides) rotates(was, will *part) bool {
	pairs := [][2]*Key{{was.infrastructure, will.infrastructure}}
	if !will.side.controlPlane { // a KubeadmControlPlane has no template of its bootstrap config
		pairs = append(pairs, [2]*Key{was.bootstrap, will.bootstrap})
	}
	return slices.ContainsFunc(pairs, func(p [2]*Key) bool {
		if p[0] == nil || p[1] == nil {
			return false
		}
		a, b := s.from.Get(*p[0]), s.to.Get(*p[1])
		return a != nil && b != nil && !reflect.DeepEqual(field(a.Object, "spec", "template"), field(b.Object, "spec", "template"))
	})
}

// same has a change that comes to nothing be none, unless a template rotates: unlike for other owners, what counts is what the templates say.
func (o *Owner) same(rotates bool) {
	if !rotates && o.Verdict == InPlace && len(o.Fields) == 0 {
		o.Verdict, o.Because = None, []string{}
	}
}

// because names the fields of a Cluster for which its machines are made again; of its ClusterClass, that it is another one, or has changed.
func because(was, will *part) []string {
	var out []string
	if was.version != will.version {
		out = append(out, "spec.topology.version")
	}
	if was.of != will.of {
		out = append(out, "spec.topology.classRef")
	}
	if was.class != will.class {
		out = append(out, will.field+".class")
	}
	if was.failureDomain != will.failureDomain {
		out = append(out, will.field+".failureDomain")
	}
	if len(out) == 0 {
		out = append(out, "the templates of "+will.of.String())
	}
	return out
}

// rolls takes how a control plane rolls out from the template of its ClusterClass.
func (s sides) rolls(of *Set, p *part) {
	if p.field != "spec.topology.controlPlane" {
		return
	}
	p.side.controlPlane, p.surges, p.limits = true, true, rollout.Limits{Surge: 1}
	if p.bootstrap == nil || of.Get(*p.bootstrap) == nil {
		return
	}
	how, _, _ := unstructured.NestedMap(of.Get(*p.bootstrap).Object, "spec", "template", "spec", "rollout")
	if days := rollout.Setting(field(how, "before", "certificatesExpiryDays")); days != nil {
		p.before = int32(days.IntValue())
	}
	strategy := field(how, "strategy", "rollingUpdate", "maxSurge")
	if p.surges = rollout.ControlPlaneSurges(rollout.Setting(strategy)); !p.surges {
		p.limits = rollout.Limits{Unavailable: 1}
	}
}

// field returns one of decoded JSON; nil if it is not there.
func field(of map[string]any, path ...string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(of, path...)
	return value
}

// madeBy returns what the machines of a part are made of. A template that is missing on both sides, and of one name, is taken to be as it was.
func (s sides) madeBy(of *Set, p, other *part) (rollout.Made, error) {
	machine := map[string]any{"version": p.version}
	if p.failureDomain != "" {
		machine["failureDomain"] = p.failureDomain
	}
	made := rollout.Made{Machine: rollout.MachineSpec(machine)}
	if !p.comparable(other) {
		return made, fmt.Errorf("%s or %s: %w", p.of, other.of, errMissing)
	}
	for _, t := range []struct {
		key, other *Key
		take       func(*unstructured.Unstructured)
	}{
		{p.infrastructure, other.infrastructure, func(o *unstructured.Unstructured) { made.Infrastructure = specOf(o) }},
		{p.bootstrap, other.bootstrap, func(o *unstructured.Unstructured) { made.Bootstrap = new(configOf(o)) }},
	} {
		if t.key == nil {
			continue
		}
		one, err := s.templateOf(of, *t.key, t.other != nil && *t.key == *t.other)
		if err != nil {
			return made, err
		}
		if one != nil {
			t.take(one)
		}
	}
	return made, nil
}

// comparable reports whether the ClusterClasses of two versions of a part are there, or are the same one, which nobody says differs.
func (p *part) comparable(other *part) bool {
	if p.blueprint.class != nil || other.blueprint.class != nil {
		return p.blueprint.class != nil && other.blueprint.class != nil
	}
	return p.of == other.of && p.class == other.class
}

// templateOf returns a template of a side. Nil: the other side has the same one, and it is given on neither.
func (s sides) templateOf(of *Set, key Key, same bool) (*unstructured.Unstructured, error) {
	before, after := s.from.Get(key), s.to.Get(key)
	switch {
	case same && before == nil && after == nil:
		return nil, nil
	case same && (before == nil || after == nil), of.Get(key) == nil:
		return nil, fmt.Errorf("%s: %w", key, errMissing)
	default:
		return of.Get(key), nil
	}
}

// Topology returns the name that the MachineDeployment of a part has in the topology; empty if the owner is no such part.
func (o *Owner) Topology() string {
	name, ok := strings.CutPrefix(o.Part, deploymentPart)
	if !ok {
		return ""
	}
	return name
}

// IsControlPlane reports whether the owner is the control plane of a topology.
func (o *Owner) IsControlPlane() bool { return o.Part == controlPlanePart }

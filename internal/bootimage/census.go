package bootimage

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/selection"
	"github.com/capi-refit/refit/updaters/image"
)

// named is an image that infrastructure machines of a kind name.
type named struct{ kind, image string }

// census is how the Machines that a policy selects stand.
type census struct {
	refitv1.BootImageMachines
	// images counts the machines that name an image, by the image.
	images map[named]int32
	// skewed, unknown and foreign are the names of the Machines that are counted as such, in order; foreign with what controls
	// their infrastructure machines.
	skewed, unknown, foreign []string
	// versioned is how many machines name an image by the version of Kubernetes that is in it.
	versioned int
	// stale are the templates, by name, from which machines come up older than those that run.
	stale map[string]stale
}

// machine is a Machine of a census.
type machine struct {
	*clusterv1.Machine
	// kinds are the image fields that the policies add which select it.
	kinds []image.Kind
	// infra is what its infrastructure machine says; nil if there is none.
	infra *infra
}

// infra is what is read of an infrastructure machine.
type infra struct {
	// image that it names; empty if nobody knows where its kind names it.
	image string
	// controller is what controls it if that is not Cluster API.
	controller string
	// template that it was made from, or was brought in line with; empty if nothing says.
	template string
}

// count takes the census of a policy: Machines out of the cache, infrastructure machines from the API server.
func (s *Status) count(ctx context.Context, p *Policy) (*census, error) {
	machines, err := s.machines(ctx, p)
	if err != nil {
		return nil, err
	}
	byKind := map[schema.GroupKind][]*machine{}
	for _, m := range machines {
		if m.Spec.InfrastructureRef.IsDefined() {
			byKind[kindOf(m.Machine)] = append(byKind[kindOf(m.Machine)], m)
		}
	}
	for kind, of := range byKind {
		if err := readKind(ctx, s.Live, kind, of); err != nil {
			return nil, err
		}
	}
	out := &census{images: map[named]int32{}, stale: map[string]stale{}}
	for _, m := range machines {
		out.add(p, m)
	}
	for _, names := range [][]string{out.skewed, out.unknown, out.foreign} {
		slices.Sort(names)
	}
	return out, nil
}

// machines returns the Machines that the policy selects and that are not on their way out. Those whose Cluster is gone go with it.
func (s *Status) machines(ctx context.Context, p *Policy) ([]*machine, error) {
	var list clusterv1.MachineList
	if err := s.Client.List(ctx, &list, client.InNamespace(p.Namespace)); err != nil {
		return nil, fmt.Errorf("list Machines: %w", err)
	}
	clusters := map[string]*clusterv1.Cluster{}
	var out []*machine
	for i := range list.Items {
		m := &list.Items[i]
		cluster, known := clusters[m.Spec.ClusterName]
		if !known {
			cluster = &clusterv1.Cluster{}
			key := types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.ClusterName}
			err := s.Client.Get(ctx, key, cluster)
			if client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("read Cluster %s: %w", key, err)
			}
			if err != nil {
				cluster = nil
			}
			clusters[m.Spec.ClusterName] = cluster
		}
		if cluster == nil || !m.DeletionTimestamp.IsZero() {
			continue
		}
		policies, err := s.Policies.SelectingIn(cluster.Labels, selection.RoleOf(m.Labels), inplace.SubjectOf(m))
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(policies, func(o *Policy) bool { return o.UID == p.UID }) {
			out = append(out, &machine{Machine: m, kinds: Join(policies, m.Labels).Kinds})
		}
	}
	return out, nil
}

// readKind reads the infrastructure machines of Machines, which are all of a kind and in a namespace.
func readKind(ctx context.Context, live client.Reader, kind schema.GroupKind, of []*machine) error {
	var first *unstructured.Unstructured
	byName := map[string]*machine{}
	for _, m := range of {
		byName[m.Spec.InfrastructureRef.Name] = m
		if first != nil {
			continue
		}
		one, err := readMachine(ctx, live, m.Machine)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		first = one
	}
	if first == nil {
		ctrl.LoggerFrom(ctx).Info("No Machine has its infrastructure machine", "kind", kind.String(), "machines", len(of))
		return nil
	}
	return eachMachine(ctx, live, first, func(obj *unstructured.Unstructured) {
		m := byName[obj.GetName()]
		if m == nil {
			return
		}
		m.infra = &infra{template: obj.GetAnnotations()[clusterv1.TemplateClonedFromNameAnnotation]}
		m.infra.controller, _ = ForeignController(obj)
		if paths := image.Paths(kind.Group, kind.Kind, m.kinds...); len(paths) > 0 {
			m.infra.image = nameOf(obj.Object["spec"], paths, m.Spec.Version)
		}
	})
}

// add counts a Machine.
func (c *census) add(p *Policy, m *machine) {
	c.Total++
	if m.infra != nil && m.infra.controller != "" {
		c.Foreign++
		c.foreign = append(c.foreign, fmt.Sprintf("%s (%s)", m.Name, m.infra.controller))
		return
	}
	if p.lets(m.Labels) {
		c.Selected++
	}
	booted, names := m.Annotations[refitv1.BootedImageAnnotation], ""
	if m.infra != nil {
		names = m.infra.image
	}
	if names != "" {
		c.images[named{m.Spec.InfrastructureRef.Kind, names}]++
		if names == booted {
			c.AtSpecImage++
		}
	}
	c.compare(p, m, names)
	skewed, known := p.skew(booted, names)
	switch {
	case skewed:
		c.Skewed++
		c.skewed = append(c.skewed, m.Name)
	case !known:
		c.Unknown++
		c.unknown = append(c.unknown, m.Name)
	}
}

// skew reports whether a machine has booted, or names, an image that is too old for the policy, and whether that is known. What it
// names is what a machine boots that takes its place.
func (p *Policy) skew(images ...string) (skewed, known bool) {
	known = true
	for _, name := range images {
		if name == "" || name == unknownImage {
			known = false
			continue
		}
		if p.minimum == nil {
			continue
		}
		v, ok := versionOf(p.pattern, name)
		if known = known && ok; ok && v.compare(p.minimum) < 0 {
			skewed = true
		}
	}
	return skewed, known
}

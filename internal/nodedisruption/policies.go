package nodedisruption

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/policykind"
	"github.com/capi-refit/refit/updaters"
)

// +kubebuilder:rbac:groups=capi-refit.dev,resources=nodedisruptionpolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines;clusters,verbs=get;list;watch

// maxKept bounds the sets of policies for which is kept what they make together. A fleet has a few.
const maxKept = 1000

// Policies holds the policies as they were read last, and what they make together. Every replica has them.
type Policies struct {
	*policykind.Reader[*refitv1.NodeDisruptionPolicy, *Policy]

	base  disruption.Rules
	build func(Effective) (*updaters.Registry, error)
	// kept are *Selected by the policies that make them.
	kept *lru.Cache
}

// Selected is what holds for a Machine, or for the Machines of a MachineSet.
type Selected struct {
	Effective
	// Revision tells it from what other policies, or others of their generations, make together.
	Revision string
	// Updaters follow from it: what they claim is done by its rules.
	Updaters *updaters.Registry
}

var _ inplace.Updaters = (*Policies)(nil)

// NewPolicies returns Policies that are read from a cache. base are the rules where no policy says anything, and build makes the
// updaters that follow from what policies say.
func NewPolicies(cached client.Reader, base disruption.Rules, build func(Effective) (*updaters.Registry, error)) *Policies {
	read := policykind.NewReader(cached, policykind.Kind[*refitv1.NodeDisruptionPolicy, *Policy]{
		Name: "NodeDisruptionPolicy", Plural: "NodeDisruptionPolicies",
		New:  func() *refitv1.NodeDisruptionPolicy { return &refitv1.NodeDisruptionPolicy{} },
		List: func() client.ObjectList { return &refitv1.NodeDisruptionPolicyList{} },
		Read: func(_ context.Context, p *refitv1.NodeDisruptionPolicy) *Policy { return Compile(p) },
	})
	return &Policies{Reader: read, base: base, build: build, kept: lru.New(maxKept)}
}

// For implements inplace.Updaters.
func (p *Policies) For(ctx context.Context, s inplace.Subject) (*updaters.Registry, error) {
	selected, err := p.Select(ctx, s)
	if err != nil {
		return nil, err
	}
	return selected.Updaters, nil
}

// Machine returns what holds for a Machine.
func (p *Policies) Machine(ctx context.Context, m *clusterv1.Machine) (*Selected, error) {
	return p.Select(ctx, inplace.SubjectOf(m))
}

// Select returns what holds for a Machine, or for the Machines of a MachineSet. The result is shared and is not to be changed.
// The error is an *InvalidError if a policy must be corrected first; any other one passes.
func (p *Policies) Select(ctx context.Context, s inplace.Subject) (*Selected, error) {
	selecting, err := p.Selecting(ctx, s)
	if err != nil {
		return nil, err
	}
	return p.together(selecting)
}

// together returns what policies make together, and remembers it.
func (p *Policies) together(policies []*Policy) (*Selected, error) {
	for _, one := range policies {
		if one.Err != nil {
			return nil, &InvalidError{Policy: one.Name, Err: one.Err}
		}
	}
	key := policykind.Versions(policies)
	if v, ok := p.kept.Get(key); ok {
		if known, _ := v.(*Selected); known != nil {
			return known, nil
		}
	}
	out := &Selected{Effective: Join(p.base, policies...), Revision: key}
	if err := disruption.TooMany(out.Rules.Probes); err != nil {
		return nil, &InvalidError{Policy: strings.Join(out.Policies, ", "), Err: err}
	}
	var err error
	if out.Updaters, err = p.build(out.Effective); err != nil {
		return nil, fmt.Errorf("make the updaters: %w", err)
	}
	p.kept.Add(key, out)
	return out, nil
}

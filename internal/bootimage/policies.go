package bootimage

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/policykind"
	"github.com/capi-refit/refit/updaters/image"
)

// +kubebuilder:rbac:groups=capi-refit.dev,resources=bootimagepolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines;clusters,verbs=get;list;watch

// Policies holds the policies as they were read last. Every replica has them.
type Policies struct {
	*policykind.Reader[*refitv1.BootImagePolicy, *Policy]
}

// NewPolicies returns Policies that are read from a cache.
func NewPolicies(cached client.Reader) *Policies {
	return &Policies{policykind.NewReader(cached, policykind.Kind[*refitv1.BootImagePolicy, *Policy]{
		Name: "BootImagePolicy", Plural: "BootImagePolicies",
		New:  func() *refitv1.BootImagePolicy { return &refitv1.BootImagePolicy{} },
		List: func() client.ObjectList { return &refitv1.BootImagePolicyList{} },
		Read: func(_ context.Context, p *refitv1.BootImagePolicy) *Policy { return Compile(p) },
	})}
}

// For returns what holds for a Machine, or for the Machines of a MachineSet; never nil. An error passes. That a policy must be
// corrected first is in the result, since it matters to changes of images only.
func (p *Policies) For(ctx context.Context, s inplace.Subject) (*image.Selected, error) {
	selecting, err := p.Selecting(ctx, s)
	if err != nil {
		return nil, err
	}
	return Join(selecting, s.Labels), nil
}

// Machine returns what holds for a Machine.
func (p *Policies) Machine(ctx context.Context, m *clusterv1.Machine) (*image.Selected, error) {
	return p.For(ctx, inplace.SubjectOf(m))
}

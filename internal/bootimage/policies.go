package bootimage

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/selection"
	"github.com/capi-refit/refit/internal/snapshot"
	"github.com/capi-refit/refit/updaters/image"
)

// +kubebuilder:rbac:groups=capi-refit.dev,resources=bootimagepolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines;clusters,verbs=get;list;watch

// Policies holds the policies as they were read last. Every replica has them.
type Policies struct {
	client client.Reader
	read   *snapshot.Reader[*refitv1.BootImagePolicy, *Policy]
}

// NewPolicies returns Policies that are read from a cache.
func NewPolicies(cached client.Reader) *Policies {
	return &Policies{client: cached, read: snapshot.New(cached, snapshot.Kind[*refitv1.BootImagePolicy, *Policy]{
		Name: "BootImagePolicies",
		New:  func() *refitv1.BootImagePolicy { return &refitv1.BootImagePolicy{} },
		List: func() client.ObjectList { return &refitv1.BootImagePolicyList{} },
		Read: Compile,
	})}
}

// SetupWithManager has the manager keep the policies up to date, on every replica.
func (p *Policies) SetupWithManager(mgr ctrl.Manager) error {
	return p.read.SetupWithManager(mgr, "bootimagepolicy-reader")
}

// Prime reads all policies. Before that there is no telling which select a Machine.
func (p *Policies) Prime(ctx context.Context) error { return p.read.Prime(ctx) }

// Reconcile reads one policy again.
func (p *Policies) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	return p.read.Reconcile(ctx, req)
}

// Ready returns an error until the policies were read.
func (p *Policies) Ready() error { return p.read.Ready() }

// For returns what holds for a Machine, or for the Machines of a MachineSet; never nil. An error passes. That a policy must be
// corrected first is in the result, since it matters to changes of images only.
func (p *Policies) For(ctx context.Context, s handlers.Subject) (*image.Selected, error) {
	all, err := p.read.In(s.Namespace)
	if err != nil || len(all) == 0 {
		return &image.Selected{}, err
	}
	var cluster clusterv1.Cluster
	key := types.NamespacedName{Namespace: s.Namespace, Name: s.Cluster}
	if err := p.client.Get(ctx, key, &cluster); err != nil {
		return nil, fmt.Errorf("which BootImagePolicies select the Machine can't be told: read Cluster %s: %w", key, err)
	}
	return Join(selecting(all, cluster.Labels, s.Labels), s.Labels), nil
}

// Machine returns what holds for a Machine.
func (p *Policies) Machine(ctx context.Context, m *clusterv1.Machine) (*image.Selected, error) {
	return p.For(ctx, handlers.Subject{Namespace: m.Namespace, Cluster: m.Spec.ClusterName, Labels: m.Labels})
}

// selecting returns those policies of a namespace that select a Machine with the labels, in a Cluster with the labels.
func selecting(all []*Policy, ofCluster, ofMachine map[string]string) []*Policy {
	var out []*Policy
	role := selection.RoleOf(ofMachine)
	for _, one := range all {
		if one.Selector.Cluster(ofCluster) && one.Selector.Machine(role, ofMachine) {
			out = append(out, one)
		}
	}
	return out
}

// named returns what was read of this very version of a policy, or nil.
func (p *Policies) named(policy *refitv1.BootImagePolicy) *Policy {
	all, err := p.read.In(policy.Namespace)
	if err != nil {
		return nil // it is about to be read
	}
	for _, one := range all {
		if one.UID == policy.UID && one.Generation == policy.Generation {
			return one
		}
	}
	return nil
}

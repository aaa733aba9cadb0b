package nodedisruption

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/selection"
	"github.com/capi-refit/refit/internal/snapshot"
	"github.com/capi-refit/refit/updaters"
)

// +kubebuilder:rbac:groups=capi-refit.dev,resources=nodedisruptionpolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines;clusters,verbs=get;list;watch

// maxKept bounds the sets of policies for which is kept what they make together. A fleet has a few.
const maxKept = 1000

// Policies holds the policies as they were read last, and what they make together. Every replica has them.
type Policies struct {
	client client.Reader
	base   disruption.Rules
	build  func(Effective) (*updaters.Registry, error)
	// kept are *Selected by the policies that make them.
	kept *lru.Cache
	read *snapshot.Reader[*refitv1.NodeDisruptionPolicy, *Policy]
}

// Selected is what holds for a Machine, or for the Machines of a MachineSet.
type Selected struct {
	Effective
	// Updaters follow from it: what they claim is done by its rules.
	Updaters *updaters.Registry
}

var _ handlers.Updaters = (*Policies)(nil)

// NewPolicies returns Policies that are read from a cache. base are the rules where no policy says anything, and build makes the
// updaters that follow from what policies say.
func NewPolicies(cached client.Reader, base disruption.Rules, build func(Effective) (*updaters.Registry, error)) *Policies {
	read := snapshot.New(cached, snapshot.Kind[*refitv1.NodeDisruptionPolicy, *Policy]{
		Name: "NodeDisruptionPolicies",
		New:  func() *refitv1.NodeDisruptionPolicy { return &refitv1.NodeDisruptionPolicy{} },
		List: func() client.ObjectList { return &refitv1.NodeDisruptionPolicyList{} },
		Read: Compile,
	})
	return &Policies{client: cached, base: base, build: build, kept: lru.New(maxKept), read: read}
}

// SetupWithManager has the manager keep the policies up to date, on every replica.
func (p *Policies) SetupWithManager(mgr ctrl.Manager) error {
	return p.read.SetupWithManager(mgr, "nodedisruptionpolicy-reader")
}

// Prime reads all policies. Before that there is no telling which select a Machine.
func (p *Policies) Prime(ctx context.Context) error { return p.read.Prime(ctx) }

// Reconcile reads one policy again.
func (p *Policies) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	return p.read.Reconcile(ctx, req)
}

// Ready returns an error until the policies were read.
func (p *Policies) Ready() error { return p.read.Ready() }

// For implements handlers.Updaters.
func (p *Policies) For(ctx context.Context, s handlers.Subject) (*updaters.Registry, error) {
	selected, err := p.Select(ctx, s)
	if err != nil {
		return nil, err
	}
	return selected.Updaters, nil
}

// Machine returns what holds for a Machine.
func (p *Policies) Machine(ctx context.Context, m *clusterv1.Machine) (*Selected, error) {
	return p.Select(ctx, handlers.Subject{Namespace: m.Namespace, Cluster: m.Spec.ClusterName, Labels: m.Labels})
}

// Select returns what holds for a Machine, or for the Machines of a MachineSet. The result is shared and is not to be changed.
// The error is an *InvalidError if a policy must be corrected first; any other one passes.
func (p *Policies) Select(ctx context.Context, s handlers.Subject) (*Selected, error) {
	all, err := p.read.In(s.Namespace)
	if err != nil {
		return nil, err
	}
	var room [8]*Policy
	selecting := room[:0]
	if len(all) > 0 {
		var cluster clusterv1.Cluster
		key := types.NamespacedName{Namespace: s.Namespace, Name: s.Cluster}
		if err := p.client.Get(ctx, key, &cluster); err != nil {
			return nil, fmt.Errorf("which NodeDisruptionPolicies select the Machine can't be told: read Cluster %s: %w", key, err)
		}
		role := selection.RoleOf(s.Labels)
		for _, one := range all {
			if one.Selector.Cluster(cluster.Labels) && one.Selector.Machine(role, s.Labels) {
				selecting = append(selecting, one)
			}
		}
	}
	return p.together(selecting)
}

// together returns what policies make together, and remembers it.
func (p *Policies) together(policies []*Policy) (*Selected, error) {
	var text strings.Builder
	for _, one := range policies {
		if one.Err != nil {
			return nil, &InvalidError{Policy: one.Name, Err: one.Err}
		}
		text.WriteString(string(one.UID))
		text.WriteByte('/')
		text.WriteString(strconv.FormatInt(one.Generation, 10))
		text.WriteByte(' ')
	}
	key := text.String()
	if v, ok := p.kept.Get(key); ok {
		if known, _ := v.(*Selected); known != nil {
			return known, nil
		}
	}
	out := &Selected{Effective: Join(p.base, policies...)}
	var err error
	if out.Updaters, err = p.build(out.Effective); err != nil {
		return nil, fmt.Errorf("make the updaters: %w", err)
	}
	p.kept.Add(key, out)
	return out, nil
}

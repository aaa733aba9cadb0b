package nodedisruption

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/selection"
	"github.com/capi-refit/refit/updaters"
)

// +kubebuilder:rbac:groups=capi-refit.dev,resources=nodedisruptionpolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines;clusters,verbs=get;list;watch

// errUnread is returned as long as not all policies were read.
var errUnread = errors.New("the NodeDisruptionPolicies have not been read yet")

// maxKept bounds the sets of policies for which is kept what they make together. A fleet has a few.
const maxKept = 1000

// Policies holds the policies as they were read last, and what they make together. Every replica has them.
type Policies struct {
	client client.Reader
	base   disruption.Rules
	build  func(Effective) (*updaters.Registry, error)
	// kept are *Selected by the policies that make them.
	kept *lru.Cache

	mu      sync.Mutex // of writers
	current atomic.Pointer[snapshot]
}

// snapshot are policies by their namespace, in the order of their names. It does not change.
type snapshot map[string][]*Policy

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
	return &Policies{client: cached, base: base, build: build, kept: lru.New(maxKept)}
}

// SetupWithManager has the manager keep the policies up to date, on every replica.
func (p *Policies) SetupWithManager(mgr ctrl.Manager) error {
	if err := mgr.Add(everywhere(p.Prime)); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named("nodedisruptionpolicy-reader").
		For(&refitv1.NodeDisruptionPolicy{}).
		WithEventFilter(predicate.GenerationChangedPredicate{}).
		WithOptions(controller.Options{NeedLeaderElection: ptr.To(false)}).
		Complete(p)
}

// everywhere is a Runnable that does not wait for the leadership.
type everywhere func(context.Context) error

// Start implements manager.Runnable.
func (f everywhere) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everywhere) NeedLeaderElection() bool { return false }

// Prime reads all policies. Before that there is no telling which select a Machine.
func (p *Policies) Prime(ctx context.Context) error {
	var list refitv1.NodeDisruptionPolicyList
	if err := p.client.List(ctx, &list); err != nil {
		return fmt.Errorf("list NodeDisruptionPolicies: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	all := snapshot{}
	for i := range list.Items {
		one := Compile(&list.Items[i])
		all[one.Namespace] = append(all[one.Namespace], one)
	}
	for _, policies := range all {
		slices.SortFunc(policies, byName)
	}
	p.current.Store(&all)
	return nil
}

func byName(a, b *Policy) int { return strings.Compare(a.Name, b.Name) }

// Reconcile reads one policy again.
func (p *Policies) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var policy refitv1.NodeDisruptionPolicy
	err := p.client.Get(ctx, req.NamespacedName, &policy)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.current.Load()
	if before == nil {
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	all := maps.Clone(*before)
	others := slices.DeleteFunc(slices.Clone(all[req.Namespace]), func(o *Policy) bool { return o.Name == req.Name })
	if err == nil {
		one := Compile(&policy)
		if one.Err != nil {
			ctrl.LoggerFrom(ctx).Info("The policy can't be read; no change of the Machines that it selects is decided", "reason", one.Err.Error())
		}
		others = append(others, one)
	}
	slices.SortFunc(others, byName) // what readers have is left alone
	all[req.Namespace] = others
	p.current.Store(&all)
	return ctrl.Result{}, nil
}

// Ready returns an error until the policies were read.
func (p *Policies) Ready() error {
	if p.current.Load() == nil {
		return errUnread
	}
	return nil
}

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
	current := p.current.Load()
	if current == nil {
		return nil, errUnread
	}
	var room [8]*Policy
	selecting := room[:0]
	if all := (*current)[s.Namespace]; len(all) > 0 {
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

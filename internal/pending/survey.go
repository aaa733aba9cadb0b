package pending

import (
	"context"
	"fmt"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/index"
)

// owner is what wants a change of its Machines.
type owner struct{ apiVersion, kind, name string }

func ownerOf(m *clusterv1.Machine) owner {
	apiVersion, kind, name := changemanagement.OwnerOf(m)
	return owner{apiVersion, kind, name}
}

// entry is a Machine of which a change is wanted.
type entry struct {
	// machine and update are out of a cache, and are not to be changed. There is no update before Cluster API has committed the change.
	machine *clusterv1.Machine
	update  *refitv1.MachineUpdate
	cluster *clusterv1.Cluster
	owner   owner
	// meta is that of the owner, nil if there is none, and deployment is how a MachineDeployment has changes made.
	meta       *metav1.PartialObjectMetadata
	deployment deployment
	cause      refitv1.PendingCause
	// claims are the fields that registered extensions make.
	claims []refitv1.PendingClaim
	// reason is why it waits, and note what people have to know beside that.
	reason, note string
	prospect     changemanagement.Prospect
	// earliest is when it may start, and end when it is expected to be done; zero: not before something else happens.
	earliest, end time.Time
	underWay      bool
	// stuck tells that no policy holds it back, and it does not start by itself either; free that it disturbs no node, and asks for no window.
	stuck, free bool
}

// survey is what waits in a namespace.
type survey struct {
	namespace string
	clusters  map[string]*clusterv1.Cluster
	machines  map[string]*clusterv1.Machine
	updates   map[string]*refitv1.MachineUpdate
	entries   []*entry
	told      map[string]bool // Machines that have an entry
}

// survey finds all Machines of a namespace of which a change is wanted. Where nothing waits, that costs no look at Machines.
func (v *View) survey(ctx context.Context, namespace string) (*survey, error) {
	s := &survey{
		namespace: namespace, clusters: map[string]*clusterv1.Cluster{}, machines: map[string]*clusterv1.Machine{}, updates: map[string]*refitv1.MachineUpdate{},
		told: map[string]bool{},
	}
	cached := v.cached()
	if err := index.Each(ctx, cached, index.InNamespace(namespace), &clusterv1.ClusterList{}, func(c *clusterv1.Cluster) error {
		s.clusters[c.Name] = c
		return nil
	}); err != nil {
		return nil, fmt.Errorf("list Clusters: %w", err)
	}
	if err := index.Each(ctx, cached, index.OnlyUnsettled(namespace), &clusterv1.MachineList{}, func(m *clusterv1.Machine) error {
		s.machines[m.Name] = m
		return nil
	}); err != nil {
		return nil, fmt.Errorf("list Machines of which a change is wanted: %w", err)
	}
	machine, err := index.Lookup[clusterv1.Machine](ctx, cached)
	if err != nil {
		return nil, fmt.Errorf("read Machines: %w", err)
	}
	if err := index.Each(ctx, cached, index.OnlyUnsettled(namespace), &refitv1.MachineUpdateList{}, func(mu *refitv1.MachineUpdate) error {
		s.updates[mu.Name] = mu.Restored()
		if s.machines[mu.Name] != nil {
			return nil
		}
		m, err := machine(client.ObjectKeyFromObject(mu))
		if m != nil { // one that is gone takes its update with it
			s.machines[mu.Name] = m
		}
		return err
	}); err != nil {
		return nil, fmt.Errorf("list MachineUpdates that have not succeeded: %w", err)
	}
	for _, m := range s.machines {
		s.add(m)
	}
	for _, c := range s.clusters {
		if err := v.addUpgrades(ctx, s, c); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// add adds a Machine if a change of it waits or is under way. Of a change that is wanted while an earlier one is not done, the earlier one is told.
func (s *survey) add(m *clusterv1.Machine) {
	e := s.entry(m)
	if e == nil {
		return
	}
	mu, upToDate := s.updates[m.Name], apimeta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineUpToDateCondition)
	_, committed := m.Annotations[clusterv1.UpdateInProgressAnnotation]
	switch {
	case mu != nil:
		e.update, e.cause, e.underWay = mu, refitv1.PendingInPlace, changemanagement.Runs(mu)
	case committed: // refit is about to be asked to make it
		e.cause = refitv1.PendingInPlace
	case upToDate != nil && upToDate.Reason == clusterv1.MachineNotUpToDateReason:
		e.cause = refitv1.PendingUnknown
	default: // its Node has not told its version yet
		return
	}
	s.tell(e)
}

func (s *survey) tell(e *entry) {
	s.entries, s.told[e.machine.Name] = append(s.entries, e), true
}

// entry returns an entry for a Machine, or nil for one that goes anyway, or whose Cluster is gone or goes.
func (s *survey) entry(m *clusterv1.Machine) *entry {
	c := s.clusters[m.Spec.ClusterName]
	if c == nil || !c.DeletionTimestamp.IsZero() || !m.DeletionTimestamp.IsZero() {
		return nil
	}
	return &entry{machine: m, cluster: c, owner: ownerOf(m)}
}

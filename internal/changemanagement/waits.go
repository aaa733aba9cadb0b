package changemanagement

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/index"
	"github.com/capi-refit/refit/internal/skew"
)

// Lives say when versions of Kubernetes end.
type Lives interface {
	// EndOfLife returns when the minor version ends that a Machine runs; zero if nobody says so.
	EndOfLife(ctx context.Context, m *clusterv1.Machine) (time.Time, error)
}

// Waits find out how long changes may wait. They read caches.
type Waits struct {
	Client client.Reader
	// Lives know when versions end. Nil: nobody does.
	Lives Lives
	Clock clock.PassiveClock

	mu            sync.Mutex
	controlPlanes map[types.NamespacedName]reached
}

// reached is the newest version of a control plane, as it was a moment ago.
type reached struct {
	at      time.Time
	version *version.Version
}

// reachedFor is how old that may be: many Machines of a cluster ask at once.
const reachedFor = 30 * time.Second

// Wanted returns since when a Machine has not got what it was to have, by the status of its MachineUpdate; nil if it has it, or if nobody wants it any
// more: it was withdrawn, or has failed and was abandoned.
func Wanted(s *refitv1.MachineUpdateStatus) *metav1.Time {
	update := refitv1.MachineUpdate{Status: *s}
	switch {
	case s.Phase == "" || s.Phase == refitv1.PhaseSucceeded || s.Reason == refitv1.ReasonWithdrawn || update.Abandoned():
		return nil
	case s.WantedSince != nil:
		return s.WantedSince
	default:
		return s.StartedAt
	}
}

// Of returns how long the change may wait that an update of a Machine makes. One that says itself when it is wanted waits from then on. Policies without a deadline do not ask.
func (w *Waits) Of(ctx context.Context, s *Candidate, m *clusterv1.Machine, mu *refitv1.MachineUpdate, policies []*Policy) (Wait, error) {
	if !w.end(policies) {
		return Wait{}, nil
	}
	out := Wait{Since: w.Clock.Now().Truncate(time.Second)}
	if since := Wanted(&mu.Status); since != nil {
		out.Since = since.Time
	}
	if from := s.Overrides.wantedFrom(); from.After(out.Since) {
		out.Since = from
	}
	err := w.version(ctx, m, &out)
	return out, err
}

// end reports whether one of the policies has a deadline.
func (w *Waits) end(policies []*Policy) bool {
	return w != nil && slices.ContainsFunc(policies, func(p *Policy) bool { return p.Deadline != nil })
}

// version adds what is so of a change of the version. Other changes help against none of it.
func (w *Waits) version(ctx context.Context, m *clusterv1.Machine, out *Wait) error {
	runs, wants := versionsOf(m)
	if runs == nil || wants == nil || runs.EqualTo(wants) {
		return nil
	}
	controlPlane := RoleOf(m.Labels) == refitv1.ControlPlaneRole
	if controlPlane {
		out.Certificates = m.Status.CertificatesExpiryDate.Time
	}
	if sameMinor(runs, wants) {
		return nil
	}
	// A source that can't be read, or of which there are two, says nothing; whoever selects it is told elsewhere.
	if w.Lives != nil {
		if end, err := w.Lives.EndOfLife(ctx, m); err == nil {
			out.EndOfLife = end
		}
	}
	if controlPlane {
		return nil
	}
	reached, err := w.controlPlane(ctx, types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.ClusterName})
	out.Behind = reached != nil && reached.Major() == runs.Major() && reached.Minor() >= runs.Minor()+skew.Behind
	return err
}

func sameMinor(a, b *version.Version) bool { return a.Major() == b.Major() && a.Minor() == b.Minor() }

// versionsOf returns what a Machine runs and is to run; nil if that is not known.
func versionsOf(m *clusterv1.Machine) (runs, wants *version.Version) {
	if m.Status.NodeInfo == nil {
		return nil, nil
	}
	runs, err := skew.Parse(m.Status.NodeInfo.KubeletVersion)
	if err != nil {
		return nil, nil
	}
	if wants, err = skew.Parse(m.Spec.Version); err != nil {
		return nil, nil
	}
	return runs, wants
}

// controlPlane returns the newest version that a Machine of a cluster's control plane is to run; nil if none says it.
func (w *Waits) controlPlane(ctx context.Context, cluster types.NamespacedName) (*version.Version, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.Clock.Now()
	if known, ok := w.controlPlanes[cluster]; ok && now.Sub(known.at) < reachedFor {
		return known.version, nil
	}
	var list clusterv1.MachineList
	if err := w.Client.List(ctx, &list, index.InCluster(cluster.Namespace, cluster.Name)); err != nil {
		return nil, fmt.Errorf("list the Machines of Cluster %s: %w", cluster, err)
	}
	var newest *version.Version
	for i := range list.Items {
		m := &list.Items[i]
		if RoleOf(m.Labels) != refitv1.ControlPlaneRole {
			continue
		}
		if v, err := skew.Parse(m.Spec.Version); err == nil && (newest == nil || newest.LessThan(v)) {
			newest = v
		}
	}
	if w.controlPlanes == nil {
		w.controlPlanes = map[types.NamespacedName]reached{}
	}
	w.controlPlanes[cluster] = reached{now, newest}
	return newest, nil
}

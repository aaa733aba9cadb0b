package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/protection"
)

const (
	// refitPrefix and adminPrefix begin the holders of a node lease that are refit, and people.
	refitPrefix = "refit/"
	adminPrefix = "admin/"

	// lookEvery is how often it is looked whether refit has released the node.
	lookEvery = 5 * time.Second
)

// NodeLocker holds the node leases of a workload cluster. *lease.Locker is one.
type NodeLocker interface {
	Hold(ctx context.Context, node, admin, reason string, d time.Duration) error
	Unhold(ctx context.Context, node, admin string) error
}

// NodeMarker keeps those off nodes of a workload cluster who do not go by leases. *protection.HeldNodes is one.
type NodeMarker interface {
	Mark(ctx context.Context, node string, machine types.UID) error
	ReleaseNode(ctx context.Context, node string) error
}

// Nodes are those of a workload cluster, for who holds them.
type Nodes interface {
	NodeLocker
	NodeMarker
}

var (
	_ NodeLocker = (*lease.Locker)(nil)
	_ NodeMarker = (*protection.HeldNodes)(nil)
)

// Holder has people hold nodes.
type Holder struct {
	// Client is the management cluster's.
	Client client.Client
	// Nodes returns the nodes of a Cluster.
	Nodes func(ctx context.Context, cluster types.NamespacedName) (Nodes, error)
	Clock clock.Clock
	// Out is told how it goes.
	Out io.Writer
	// Admin is who holds.
	Admin string
}

// HoldOptions say how a node is held.
type HoldOptions struct {
	Reason string
	// Until is when the hold ends by itself; zero: never.
	Until time.Time
	// Timeout is how long to wait for refit to release the node. 0: not at all.
	Timeout time.Duration
}

// ErrNotYours is returned when the node is somebody else's: refit stays off it, and it is not held for who asks.
var ErrNotYours = errors.New("the node is not yours")

// Hold holds the node of a Machine: the annotation has refit release it, the lease keeps out whoever honours it, and markers keep Cluster
// API and autoscalers off. Asked for again, the hold gets the new reason and end. With an error, refit and Cluster API stay off the
// node nevertheless if the annotation could be written, which the error says.
func (h *Holder) Hold(ctx context.Context, m *clusterv1.Machine, o HoldOptions) error {
	if o.Reason == "" {
		return errors.New("a hold needs a reason, for those who find it")
	}
	if !o.Until.IsZero() && !o.Until.After(h.Clock.Now()) {
		return fmt.Errorf("the hold would end at %s, which is over", o.Until.UTC().Format(time.RFC3339))
	}
	if err := onConflict(ctx, h.Client, m, func() error { return h.annotate(ctx, m, o) }); err != nil {
		return err
	}
	h.say("Machine %s/%s is held by %s%s: refit begins nothing new on it, and releases it after the step that is under way. "+
		"Cluster API does not remediate it, and waits for the release if it is to be deleted.", m.Namespace, m.Name, h.Admin, until(o.Until))
	node := m.Status.NodeRef.Name
	if node == "" {
		h.say("It has no node yet, so that there is no lease to hold.")
		return nil
	}
	if err := h.take(ctx, m, o); err != nil {
		return fmt.Errorf("%w; refit and Cluster API stay off node %s by the annotations of its Machine, and whoever goes by the lease, or looks "+
			"at the Node, may not: run the command again for these, or `refit release -n %s %s`", err, node, m.Namespace, m.Name)
	}
	return nil
}

func until(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " until " + t.UTC().Format(time.RFC3339)
}

func (h *Holder) say(format string, args ...any) {
	say(h.Out, format+"\n", args...) //nolint:errcheck // it is for people
}

// annotate writes the annotations, if nobody else's hold is there: the hold, and what keeps Cluster API off, by one write.
func (h *Holder) annotate(ctx context.Context, m *clusterv1.Machine, o HoldOptions) error {
	if err := h.mine(m); err != nil {
		return err
	}
	changed := m.DeepCopy()
	value := "true"
	if !o.Until.IsZero() {
		value = o.Until.UTC().Format(time.RFC3339)
	}
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, refitv1.HoldAnnotation, value)
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, lease.HoldReasonAnnotation, o.Reason)
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, lease.HoldByAnnotation, h.Admin)
	switch err := protection.HoldMachine(changed); {
	case errors.Is(err, protection.ErrDeleting):
		return fmt.Errorf("%w: Machine %s/%s is being deleted, and it is too late to keep Cluster API off it", ErrNotYours, m.Namespace, m.Name)
	case err != nil:
		return fmt.Errorf("keep Cluster API off Machine %s/%s: %w", m.Namespace, m.Name, err)
	}
	return h.patch(ctx, m, changed)
}

// mine returns ErrNotYours if somebody else holds the Machine.
func (h *Holder) mine(m *clusterv1.Machine) error {
	hold, held := lease.PersonsHoldOf(m)
	by := oneLine(hold.By)
	if !held || hold.By == h.Admin || hold.Over(h.Clock.Now()) {
		return nil
	}
	if by == "" {
		by = "somebody who has set the annotation " + refitv1.HoldAnnotation
	}
	reason := ""
	if why := m.Annotations[lease.HoldReasonAnnotation]; why != "" {
		reason = fmt.Sprintf(" (%s)", oneLine(why))
	}
	return fmt.Errorf("%w: Machine %s/%s is held by %s%s", ErrNotYours, m.Namespace, m.Name, by, reason)
}

// patch writes what was changed, if nobody else has written in between. The lease's messages name the field's owner.
func (h *Holder) patch(ctx context.Context, m, changed *clusterv1.Machine) error {
	err := h.Client.Patch(ctx, changed, client.MergeFromWithOptions(m, client.MergeFromWithOptimisticLock{}), client.FieldOwner(h.Admin))
	switch {
	case apierrors.IsConflict(err):
		return fmt.Errorf("write the annotations of Machine %s/%s: somebody has written it at the same time; run the command again: %w", m.Namespace, m.Name, err)
	case err != nil:
		return fmt.Errorf("write the annotations of Machine %s/%s: %w", m.Namespace, m.Name, err)
	}
	return nil
}

// take takes the node lease as soon as refit has released it, and marks the Node: before that where refit has the lease, so that there
// is no time at which nobody's markers are there, and not at all where somebody else has it, whose work they could stop half-way.
func (h *Holder) take(ctx context.Context, m *clusterv1.Machine, o HoldOptions) error {
	nodes, err := h.nodes(ctx, m)
	if err != nil {
		return err
	}
	node, started, said := m.Status.NodeRef.Name, h.Clock.Now(), ""
	for {
		err := h.takeOnce(ctx, nodes, m, o)
		if err == nil {
			h.say("Node %s is yours: its lease is held by %s%s%s. Release it with: refit release -n %s %s", node, adminPrefix, h.Admin, until(o.Until), m.Namespace, m.Name)
			return nil
		}
		if err := awaited(err); err != nil {
			return fmt.Errorf("hold the lease of node %s: %w", node, err)
		}
		if o.Timeout <= 0 {
			h.say("refit is still at work on node %s (%s). Not waiting for it: the lease is not held.", node, h.progress(ctx, m))
			return nil
		}
		if h.Clock.Since(started) >= o.Timeout {
			return fmt.Errorf("refit has not released node %s within %s (%s)", node, o.Timeout, h.progress(ctx, m))
		}
		if now := h.progress(ctx, m); now != said {
			h.say("Waiting for refit to release node %s: %s", node, now)
			said = now
		}
		if err := h.sleep(ctx); err != nil {
			return fmt.Errorf("wait for refit to release node %s: %w", node, err)
		}
	}
}

// takeOnce takes the node lease if it is free, and marks the Node if that is free or refit's.
func (h *Holder) takeOnce(ctx context.Context, nodes Nodes, m *clusterv1.Machine, o HoldOptions) error {
	var d time.Duration
	if !o.Until.IsZero() {
		if d = o.Until.Sub(h.Clock.Now()); d <= 0 {
			return errors.New("the hold is over before the node's lease could be had")
		}
	}
	node := m.Status.NodeRef.Name
	err := nodes.Hold(ctx, node, h.Admin, o.Reason, d)
	if err == nil || heldByRefit(err) {
		if marked := nodes.Mark(ctx, node, m.UID); marked != nil {
			return marked
		}
	}
	return err
}

func (h *Holder) nodes(ctx context.Context, m *clusterv1.Machine) (Nodes, error) {
	nodes, err := h.Nodes(ctx, types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.ClusterName})
	if err != nil {
		return nil, fmt.Errorf("reach the workload cluster %s: %w", m.Spec.ClusterName, err)
	}
	return nodes, nil
}

// awaited returns nil when the lease can be waited for: refit has it, or somebody was faster and it is to be looked who. Else it
// says whose the node is.
func awaited(err error) error {
	var held *lease.HeldError
	if !errors.As(err, &held) {
		return err
	}
	if heldByRefit(err) || errors.Unwrap(held) != nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrNotYours, err)
}

// heldByRefit reports whether the lease could not be had because refit has it.
func heldByRefit(err error) bool {
	var held *lease.HeldError
	return errors.As(err, &held) && strings.HasPrefix(held.Holder, refitPrefix)
}

func (h *Holder) sleep(ctx context.Context) error {
	timer := h.Clock.NewTimer(lookEvery)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C():
		return nil
	}
}

// progress says in a few words what refit does on the node.
func (h *Holder) progress(ctx context.Context, m *clusterv1.Machine) string {
	var mu refitv1.MachineUpdate
	switch err := h.Client.Get(ctx, client.ObjectKeyFromObject(m), &mu); {
	case apierrors.IsNotFound(err):
		return "its lease is still held"
	case err != nil:
		return "what it does can't be read: " + err.Error()
	}
	r := rowOf(&mu, h.Clock.Now())
	return strings.Join(strings.Fields(r.Phase+" "+r.Step+" "+r.Progress), " ")
}

package changemanagement

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// pendings are the updates that wait for a policy, and their deadlines that are near or have passed.
type pendings struct {
	now     time.Time
	total   int32
	near    int
	first   *Due
	machine string
}

// see takes an update, if it waits.
func (n *pendings) see(ctx context.Context, waits *Waits, p *Policy, m *clusterv1.Machine, mu *refitv1.MachineUpdate) error {
	if !Holds(mu) {
		return nil
	}
	n.total++
	if p.Deadline == nil || waits == nil {
		return nil
	}
	candidate, err := (Candidates{waits.Client}).Machine(ctx, m)
	if err != nil {
		return client.IgnoreNotFound(err) // its Cluster is gone, and it goes, too
	}
	wait, err := waits.Of(ctx, candidate, m, mu, []*Policy{p})
	if err != nil {
		return err
	}
	due := p.due(wait)
	if !due.Near(n.now) {
		return nil
	}
	n.near++
	if n.first == nil || due.At.Before(n.first.At) || due.At.Equal(n.first.At) && m.Name < n.machine {
		n.first, n.machine = due, m.Name
	}
	return nil
}

// write writes the number, and the condition of the policy. One without a deadline has none.
func (n *pendings) write(p *Policy, st *refitv1.ChangeManagementPolicyStatus) {
	st.PendingMachines = &n.total
	if p.Deadline == nil {
		meta.RemoveStatusCondition(&st.Conditions, refitv1.DeadlineNearCondition)
		return
	}
	c := metav1.Condition{
		Type: refitv1.DeadlineNearCondition, Status: metav1.ConditionFalse, Reason: "None", ObservedGeneration: st.ObservedGeneration,
		Message: "no deadline of an update that waits is near",
	}
	if n.first != nil {
		c.Status, c.Reason = metav1.ConditionTrue, string(n.first.Cause)
		c.Message = fmt.Sprintf("the deadlines of %d updates that wait are near or have passed; the first is that of Machine %s: %s", n.near, n.machine, n.first)
	}
	meta.SetStatusCondition(&st.Conditions, c)
}

package changemanagement

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/capi-refit/refit/internal/policykind"
	"github.com/capi-refit/refit/internal/shard"
	"github.com/capi-refit/refit/schedule"
)

// What protects a Machine that is remediated, as the metric says it.
const (
	protectedByForbid = "forbid"
	protectedByWindow = "window"
)

// Remediations tells of Machines that Cluster API replaces because a MachineHealthCheck found them ill, though a policy protects them: refit is not asked.
// It runs in the leader only.
type Remediations struct {
	Client  client.Reader
	Hooks   *Hooks
	Metrics *Metrics

	// told are the UIDs of those that were looked at, by their keys, until they are gone.
	told sync.Map
}

// SetupWithManager has the manager run it.
func (r *Remediations) SetupWithManager(mgr ctrl.Manager) error {
	is := func(o client.Object) bool {
		m, ok := o.(*clusterv1.Machine)
		return ok && Remediated(m)
	}
	remediated := predicate.NewPredicateFuncs(is)
	remediated.DeleteFunc = nil // so that each that is gone is forgotten
	shard.Forget(mgr, &r.told)
	return shard.Complete(mgr, ctrl.NewControllerManagedBy(mgr).Named("remediated-machine").
		For(&clusterv1.Machine{}, builder.WithPredicates(remediated)), r, &clusterv1.MachineList{}, is)
}

// Remediated reports whether the owner of a Machine has begun to replace it since a MachineHealthCheck, or somebody's annotation by way of one, has it so.
func Remediated(m *clusterv1.Machine) bool {
	owner := conditions.Get(m, clusterv1.MachineOwnerRemediatedCondition)
	return !m.DeletionTimestamp.IsZero() && conditions.IsFalse(m, clusterv1.MachineHealthCheckSucceededCondition) && owner != nil && owner.Status == metav1.ConditionFalse &&
		owner.Reason == clusterv1.MachineSetMachineRemediationMachineDeletingReason // a control plane's is the same
}

// Reconcile tells of a Machine once.
func (r *Remediations) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var m clusterv1.Machine
	err := r.Client.Get(ctx, req.NamespacedName, &m)
	if apierrors.IsNotFound(err) {
		r.told.Delete(req.NamespacedName)
	}
	if err != nil || !Remediated(&m) {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if uid, ok := r.told.Load(req.NamespacedName); ok && uid.(types.UID) == m.UID {
		return ctrl.Result{}, nil
	}
	candidate, err := (Candidates{r.Client}).Machine(ctx, &m)
	if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err) // its Cluster goes, too
	}
	policies, err := r.Hooks.Policies.Select(candidate)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.told.Store(req.NamespacedName, m.UID)
	// The condition does not say when: its time is that of the first reason, and remediation may have been put off since.
	protection, by := protectionOf(candidate, policies, m.DeletionTimestamp.Time)
	if protection == "" {
		return ctrl.Result{}, nil
	}
	r.Metrics.remediations.WithLabelValues(m.Namespace, candidate.Cluster, protection).Inc()
	found := conditions.Get(&m, clusterv1.MachineHealthCheckSucceededCondition)
	r.Hooks.Recorder.Eventf(&m, nil, corev1.EventTypeWarning, "RemediatedDespitePolicy", "Remediate", "%s", policykind.Note(fmt.Sprintf(
		"Cluster API replaces the Machine, and asks nobody, though %s: %s: %s", by, found.Reason, found.Message)))
	return ctrl.Result{}, nil
}

// protectionOf returns what protects a Machine from being replaced at an instant, and says by which of its policies; nothing if none does. Who has stopped changes
// by an override has not asked for that, and who has let them start has.
func protectionOf(s *Candidate, policies []*Policy, at time.Time) (kind, by string) {
	for _, p := range policies {
		if p.Forbid {
			return protectedByForbid, fmt.Sprintf("policy %s forbids that (replacement: Forbid)", p.Title())
		}
	}
	change := Change{Class: schedule.Class{Disruption: schedule.ReplaceDisruption}, Unspread: true}
	alone := *s
	alone.Overrides = nil
	d := Decide(at, &alone, policies, change)
	if !d.Open && len(s.Overrides) > 0 {
		overridden := Decide(at, s, policies, change)
		d.Open = overridden.Open
	}
	if d.Open {
		return "", ""
	}
	return protectedByWindow, fmt.Sprintf("policies let no replacement start at %s: %s", at.UTC().Format(time.RFC3339), d.Message)
}

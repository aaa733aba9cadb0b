package machineupdate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/cluster-api/controllers/external"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/registered"
)

// Registered has the extensions that are updaters beside refit's own.
type Registered interface {
	// For returns those for a machine, in their order.
	For(ctx context.Context, s registered.Subject) ([]*registered.Remote, error)
}

// retryRegistered is when an updater is asked again that could not be. The node's lease is kept at least that often.
const retryRegistered = 10 * time.Second

// findRegistered finds the updaters that are called, which are those that are registered for the Machine: what a hook has answered is not known any
// more. A repair brings back what refit itself has applied, and calls none.
func (u *update) findRegistered(ctx context.Context) *wait {
	if u.Registered == nil || u.mu.Status.Repair != nil {
		return nil
	}
	var err error
	u.registered, err = u.Registered.For(ctx, registered.Subject{
		Subject: inplace.SubjectOf(u.regarding), Infrastructure: u.regarding.Spec.InfrastructureRef.Kind,
	})
	if err != nil {
		return &wait{reason: refitv1.ReasonUpdater, message: "which registered updaters are to be called is not known: " + err.Error()}
	}
	if len(u.registered) > maxUpdaters {
		return &wait{reason: refitv1.ReasonUpdater, message: fmt.Sprintf(
			"%d UpdaterRegistrations select the Machine, and %d may at most; have their selectors be narrower", len(u.registered), maxUpdaters)}
	}
	return nil
}

// planRegistered adds to what the node says that is to be done what updaters take on it that are not done.
func (u *update) planRegistered(plan *node.Plan) {
	for _, r := range u.registered {
		if r.Drains() && !u.runOfRegistered(r.Name()).Done {
			plan.Actions = disruption.Merge(plan.Actions, []disruption.Action{{Type: disruption.Drain}})
			return
		}
	}
}

// runOfRegistered returns how far an updater is.
func (u *update) runOfRegistered(name string) refitv1.UpdaterRun {
	for _, run := range u.mu.Status.Updaters {
		if run.Name == name {
			return run
		}
	}
	return refitv1.UpdaterRun{Name: name}
}

// registeredAtWork reports whether an updater was called that is not done.
func registeredAtWork(s *refitv1.MachineUpdateStatus) bool {
	return slices.ContainsFunc(s.Updaters, func(r refitv1.UpdaterRun) bool { return !r.Done })
}

// workRegistered has the updaters do their part, one after the other, before the node does its own. It returns what they wait for, or when to go on; or
// 0 when all are done. What they have said is recorded before anything else is done, so that whoever goes on after a crash asks the one whose turn it is.
func (u *update) workRegistered(ctx context.Context) (*wait, time.Duration, error) {
	if u.occupied.held == nil || u.seen.InProgress() {
		return nil, 0, nil // they are done, or the node would not have begun
	}
	if run := u.unregistered(); run != nil {
		run.Message = "it is not registered for the Machine any more, and its part is not done; register it again"
		return nil, retryRegistered, u.tellRegistered(ctx, *run)
	}
	for _, r := range u.registered {
		run := u.runOfRegistered(r.Name())
		if run.Done {
			continue
		}
		if at := run.AskAgainAt; at != nil {
			if left := at.Sub(u.Clock.Now()); left > 0 {
				return nil, min(left, retryRegistered), nil
			}
		}
		if w, again, err := u.callRegistered(ctx, r, run); w != nil || err != nil || again > 0 {
			return w, again, err
		}
	}
	return nil, 0, nil
}

// unregistered returns how far an updater is that was called, is not done, and is not registered for the Machine any more; nil if there is none.
func (u *update) unregistered() *refitv1.UpdaterRun {
	for _, run := range u.mu.Status.Updaters {
		if !run.Done && !slices.ContainsFunc(u.registered, func(r *registered.Remote) bool { return r.Name() == run.Name }) {
			return &run
		}
	}
	return nil
}

// callRegistered calls an updater, and records what it says.
func (u *update) callRegistered(ctx context.Context, r *registered.Remote, run refitv1.UpdaterRun) (*wait, time.Duration, error) {
	u.occupied.held.Enter("updater")
	if w := u.stillHolds(ctx, u.occupied.held); w != nil {
		return w, 0, nil
	}
	request, err := u.registeredRequest(ctx)
	if err != nil {
		return nil, 0, err
	}
	if run.Message == "" { // first of all, that it may have begun
		run.Message = "it is called"
		if err := u.tellRegistered(ctx, run); err != nil {
			return nil, 0, err
		}
	}
	before := run.Message
	progress, err := r.Update(ctx, request)
	switch {
	case ctx.Err() != nil:
		return nil, 0, ctx.Err()
	case err != nil: // it passes, or a person has to act; the machine is not replaced for it
		run.AskAgainAt, run.Message = u.in(retryRegistered), faultOf(err)
		if run.Message != before {
			u.event(corev1.EventTypeWarning, "InPlaceUpdateUpdater", "Update", err.Error())
		}
		return nil, retryRegistered, u.tellRegistered(ctx, run)
	case progress.Done:
		run.Done, run.AskAgainAt, run.Message = true, nil, cmp.Or(progress.Message, "its part is done")
		return nil, 0, u.tellRegistered(ctx, run)
	}
	run.AskAgainAt, run.Message = u.in(progress.RetryAfter), cmp.Or(progress.Message, "it does its part")
	return nil, min(progress.RetryAfter, retryRegistered), u.tellRegistered(ctx, run)
}

// faultOf is what an updater is to blame for, without its name.
func faultOf(err error) string {
	var fault *registered.Fault
	if errors.As(err, &fault) {
		return registered.Printable(fault.Err.Error())
	}
	return registered.Printable(err.Error())
}

func (u *update) in(d time.Duration) *metav1.Time {
	at := metav1.NewTime(u.Clock.Now().Add(d))
	return &at
}

// tellRegistered records how far an updater is. From the first time on the node may be changed.
func (u *update) tellRegistered(ctx context.Context, run refitv1.UpdaterRun) error {
	return u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		if s.ApplyingSince == nil {
			at := u.now()
			s.ApplyingSince, s.AppliedDigest = &at, ""
		}
		s.Phase, s.Reason, s.Step = refitv1.PhaseApplying, "", "updater "+run.Name
		s.Message = fmt.Sprintf("UpdaterRegistration %s: %s", run.Name, run.Message)
		i := slices.IndexFunc(s.Updaters, func(r refitv1.UpdaterRun) bool { return r.Name == run.Name })
		if i < 0 {
			s.Updaters = append(s.Updaters, run)
		} else {
			s.Updaters[i] = run
		}
	})
}

// registeredRequest returns the request that Cluster API would make: the objects as they are now, if they are still those that were asked for.
func (u *update) registeredRequest(ctx context.Context) ([]byte, error) {
	m := &unstructured.Unstructured{}
	m.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Machine"))
	if err := u.Live.Get(ctx, client.ObjectKeyFromObject(u.regarding), m); err != nil {
		return nil, fmt.Errorf("read the Machine: %w", err)
	}
	infrastructure, err := external.GetObjectFromContractVersionedRef(ctx, u.Live, u.regarding.Spec.InfrastructureRef, u.regarding.Namespace)
	if err != nil {
		return nil, fmt.Errorf("read the infrastructure machine: %w", err)
	}
	specs := map[fieldset.Object]any{fieldset.Machine: m.Object["spec"], fieldset.InfrastructureMachine: infrastructure.Object["spec"], fieldset.BootstrapConfig: nil}
	desired := map[string]any{"machine": asAsked(m), "infrastructureMachine": asAsked(infrastructure)}
	if ref := u.regarding.Spec.Bootstrap.ConfigRef; ref.IsDefined() {
		config, err := external.GetObjectFromContractVersionedRef(ctx, u.Live, ref, u.regarding.Namespace)
		if err != nil {
			return nil, fmt.Errorf("read the bootstrap config: %w", err)
		}
		specs[fieldset.BootstrapConfig], desired["bootstrapConfig"] = config.Object["spec"], asAsked(config)
	}
	digest, err := fieldset.Digest(specs)
	if err != nil {
		return nil, err
	}
	if digest != u.mu.Spec.Digest {
		return nil, fmt.Errorf("the specs of Machine %s have changed since they were read; they are read again", u.regarding.Name)
	}
	return json.Marshal(map[string]any{"apiVersion": runtimehooksv1.GroupVersion.String(), "kind": "UpdateMachineRequest", "desired": desired})
}

// asAsked is what Cluster API sends of an object.
func asAsked(o *unstructured.Unstructured) map[string]any {
	annotations := o.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	metadata := map[string]any{"name": o.GetName(), "namespace": o.GetNamespace()}
	if l := o.GetLabels(); len(l) > 0 {
		metadata["labels"] = l
	}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	return map[string]any{"apiVersion": o.GetAPIVersion(), "kind": o.GetKind(), "metadata": metadata, "spec": o.Object["spec"]}
}

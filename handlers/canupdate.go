package handlers

import (
	"context"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-refit/refit/internal/fieldset"
)

// CanUpdate answers the two hooks that ask what can be made in place.
type CanUpdate struct {
	engine   *Engine
	memory   *memory
	policies Policies
	metrics  *Metrics
	scope    Scope
	faults   Faults
}

// Faults tells people of registered updaters for whose faults nothing is decided.
type Faults interface {
	// Tell tells of an error, if it is one of an updater, at the MachineDeployment if one is named, else at the Machine.
	Tell(ctx context.Context, namespace, machine, deployment string, err error)
}

// NewCanUpdate returns handlers that have the engine decide, and ask the policies whether that may be answered.
func NewCanUpdate(engine *Engine, policies Policies, metrics *Metrics, scope Scope) *CanUpdate {
	return &CanUpdate{engine: engine, memory: newMemory(engine, clock.RealClock{}), policies: policies, metrics: metrics, scope: scope}
}

// Telling has faults of registered updaters be told, and returns the handlers.
func (h *CanUpdate) Telling(f Faults) *CanUpdate {
	h.faults = f
	return h
}

// Machine answers CanUpdateMachine.
func (h *CanUpdate) Machine(ctx context.Context, body []byte) runtimehooksv1.ResponseObject {
	v, err := h.decide(ctx, body, canUpdateMachineKind, machineLayout)
	if err != nil {
		return &runtimehooksv1.CanUpdateMachineResponse{TypeMeta: typeMeta("CanUpdateMachineResponse"), CommonResponse: failure(err)}
	}
	return v.machineResponse()
}

// MachineSet answers CanUpdateMachineSet.
func (h *CanUpdate) MachineSet(ctx context.Context, body []byte) runtimehooksv1.ResponseObject {
	v, err := h.decide(ctx, body, canUpdateMachineSetKind, machineSetLayout)
	if err != nil {
		return &runtimehooksv1.CanUpdateMachineSetResponse{TypeMeta: typeMeta("CanUpdateMachineSetResponse"), CommonResponse: failure(err)}
	}
	return v.machineSetResponse()
}

// decide has a request judged, and tells operators about what can't be made in place.
func (h *CanUpdate) decide(ctx context.Context, body []byte, kind string, l layout) (*verdict, error) {
	log := ctrl.LoggerFrom(ctx)
	v, key := h.memory.recall(ctx, kind, body)
	if v == nil {
		r, err := decodeRequest(body, kind)
		if err != nil {
			log.Info("Refused a request", "kind", kind, "reason", err.Error())
			h.metrics.decided(kind, outcomeError)
			return nil, err
		}
		var change digest
		v, change, err = h.judge(ctx, r, l)
		if err != nil {
			log.Error(err, "Could not judge a change", "kind", kind, "object", r.name(l))
			h.tell(ctx, r, l, err)
			h.metrics.decided(kind, outcomeError)
			return nil, err
		}
		h.memory.remember(ctx, key, change, v)
	}
	v, err := h.engine.reachable(ctx, v)
	if err != nil {
		log.Error(err, "Could not judge a change", "kind", kind)
		h.metrics.decided(kind, outcomeError)
		return nil, err
	}
	if err := h.permit(ctx, v); err != nil {
		if !h.memory.said(key, err.Error()) {
			log.Info("A policy does not let the change be decided now", "kind", kind, "object", v.namespace+"/"+v.name, "reason", err.Error())
		}
		h.metrics.decided(kind, outcomeWithheld)
		return nil, err
	}
	if v.decision.InPlace() {
		h.metrics.decided(kind, outcomeInPlace)
		h.memory.said(key, "") // else it would not be logged if the same were in the way again
		log.V(4).Info("The change can be made in place", "kind", kind, "object", v.namespace+"/"+v.name, "fields", len(v.decision))
		return v, nil
	}
	h.metrics.decided(kind, outcomeReplace)
	for _, l := range v.told.labels {
		h.metrics.left(kind, l)
	}
	if !h.memory.said(key, v.told.message) {
		log.Info("Fields can't be changed in place, so Cluster API replaces the machine", "kind", kind, "object", v.namespace+"/"+v.name, "fields", v.told.left)
	}
	return v, nil
}

// judge has a request judged, unless the same change was a moment ago. It returns the key to remember the change by, if it was decided now.
func (h *CanUpdate) judge(ctx context.Context, r *rawRequest, l layout) (v *verdict, change digest, err error) {
	if v, err = h.engine.read(ctx, r, l); err != nil {
		return nil, change, err
	}
	change, known := h.memory.recallChange(v, l)
	if known {
		return v, digest{}, h.scope.check(v.namespace)
	}
	if err := h.engine.settle(ctx, v, l); err != nil {
		return nil, change, err
	}
	return v, change, h.scope.check(v.namespace)
}

// tell tells people of a fault of a registered updater.
func (h *CanUpdate) tell(ctx context.Context, r *rawRequest, l layout, err error) {
	if h.faults == nil {
		return
	}
	m := l.of(fieldset.Machine)
	metadata := r.current[m.field].Get("metadata")
	namespace, name, deployment := metadata.Get("namespace").String(), metadata.Get("name").String(), ""
	if m.template {
		if deployment = metadata.Get("labels." + gjson.Escape(clusterv1.MachineDeploymentNameLabel)).String(); deployment == "" {
			return // nobody's MachineSet has no change
		}
	}
	h.faults.Tell(ctx, namespace, name, deployment, err)
}

// permit asks the policies. Without a change Cluster API does nothing.
func (h *CanUpdate) permit(ctx context.Context, v *verdict) error {
	if len(v.decision) == 0 {
		return nil
	}
	return h.policies.Permit(ctx, v.namespace, !v.decision.InPlace(), v.proposal)
}

func (v *verdict) patch(o fieldset.Object) runtimehooksv1.Patch {
	p, ok := v.patches[o]
	if !ok {
		return runtimehooksv1.Patch{}
	}
	return runtimehooksv1.Patch{PatchType: runtimehooksv1.JSONPatchType, Patch: p}
}

func (v *verdict) machineResponse() *runtimehooksv1.CanUpdateMachineResponse {
	return &runtimehooksv1.CanUpdateMachineResponse{
		TypeMeta:                   typeMeta("CanUpdateMachineResponse"),
		CommonResponse:             v.success(),
		MachinePatch:               v.patch(fieldset.Machine),
		InfrastructureMachinePatch: v.patch(fieldset.InfrastructureMachine),
		BootstrapConfigPatch:       v.patch(fieldset.BootstrapConfig),
	}
}

func (v *verdict) machineSetResponse() *runtimehooksv1.CanUpdateMachineSetResponse {
	return &runtimehooksv1.CanUpdateMachineSetResponse{
		TypeMeta:                           typeMeta("CanUpdateMachineSetResponse"),
		CommonResponse:                     v.success(),
		MachineSetPatch:                    v.patch(fieldset.Machine),
		InfrastructureMachineTemplatePatch: v.patch(fieldset.InfrastructureMachine),
		BootstrapConfigTemplatePatch:       v.patch(fieldset.BootstrapConfig),
	}
}

func (v *verdict) success() runtimehooksv1.CommonResponse {
	return runtimehooksv1.CommonResponse{Status: runtimehooksv1.ResponseStatusSuccess, Message: v.told.message}
}

func failure(err error) runtimehooksv1.CommonResponse {
	return runtimehooksv1.CommonResponse{Status: runtimehooksv1.ResponseStatusFailure, Message: err.Error()}
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: runtimehooksv1.GroupVersion.String(), Kind: kind}
}

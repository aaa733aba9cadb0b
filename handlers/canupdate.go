package handlers

import (
	"context"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/updaters"
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
		v, err = h.engine.judge(ctx, r, l)
		if err == nil {
			err = h.scope.check(v.namespace)
		}
		if err != nil {
			log.Error(err, "Could not judge a change", "kind", kind, "object", r.name(l))
			h.tell(ctx, r, l, err)
			h.metrics.decided(kind, outcomeError)
			return nil, err
		}
		h.memory.remember(ctx, key, v)
	}
	v, err := h.engine.reachable(ctx, v)
	if err != nil {
		log.Error(err, "Could not judge a change", "kind", kind)
		h.metrics.decided(kind, outcomeError)
		return nil, err
	}
	if err := h.permit(ctx, v); err != nil {
		log.Info("A policy does not let the change be decided now", "kind", kind, "object", v.namespace+"/"+v.name, "reason", err.Error())
		h.metrics.decided(kind, outcomeWithheld)
		return nil, err
	}
	if v.decision.InPlace() {
		h.metrics.decided(kind, outcomeInPlace)
		log.V(4).Info("The change can be made in place", "kind", kind, "object", v.namespace+"/"+v.name, "fields", len(v.decision))
		return v, nil
	}
	h.metrics.decided(kind, outcomeReplace)
	for _, f := range v.decision {
		if !f.Covered() {
			h.metrics.left(kind, f.Field, v.subject.MadeByKubeadm())
		}
	}
	log.Info("Fields can't be changed in place, so Cluster API replaces the machine", "kind", kind, "object", v.namespace+"/"+v.name, "fields", v.left())
	return v, nil
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
	return runtimehooksv1.CommonResponse{Status: runtimehooksv1.ResponseStatusSuccess, Message: summary(v.decision)}
}

// summary says in one line what was decided.
func summary(d updaters.Decision) string {
	left, first := 0, ""
	for _, v := range d {
		if !v.Covered() {
			if left++; left == 1 {
				first = describe(v)
			}
		}
	}
	switch {
	case len(d) == 0:
		return "nothing differs"
	case left == 0:
		return fmt.Sprintf("all %d changed fields can be updated in place", len(d))
	case left == 1:
		return fmt.Sprintf("1 of %d changed fields can't be updated in place: %s", len(d), first)
	default:
		return fmt.Sprintf("%d of %d changed fields can't be updated in place, among them %s", left, len(d), first)
	}
}

// describe names a field that can't be updated in place, and says why.
func describe(v updaters.Verdict) string {
	return fmt.Sprintf("%s of the %s: %s", cut(v.Field.String()), v.Field.Object, cut(v.Reason))
}

// maxText is how much of a path or of a reason is told, in bytes. What is longer has been made up, or has a value in it that was.
const maxText = 1024

func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}

func failure(err error) runtimehooksv1.CommonResponse {
	return runtimehooksv1.CommonResponse{Status: runtimehooksv1.ResponseStatusFailure, Message: err.Error()}
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: runtimehooksv1.GroupVersion.String(), Kind: kind}
}

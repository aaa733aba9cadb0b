package handlers

import (
	"context"
	"math"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-refit/refit/internal/fieldset"
)

// recordRetry is how long Cluster API waits before it asks again when the update could not be recorded or read.
const recordRetry = 5 * time.Second

// Progress is how the update of a machine stands.
type Progress struct {
	// Done says that the node shows what is desired. Cluster API then counts the update as complete.
	Done bool
	// Message is for people. The same state gives the same message.
	Message string
	// RetryAfter is when to ask again. It is rounded up to seconds and counts as one second at least unless Done.
	RetryAfter time.Duration
}

// Updates makes updates of machines happen.
type Updates interface {
	// Update has a machine brought to the desired specs that the digest identifies, or finds it under way, and says how
	// that stands. An error is one that passes.
	Update(ctx context.Context, namespace, machine, digest string) (Progress, error)
}

// Update answers the hook that has a machine updated.
type Update struct{ updates Updates }

// NewUpdate returns a handler that hands updates over.
func NewUpdate(updates Updates) *Update { return &Update{updates: updates} }

// Machine answers UpdateMachine.
func (h *Update) Machine(ctx context.Context, body []byte) runtimehooksv1.ResponseObject {
	response := &runtimehooksv1.UpdateMachineResponse{TypeMeta: typeMeta("UpdateMachineResponse")}
	namespace, name, digest, err := decodeUpdate(body)
	if err != nil {
		response.CommonResponse = failure(err)
		return response
	}
	p, err := h.updates.Update(ctx, namespace, name, digest)
	if err != nil {
		// Not Failure: that would hide the message from the Machine's condition.
		ctrl.LoggerFrom(ctx).Error(err, "Could not record or read an update", "machine", namespace+"/"+name)
		p = Progress{Message: "the update could not be recorded in the management cluster; trying again", RetryAfter: recordRetry}
	}
	response.Status = runtimehooksv1.ResponseStatusSuccess
	response.Message = p.Message
	if !p.Done {
		// 0 would mean that the update is complete.
		response.RetryAfterSeconds = int32(max(1, math.Ceil(min(p.RetryAfter, time.Hour).Seconds())))
	}
	return response
}

func decodeUpdate(body []byte) (namespace, name, digest string, err error) {
	r, err := decodeRequest(body, updateMachineKind)
	if err != nil {
		return "", "", "", err
	}
	specs := map[fieldset.Object]any{}
	for _, m := range machineLayout {
		o, err := m.decode("desired", r.Desired)
		if err != nil {
			return "", "", "", err
		}
		spec, err := m.decodeSpec("desired", o)
		if err != nil {
			return "", "", "", err
		}
		if m.object == fieldset.Machine {
			namespace, name = o.namespace, o.name
		}
		specs[m.object] = spec.Value
	}
	if namespace == "" || name == "" {
		return "", "", "", &RequestError{Field: "desired.machine.metadata", Problem: "has no name or no namespace"}
	}
	digest, err = fieldset.Digest(specs)
	return namespace, name, digest, err
}

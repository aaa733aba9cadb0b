package handlers

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"time"

	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/inplace"
)

// recordRetry is how long Cluster API waits before it asks again when the update could not be recorded or read.
const recordRetry = 5 * time.Second

// Updates makes updates of machines happen.
type Updates interface {
	// Update has a machine brought to the desired specs that the digest identifies, or finds it under way, and says how
	// that stands. An error is one that passes.
	Update(ctx context.Context, namespace, machine, digest string) (inplace.Progress, error)
}

// Update answers the hook that has a machine updated.
type Update struct {
	updates Updates
	scope   Scope
	// digests by the bytes of the specs: Cluster API asks again every few seconds, with the same ones.
	digests *lru.Cache
}

// maxDigests bounds the digests that are kept, about 300 bytes each. It is above what a fleet has that waits together: Cluster API asks for each Machine
// in turn, so that one more than are kept would have none be found.
const maxDigests = 100_000

// NewUpdate returns a handler that hands updates over.
func NewUpdate(updates Updates, scope Scope) *Update {
	return &Update{updates: updates, scope: scope, digests: lru.New(maxDigests)}
}

// Machine answers UpdateMachine.
func (h *Update) Machine(ctx context.Context, body []byte) runtimehooksv1.ResponseObject {
	response := &runtimehooksv1.UpdateMachineResponse{TypeMeta: typeMeta("UpdateMachineResponse")}
	w, err := h.decode(body)
	if err != nil {
		response.CommonResponse = failure(err)
		return response
	}
	p, err := h.updates.Update(ctx, w.namespace, w.machine, w.digest)
	if err != nil {
		// Not Failure: that would hide the message from the Machine's condition.
		ctrl.LoggerFrom(ctx).Error(err, "Could not record or read an update", "machine", w.namespace+"/"+w.machine)
		p = inplace.Progress{Message: "the update could not be recorded in the management cluster; trying again", RetryAfter: recordRetry}
	}
	response.Status = runtimehooksv1.ResponseStatusSuccess
	response.Message = p.Message
	if !p.Done {
		// 0 would mean that the update is complete.
		response.RetryAfterSeconds = int32(max(1, math.Ceil(min(p.RetryAfter, time.Hour).Seconds())))
	}
	return response
}

// wanted is what an UpdateMachineRequest asks for.
type wanted struct{ namespace, machine, digest string }

func (h *Update) decode(body []byte) (wanted, error) {
	r, err := decodeRequest(body, updateMachineKind)
	if err != nil {
		return wanted{}, err
	}
	var w wanted
	objects := make([]object, len(machineLayout))
	seen := sha256.New()
	for i, m := range machineLayout {
		if objects[i], err = m.decode("desired", r.desired); err != nil {
			return w, err
		}
		if m.object == fieldset.Machine {
			w.namespace, w.machine = objects[i].namespace, objects[i].name
		}
		_, _ = fmt.Fprintf(seen, "%d:%s", len(objects[i].spec), objects[i].spec) // a hash takes everything
	}
	if w.namespace == "" || w.machine == "" {
		return w, &RequestError{Field: "desired.machine.metadata", Problem: "has no name or no namespace"}
	}
	if err := h.scope.check(w.namespace); err != nil {
		return w, err
	}
	key := [sha256.Size]byte(seen.Sum(nil))
	if known, ok := h.digests.Get(key); ok {
		w.digest, _ = known.(string)
		return w, nil
	}
	if w.digest, err = digestOf(machineLayout, objects, nil); err == nil {
		h.digests.Add(key, w.digest)
	}
	return w, err
}

// digestOf identifies the specs of the objects, which are in the order of a layout. Those that a change brings are decoded already.
func digestOf(l layout, objects []object, change fieldset.Change) (string, error) {
	specs := map[fieldset.Object]any{}
	for i, m := range l {
		if oc, ok := change.Object(m.object); ok {
			specs[m.object] = oc.Desired.Value
			continue
		}
		spec, err := m.decodeSpec("desired", objects[i])
		if err != nil {
			return "", err
		}
		specs[m.object] = spec.Value
	}
	return fieldset.Digest(specs)
}

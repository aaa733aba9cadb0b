package registered

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/plain"
)

// Remote is an extension that is registered as an updater.
type Remote struct {
	name     string
	disturbs refitv1.UpdaterDisturbs
	timeout  time.Duration
	handlers refitv1.UpdaterHandlers
	caller   *caller
	// broken is why it can't be asked at all.
	broken error
}

// UpdaterPrefix is before the name of a registration where updaters are named that make a field.
const UpdaterPrefix = "registered/"

// Name is that of its registration.
func (r *Remote) Name() string { return r.name }

// Drains reports whether pods have to leave before it does its work.
func (r *Remote) Drains() bool { return r.disturbs != refitv1.UpdaterDisturbsNone }

// Patches are what an updater claims, by the object.
type Patches map[fieldset.Object]runtimehooksv1.Patch

// canUpdate is the answer to both CanUpdate hooks.
type canUpdate struct {
	runtimehooksv1.CommonResponse
	Machine         runtimehooksv1.Patch `json:"machinePatch"`
	Infrastructure  runtimehooksv1.Patch `json:"infrastructureMachinePatch"`
	Bootstrap       runtimehooksv1.Patch `json:"bootstrapConfigPatch"`
	MachineSet      runtimehooksv1.Patch `json:"machineSetPatch"`
	Infrastructures runtimehooksv1.Patch `json:"infrastructureMachineTemplatePatch"`
	Bootstraps      runtimehooksv1.Patch `json:"bootstrapConfigTemplatePatch"`
}

// CanUpdate asks about a change, twice, and returns both answers: one that changes its mind can't be relied on when the work is to be done. An error is a
// Fault. limit bounds one answer beside the registration's timeout. Without a handler for the hook it claims nothing.
func (r *Remote) CanUpdate(ctx context.Context, hook string, request []byte, limit time.Duration) (answers [2]Patches, err error) {
	if r.broken != nil {
		return answers, r.fault(r.broken)
	}
	handler := r.handlers.CanUpdateMachine
	if hook == CanUpdateMachineSet {
		handler = r.handlers.CanUpdateMachineSet
	}
	if handler == "" {
		return answers, nil
	}
	for i := range answers {
		if answers[i], err = r.canUpdate(ctx, hook, handler, request, limit); err != nil {
			return answers, r.fault(err)
		}
	}
	return answers, nil
}

func (r *Remote) canUpdate(ctx context.Context, hook, handler string, request []byte, limit time.Duration) (Patches, error) {
	ctx, cancel := context.WithTimeout(ctx, min(r.timeout, limit))
	defer cancel()
	var a canUpdate
	if err := r.caller.call(ctx, hook, handler, request, &a); err != nil {
		return nil, err
	}
	if err := succeeded(hook, &a.CommonResponse); err != nil {
		return nil, err
	}
	claims, others := []runtimehooksv1.Patch{a.Machine, a.Infrastructure, a.Bootstrap}, []runtimehooksv1.Patch{a.MachineSet, a.Infrastructures, a.Bootstraps}
	if hook == CanUpdateMachineSet {
		claims, others = others, claims
	}
	patches := Patches{}
	for i, object := range []fieldset.Object{fieldset.Machine, fieldset.InfrastructureMachine, fieldset.BootstrapConfig} {
		if len(others[i].Patch) > 0 || others[i].PatchType != "" {
			return nil, fmt.Errorf("its answer to %s has a patch for another kind of object than was asked about", hook)
		}
		switch p := claims[i]; {
		case len(p.Patch) > 0:
			patches[object] = p
		case p.PatchType != "":
			return nil, fmt.Errorf("its answer to %s has a patch type without a patch for the %s", hook, object)
		}
	}
	return patches, nil
}

// succeeded returns an error unless an answer says Success.
func succeeded(hook string, r *runtimehooksv1.CommonResponse) error {
	switch r.Status {
	case runtimehooksv1.ResponseStatusSuccess:
		return nil
	case runtimehooksv1.ResponseStatusFailure:
		return fmt.Errorf("it answers %s with Failure: %s", hook, cmp.Or(Printable(r.Message), "without a message"))
	default:
		return fmt.Errorf("it answers %s with the status %q", hook, Printable(string(r.Status)))
	}
}

// Update has it bring a machine to the objects of an UpdateMachineRequest, or go on. An error is a Fault, and passes.
func (r *Remote) Update(ctx context.Context, request []byte) (inplace.Progress, error) {
	if r.broken != nil {
		return inplace.Progress{}, r.fault(r.broken)
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	var a runtimehooksv1.UpdateMachineResponse
	err := r.caller.call(ctx, UpdateMachine, r.handlers.UpdateMachine, request, &a)
	if err == nil {
		err = succeeded(UpdateMachine, &a.CommonResponse)
	}
	if err == nil && a.RetryAfterSeconds < 0 {
		err = errors.New("it answers UpdateMachine with a negative retryAfterSeconds")
	}
	if err != nil {
		return inplace.Progress{}, r.fault(err)
	}
	return inplace.Progress{
		Done: a.RetryAfterSeconds == 0, Message: Printable(a.Message), RetryAfter: min(time.Duration(a.RetryAfterSeconds)*time.Second, time.Hour),
	}, nil
}

func (r *Remote) fault(err error) error { return &Fault{Updater: r.name, Err: err} }

// discover asks which handlers there are, and chooses those that the registration names, or that are the only ones.
func discover(ctx context.Context, c *caller, named refitv1.UpdaterHandlers) (refitv1.UpdaterHandlers, error) {
	var found runtimehooksv1.DiscoveryResponse
	request, err := json.Marshal(&runtimehooksv1.DiscoveryRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: runtimehooksv1.GroupVersion.String(), Kind: "DiscoveryRequest"},
	})
	if err == nil {
		err = c.call(ctx, discovery, "", request, &found)
	}
	if err == nil {
		err = succeeded(discovery, &found.CommonResponse)
	}
	if err != nil {
		return refitv1.UpdaterHandlers{}, err
	}
	var out refitv1.UpdaterHandlers
	var problems []error
	for _, h := range []struct {
		hook, named string
		out         *string
	}{
		{CanUpdateMachine, named.CanUpdateMachine, &out.CanUpdateMachine},
		{CanUpdateMachineSet, named.CanUpdateMachineSet, &out.CanUpdateMachineSet},
		{UpdateMachine, named.UpdateMachine, &out.UpdateMachine},
	} {
		*h.out, err = choose(found.Handlers, h.hook, h.named)
		problems = append(problems, err)
	}
	if err := plain.Join(problems...); err != nil {
		return refitv1.UpdaterHandlers{}, err
	}
	if out.UpdateMachine == "" || out.CanUpdateMachine == "" && out.CanUpdateMachineSet == "" {
		return refitv1.UpdaterHandlers{}, errors.New("it has no handler for UpdateMachine, or none for CanUpdateMachine and CanUpdateMachineSet")
	}
	return out, nil
}

// maxHandlerName is what the status of a registration has room for.
const maxHandlerName = 63

var validHandler = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// choose returns the handler of a hook that is named, or the only one; empty if there is none.
func choose(handlers []runtimehooksv1.ExtensionHandler, hook, named string) (string, error) {
	var names []string
	want := runtimehooksv1.GroupVersionHook{APIVersion: runtimehooksv1.GroupVersion.String(), Hook: hook}
	for _, h := range handlers {
		if h.RequestHook == want && (named == "" || h.Name == named) {
			names = append(names, h.Name)
		}
	}
	if len(names) == 0 {
		if named != "" {
			return "", fmt.Errorf("it has no handler %q for %s, which spec.handlers names", named, hook)
		}
		return "", nil
	}
	switch {
	case len(names) > 1:
		return "", fmt.Errorf("it has %d handlers for %s; say in spec.handlers which is meant", len(names), hook)
	case !validHandler.MatchString(names[0]) || len(names[0]) > maxHandlerName:
		return "", fmt.Errorf("its handler for %s has a name that is none", hook)
	}
	return names[0], nil
}

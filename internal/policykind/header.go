// Package policykind is what all kinds of policies share, KubernetesSources included: how they are kept as they were read, on every
// replica, so that hooks are answered from memory; which of them select a Machine; and what their statuses and Events say.
package policykind

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/selection"
	"github.com/capi-refit/refit/schedule"
)

// Policy is what was read of a policy. It does not change, and may be shared.
type Policy interface {
	// Head returns what all kinds of policies have.
	Head() *Header
}

// Header is what all kinds of policies have.
type Header struct {
	types.NamespacedName

	UID        types.UID
	Generation int64
	// Err says why the policy can't be read. Nothing that it might say may be decided for a Machine that such a policy selects.
	Err error

	// Selector says which Machines of the namespace the policy is for.
	Selector selection.Selector
}

var _ Policy = (*Header)(nil)

// Head implements Policy.
func (h *Header) Head() *Header { return h }

// HeaderOf reads the header of an object. A selector that can't be read selects every Machine of the namespace.
func HeaderOf(o client.Object, s refitv1.MachinesSelector) Header {
	h := Header{NamespacedName: client.ObjectKeyFromObject(o), UID: o.GetUID(), Generation: o.GetGeneration()}
	h.Selector, h.Err = selection.Read(s)
	return h
}

// Word returns an error that names the field unless value is one of those that are known.
func Word[S ~string](field string, value S, known ...S) error {
	if slices.Contains(known, value) {
		return nil
	}
	return &schedule.FieldError{Field: field, Err: fmt.Errorf("%q is not known", value)}
}

package nodeaccess

import (
	"context"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// definition is what has API servers know NodeAccesses.
var definition = "nodeaccesses." + refitv1.GroupVersion.Group

// missed fails if a NodeAccess may have selected a Machine a moment ago of which nobody knows, since this process had not begun. It may have, unless the
// Machine is younger than the process, or NodeAccesses themselves were hardly there: who has just installed refit does not wait. none is why the question arises.
func (f *Former) missed(ctx context.Context, live client.Reader, machine *clusterv1.Machine, none error) error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	since, now := f.since, f.Clock.Now()
	f.mu.Unlock()
	if since.IsZero() {
		return fmt.Errorf("%w; refit has just begun, and does not see yet when a NodeAccess is deleted", none)
	}
	until := since.Add(formerFor)
	if !now.Before(until) || machine.CreationTimestamp.After(since) {
		return nil
	}
	defined, err := f.definedSince(ctx, live)
	if err != nil {
		return fmt.Errorf("%w; whether one did until a moment ago can't be told: %w", none, err)
	}
	if since.Sub(defined) < formerFor {
		return nil
	}
	return fmt.Errorf("%w; refit began at %s and does not know which NodeAccesses were deleted just before, so that nothing is decided until one selects it, or until %s",
		none, since.UTC().Format(time.RFC3339), until.UTC().Format(time.RFC3339))
}

// definedSince returns since when there can be NodeAccesses.
func (f *Former) definedSince(ctx context.Context, live client.Reader) (time.Time, error) {
	f.mu.Lock()
	known := f.defined
	f.mu.Unlock()
	if !known.IsZero() {
		return known, nil
	}
	var crd metav1.PartialObjectMetadata
	crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	if err := live.Get(ctx, client.ObjectKey{Name: definition}, &crd); err != nil {
		return time.Time{}, fmt.Errorf("read CustomResourceDefinition %s: %w", definition, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.defined = crd.CreationTimestamp.Time
	return f.defined, nil
}

package machineupdate

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/question"
)

// registeredRequest returns the request that Cluster API would make: the objects as they are now, if they are still those that were asked for.
func (u *update) registeredRequest(ctx context.Context) ([]byte, error) {
	objects, err := u.readObjects(ctx)
	if err != nil {
		return nil, err
	}
	specs := map[fieldset.Object]any{fieldset.Machine: nil, fieldset.InfrastructureMachine: nil, fieldset.BootstrapConfig: nil}
	for of, o := range objects {
		specs[of] = o.Object["spec"]
	}
	digest, err := fieldset.Digest(specs)
	if err != nil {
		return nil, err
	}
	if digest != u.mu.Spec.Digest {
		return nil, fmt.Errorf("the specs of Machine %s have changed since they were read; they are read again", u.regarding.Name)
	}
	return question.UpdateMachine(objects)
}

// readObjects reads the Machine and what it refers to, as they are now.
func (u *update) readObjects(ctx context.Context) (question.Objects, error) {
	m := &unstructured.Unstructured{}
	m.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Machine"))
	if err := u.Live.Get(ctx, client.ObjectKeyFromObject(u.regarding), m); err != nil {
		return nil, fmt.Errorf("read the Machine: %w", err)
	}
	return question.WithRefs(ctx, u.Live, m, &u.regarding.Spec)
}

// canRollBack returns the request by which Cluster API would ask whether the Machine can be brought in place to what is wanted.
func (u *update) canRollBack(ctx context.Context, change fieldset.Change) ([]byte, error) {
	current, err := u.readObjects(ctx)
	if err != nil {
		return nil, err
	}
	desired, err := current.After(change)
	if err != nil {
		return nil, err
	}
	return question.CanUpdateMachine(current, desired)
}

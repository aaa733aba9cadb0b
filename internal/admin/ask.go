package admin

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// updateOf reads the update of a Machine.
func updateOf(ctx context.Context, c client.Reader, m *clusterv1.Machine) (*refitv1.MachineUpdate, error) {
	key := client.ObjectKeyFromObject(m)
	mu := &refitv1.MachineUpdate{}
	switch err := c.Get(ctx, key, mu); {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no update of Machine %s: refit was never asked to update it", key)
	case err != nil:
		return nil, fmt.Errorf("read MachineUpdate %s: %w", key, err)
	}
	if !metav1.IsControlledBy(mu, m) {
		return nil, fmt.Errorf("MachineUpdate %s is of an earlier Machine of the same name, and about to go", key)
	}
	return mu, nil
}

// onConflict writes, and when somebody else has written an object meanwhile reads it and writes once more: what is written is decided by what it is then.
func onConflict(ctx context.Context, c client.Client, obj client.Object, write func() error) error {
	again := false
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if again {
			if err := c.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
				return err
			}
		}
		again = true
		return write()
	})
}

// ask sets an annotation on a MachineUpdate to a value that it did not have before, if nobody else has written it since, and returns what
// it is then. The others go: asked for and not acted upon yet, they would be about the failure after this one.
func ask(ctx context.Context, c client.Client, mu *refitv1.MachineUpdate, admin string, now time.Time, annotation string, others ...string) (*refitv1.MachineUpdate, error) {
	changed := mu.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, annotation, now.UTC().Format(time.RFC3339Nano)+" "+admin)
	for _, other := range others {
		delete(changed.Annotations, other)
	}
	if err := annotate(ctx, c, mu, changed, admin); err != nil {
		return nil, err
	}
	return changed, nil
}

// annotate writes the annotations of a MachineUpdate as they are changed, if nobody else has written it since.
func annotate(ctx context.Context, c client.Client, mu, changed *refitv1.MachineUpdate, admin string) error {
	err := c.Patch(ctx, changed, client.MergeFromWithOptions(mu, client.MergeFromWithOptimisticLock{}), client.FieldOwner(admin))
	key := client.ObjectKeyFromObject(mu)
	switch {
	case apierrors.IsConflict(err):
		return fmt.Errorf("MachineUpdate %s has changed at this moment; look at it with `refit status`, and run the command again if you still want to: %w", key, err)
	case err != nil:
		return fmt.Errorf("annotate MachineUpdate %s: %w", key, err)
	}
	return nil
}

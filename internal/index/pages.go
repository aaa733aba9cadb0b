package index

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// page is how many objects are read at a time.
const page = 500

// EachLive calls visit with each MachineUpdate that the API server has in a namespace, read a page at a time: there may be tens of thousands. All
// are as they were at one instant. It ends at the first error.
func EachLive(ctx context.Context, live client.Reader, namespace string, visit func(*refitv1.MachineUpdate) error) error {
	for next := ""; ; {
		var list refitv1.MachineUpdateList
		if err := live.List(ctx, &list, client.InNamespace(namespace), client.Limit(page), client.Continue(next)); err != nil {
			return fmt.Errorf("list MachineUpdates in namespace %s: %w", namespace, err)
		}
		for i := range list.Items {
			if err := visit(&list.Items[i]); err != nil {
				return err
			}
		}
		if next = list.Continue; next == "" {
			return nil
		}
	}
}

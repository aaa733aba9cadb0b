package managementtest

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// NewForApply returns a client of an API server that has objects, shows managed fields, and answers dry runs of server-side apply, which
// the fake client does not.
func NewForApply(scheme *runtime.Scheme, objects ...client.Object) client.WithWatch {
	c := indexed(scheme, fake.NewClientBuilder().WithScheme(scheme)).WithReturnManagedFields().WithStatusSubresource(Statuses()...).WithObjects(objects...).Build()
	return interceptor.NewClient(c, interceptor.Funcs{Apply: apply})
}

// apply has a dry run made on a copy of the object.
func apply(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	options := (&client.ApplyOptions{}).ApplyOptions(opts)
	if len(options.DryRun) == 0 {
		return c.Apply(ctx, obj, opts...)
	}
	data, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	wanted, now := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	if err := wanted.UnmarshalJSON(data); err != nil {
		return err
	}
	now.SetGroupVersionKind(wanted.GroupVersionKind())
	beside := fake.NewClientBuilder().WithScheme(c.Scheme()).WithReturnManagedFields()
	switch err := c.Get(ctx, client.ObjectKeyFromObject(wanted), now); {
	case apierrors.IsNotFound(err) && wanted.GetUID() == "": // it would be made
		return beside.Build().Apply(ctx, obj, &client.ApplyOptions{FieldManager: options.FieldManager, Force: options.Force})
	case err != nil:
		return err
	}
	if version := wanted.GetResourceVersion(); version != "" && version != now.GetResourceVersion() {
		return fmt.Errorf("a dry run of version %s, and the object has %s", version, now.GetResourceVersion())
	}
	return beside.WithObjects(now).Build().Apply(ctx, obj, &client.ApplyOptions{FieldManager: options.FieldManager, Force: options.Force})
}

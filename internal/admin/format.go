package admin

import (
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/printer"
)

// objectList is a list as kubectl prints it.
type objectList struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct{}        `json:"metadata"`
	Items           []client.Object `json:"items"`
}

// printObjects writes objects of refit's for programs, and reports whether the format is one for programs.
func printObjects[T any, P interface {
	*T
	client.Object
}](w io.Writer, format, kind, resource string, all []T) (bool, error) {
	items := make([]client.Object, len(all))
	for i := range all {
		o := P(&all[i])
		o.GetObjectKind().SetGroupVersionKind(refitv1.GroupVersion.WithKind(kind))
		o.SetManagedFields(nil)
		items[i] = o
	}
	if format == printer.Name {
		return true, printNames(w, resource, items)
	}
	return printer.Print(w, format, objectList{TypeMeta: metav1.TypeMeta{APIVersion: refitv1.GroupVersion.String(), Kind: kind + "List"}, Items: items})
}

func printNames(w io.Writer, resource string, all []client.Object) error {
	for _, o := range all {
		if err := say(w, "%s.%s/%s\n", resource, refitv1.GroupVersion.Group, o.GetName()); err != nil {
			return err
		}
	}
	return nil
}

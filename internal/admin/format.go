package admin

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// The forms in which lists of objects are shown.
const (
	FormatText = "text"
	FormatWide = "wide" // with all that text leaves out
	FormatJSON = "json"
	FormatYAML = "yaml"
	FormatName = "name" // as kubectl takes them
)

// Formats are all of them.
func Formats() []string { return []string{FormatText, FormatWide, FormatJSON, FormatYAML, FormatName} }

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
	switch format {
	case FormatName:
		return true, printNames(w, resource, items)
	case FormatJSON, FormatYAML:
		list := objectList{TypeMeta: metav1.TypeMeta{APIVersion: refitv1.GroupVersion.String(), Kind: kind + "List"}, Items: items}
		return true, PrintFor(w, format, list)
	default:
		return false, nil
	}
}

func printNames(w io.Writer, resource string, all []client.Object) error {
	for _, o := range all {
		if err := say(w, "%s.%s/%s\n", resource, refitv1.GroupVersion.Group, o.GetName()); err != nil {
			return err
		}
	}
	return nil
}

// PrintFor writes a value as JSON or YAML.
func PrintFor(w io.Writer, format string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err == nil && format == FormatYAML {
		data, err = yaml.JSONToYAML(data)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, strings.TrimSpace(string(data)))
	return err
}

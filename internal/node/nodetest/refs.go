package nodetest

import (
	"reflect"

	"github.com/capi-refit/refit/internal/node"
)

// Refs names a resource of each kind. Files and units have no name.
func Refs() []node.Ref {
	var refs []node.Ref
	for i := range reflect.TypeFor[node.Resource]().NumField() {
		var r node.Resource
		member := reflect.ValueOf(&r).Elem().Field(i)
		member.Set(reflect.New(member.Type().Elem()))
		ref, _ := r.Ref()
		refs = append(refs, ref)
	}
	return refs
}

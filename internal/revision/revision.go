// Package revision tells by its metadata whether an object is as it was.
package revision

import (
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Revision is which version of which object there is. It is zero if there is none. A resourceVersion alone may be that of another object of the name.
type Revision struct {
	UID             types.UID
	ResourceVersion string
}

// Of returns the revision of an object.
func Of(o client.Object) Revision { return Revision{o.GetUID(), o.GetResourceVersion()} }

// Is reports whether an object has the revision. One that does not tell its version has not.
func (r Revision) Is(o client.Object) bool { return r.ResourceVersion != "" && r == Of(o) }

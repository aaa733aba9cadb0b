package protection

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Known are a Machine and its Node as they were read or written last; nil: that is not known. What is written by them is refused if they have changed
// since, and they are read then. That nothing is to be written, or must not be, is never taken from them.
type Known struct {
	Machine, Node *metav1.PartialObjectMetadata
	// Read reports that one of them was read: what is written is not proven to be as it was known.
	Read bool
}

// MetadataOf returns an object of a kind of which only the metadata is known. It shares that, and a Protector does not change it.
func MetadataOf(kind schema.GroupVersionKind, meta *metav1.ObjectMeta) *metav1.PartialObjectMetadata {
	out := &metav1.PartialObjectMetadata{ObjectMeta: *meta}
	out.SetGroupVersionKind(kind)
	return out
}

// take returns what is known of the object that is meant, for one write; nil if there is nothing.
func (t target) take() *metav1.PartialObjectMetadata {
	if t.known == nil || *t.known == nil {
		return nil
	}
	obj := *t.known
	*t.known = nil
	if obj.UID != t.uid || obj.Name != t.key.Name || obj.Namespace != t.key.Namespace || obj.ResourceVersion == "" {
		return nil
	}
	return obj
}

package bootimage

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// Reasons of the conditions.
const (
	reasonInvalid = "InvalidPolicy"
	reasonOld     = "ImagesTooOld"
	reasonUnknown = "ImagesUnknown"
	reasonNew     = "ImagesNewEnough"
	reasonNoLimit = "NoMinimumVersion"
	reasonForeign = "ForeignController"
)

// maxNamed is how many Machines a condition names.
const maxNamed = 10

// names are those of Machines, as many as people read.
func names(all []string) string {
	if more := len(all) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:maxNamed], ", "), more)
	}
	return strings.Join(all, ", ")
}

// setSkew reports whether images are too old.
func (p *Policy) setSkew(st *refitv1.BootImagePolicyStatus, found *census) {
	c := metav1.Condition{
		Type: refitv1.BootImageSkewCondition, Status: metav1.ConditionFalse, Reason: reasonNew, ObservedGeneration: st.ObservedGeneration,
		Message: "no machine has booted, or names in its infrastructure machine, an image that is too old",
	}
	switch {
	case p.minimum == nil:
		c.Reason, c.Message = reasonNoLimit, "the policy has no minimumVersion: images of any version will do"
	case found.Skewed > 0:
		c.Status, c.Reason = metav1.ConditionTrue, reasonOld
		c.Message = fmt.Sprintf("of %d machines %d have booted, or name in their infrastructure machines, an image older than %s: %s; "+
			"give their templates a newer image, and replace them where what they have booted from is too old",
			found.Total, found.Skewed, p.minimumText, names(found.skewed))
	case found.Unknown > 0:
		c.Status, c.Reason = metav1.ConditionUnknown, reasonUnknown
		c.Message = fmt.Sprintf("of %d of %d machines it is not known in which version their images are: %s; set versionPattern if the "+
			"images have versions that it does not find", found.Unknown, found.Total, names(found.unknown))
	}
	meta.SetStatusCondition(&st.Conditions, c)
}

// setForeign says whose infrastructure machines are left alone.
func setForeign(st *refitv1.BootImagePolicyStatus, found *census) {
	if found.Foreign == 0 {
		meta.RemoveStatusCondition(&st.Conditions, refitv1.ForeignMachinesCondition)
		return
	}
	meta.SetStatusCondition(&st.Conditions, metav1.Condition{
		Type: refitv1.ForeignMachinesCondition, Status: metav1.ConditionTrue, Reason: reasonForeign, ObservedGeneration: st.ObservedGeneration,
		Message: fmt.Sprintf("something else than Cluster API controls the infrastructure machines of %d Machines, which are left alone: %s",
			found.Foreign, names(found.foreign)),
	})
}

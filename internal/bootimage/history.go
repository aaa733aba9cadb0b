package bootimage

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// maxHistory is how many images a status remembers.
const maxHistory = 10

// remember returns the history of images with those that machines name now, the newest first. Of those that no machine names any
// more the oldest go first. More than maxHistory that are named at once do not push each other out: the last are not shown.
func remember(history []refitv1.BootImageRecord, now map[named]int32, at time.Time) []refitv1.BootImageRecord {
	left := map[named]int32{}
	for of, machines := range now {
		left[of] = machines
	}
	var out []refitv1.BootImageRecord
	for _, r := range history {
		of := named{r.Kind, r.Image}
		r.Machines = left[of]
		delete(left, of)
		out = append(out, r)
	}
	for of, machines := range left {
		out = append(out, refitv1.BootImageRecord{Kind: of.kind, Image: of.image, Since: metav1.Time{Time: at.Truncate(time.Second)}, Machines: machines})
	}
	slices.SortFunc(out, newestFirst)
	for i := len(out) - 1; i >= 0 && len(out) > maxHistory; i-- {
		if out[i].Machines == 0 {
			out = slices.Delete(out, i, i+1)
		}
	}
	if len(out) > maxHistory { // of those that are named, the first stay
		slices.Reverse(out)
		out = out[:maxHistory]
		slices.Reverse(out)
	}
	return out
}

// newestFirst is the order of a history. Images that were seen first at the same time are in the order of their names.
func newestFirst(a, b refitv1.BootImageRecord) int {
	return cmp.Or(b.Since.Compare(a.Since.Time), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Image, b.Image))
}

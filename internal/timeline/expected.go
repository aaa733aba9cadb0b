package timeline

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// Expected is a change that waits: from when on it may start, and when the last of its Machines is expected to be done.
type Expected struct {
	Namespace string `json:"namespace"`
	Cluster   string `json:"cluster"`
	// Kind and Owner name the object that wants it.
	Kind  string `json:"kind"`
	Owner string `json:"owner"`
	// Causes are what becomes of the Machines.
	Causes   []refitv1.PendingCause `json:"causes"`
	Machines int32                  `json:"machines"`
	UnderWay int32                  `json:"underWay,omitempty"`
	// Start and End are none where nobody knows.
	Start *time.Time `json:"start,omitempty"`
	End   *time.Time `json:"end,omitempty"`
	// Why tells what it waits for.
	Why string `json:"why,omitempty"`
}

// Expect returns the changes that wait, those that start first before the others, and those before which something else has to happen last. What a
// Cluster sums up of its owners is left out.
func Expect(pending []refitv1.PendingChange) []Expected {
	type cluster struct{ namespace, name string }
	owners := map[cluster]bool{}
	for i := range pending {
		if p := &pending[i]; p.Spec.Role != "" {
			owners[cluster{p.Namespace, p.Spec.Cluster}] = true
		}
	}
	out := []Expected{}
	for i := range pending {
		p := &pending[i]
		if p.Spec.Role == "" && owners[cluster{p.Namespace, p.Spec.Cluster}] {
			continue
		}
		e := Expected{
			Namespace: p.Namespace, Cluster: p.Spec.Cluster, Kind: p.Spec.Owner.Kind, Owner: p.Spec.Owner.Name,
			Machines: p.Status.Machines, UnderWay: p.Status.UnderWay, Causes: []refitv1.PendingCause{},
		}
		for _, c := range p.Status.Causes {
			e.Causes = append(e.Causes, c.Cause)
		}
		if t := p.Status.EarliestStart; t != nil {
			e.Start = new(t.UTC())
		}
		if t := p.Status.LastDone; t != nil {
			e.End = new(t.UTC())
		}
		if c := meta.FindStatusCondition(p.Status.Conditions, refitv1.ChangePendingCondition); c != nil {
			e.Why = c.Message
		}
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b Expected) int {
		return cmp.Or(
			first(a.Start, b.Start), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Cluster, b.Cluster),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Owner, b.Owner),
		)
	})
	return out
}

// first compares two instants, of which one that nobody knows is the last.
func first(a, b *time.Time) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	default:
		return a.Compare(*b)
	}
}

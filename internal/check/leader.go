package check

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/capi-refit/refit/internal/shard"
)

// leader looks whether one of refit's replicas leads, or one for each shard that there is now.
func (c *Checker) leader(ctx context.Context) []Finding {
	const check = "leader"
	var list coordinationv1.LeaseList
	if err := c.Client.List(ctx, &list); err != nil {
		return []Finding{unknown(check, "", err)}
	}
	leases := shard.Elections(list.Items)
	if len(leases) == 0 {
		return []Finding{{Check: check, Level: Warning, Message: "there is no Lease of an election of refit", Do: "see refit's log; without --leader-elect, or where it runs elsewhere, there is none here"}}
	}
	var all []Finding
	for i := range leases {
		l := &leases[i]
		object := nameOf("Lease", l)
		if c.held(l) {
			all = append(all, good(check, object, *l.Spec.HolderIdentity+" leads"))
			continue
		}
		all = append(all, Finding{Check: check, Level: Error, Object: object, Message: "nobody leads, so that no machine is updated", Do: "see refit's log"})
	}
	return all
}

// held reports whether somebody has a Lease, by the time of the API server: that of who asks may be wrong.
func (c *Checker) held(l *coordinationv1.Lease) bool {
	if ptr.Deref(l.Spec.HolderIdentity, "") == "" || l.Spec.RenewTime == nil {
		return false
	}
	valid := l.Spec.RenewTime.Add(time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 15)) * time.Second)
	return !valid.Before(c.Clock.Now())
}

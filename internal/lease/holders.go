package lease

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// holdersAtOnce is how many Leases are read at once.
const holdersAtOnce = 500

// Holders returns who other than refit holds the leases of nodes, by the name of the node. It goes by the times on the leases, as a notice
// to people may; whether a node is free is asked with Acquire.
func (l *Locker) Holders(ctx context.Context) (map[string]string, error) {
	holders, now := map[string]string{}, l.Clock.Now()
	for page := ""; ; {
		var list coordinationv1.LeaseList
		if err := l.Client.List(ctx, &list, client.InNamespace(l.namespace()), client.Limit(holdersAtOnce), client.Continue(page)); err != nil {
			return nil, fmt.Errorf("list Leases in %s: %w", l.namespace(), err)
		}
		for i := range list.Items {
			lease := &list.Items[i]
			if node, ok := strings.CutPrefix(lease.Name, Name("")); ok && foreign(lease, now) {
				holders[node] = holderOf(lease)
			}
		}
		if page = list.Continue; page == "" {
			return holders, nil
		}
	}
}

// foreign reports whether somebody other than refit holds a lease, by its times if it has any.
func foreign(lease *coordinationv1.Lease, now time.Time) bool {
	holder := holderOf(lease)
	if holder == "" || strings.HasPrefix(holder, holderPrefix) || !lease.DeletionTimestamp.IsZero() {
		return false
	}
	if IsPerson(holder) || lease.Spec.RenewTime == nil || durationOf(lease) <= 0 {
		return true
	}
	return !now.After(lease.Spec.RenewTime.Add(durationOf(lease) + Tolerance))
}

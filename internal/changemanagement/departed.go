package changemanagement

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// departures are MachineUpdates that have been deleted since the ledgers were written last.
type departures struct {
	mu    sync.Mutex
	all   map[types.UID]departure
	noted int64
}

// count returns how many have been noted.
func (d *departures) count() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.noted
}

type departure struct {
	update *refitv1.MachineUpdate
	at     time.Time
}

// longestDeparture is for how long one is known. By then the ledgers have it.
const longestDeparture = 10 * time.Minute

// note notes that an update is gone, as it was at last.
func (d *departures) note(now time.Time, mu *refitv1.MachineUpdate) {
	if len(mu.Status.Starts) == 0 || mu.Status.Admission == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all == nil {
		d.all = map[types.UID]departure{}
	}
	for uid, o := range d.all {
		if now.Sub(o.at) > longestDeparture {
			delete(d.all, uid)
		}
	}
	d.all[mu.UID] = departure{mu, now}
	d.noted++
}

// of returns the updates that are gone and were admitted under a policy.
func (d *departures) of(p *refitv1.ChangeManagementPolicy) []*refitv1.MachineUpdate {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []*refitv1.MachineUpdate
	for _, o := range d.all {
		if o.update.Namespace == p.Namespace && slices.Contains(o.update.Status.Admission.Policies, p.Name) {
			out = append(out, o.update)
		}
	}
	return out
}

package pending

import (
	"time"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// together has entries wait for others.
func together(entries []*entry) {
	replacedTogether(entries)
	controlPlanesFirst(entries)
}

// replacedTogether has the Machines of a MachineSet that are to be replaced start when the last of them is permitted: Cluster API is answered for all.
func replacedTogether(entries []*entry) {
	sets := map[string][]*entry{}
	for _, e := range entries {
		if key, alone := setOf(e.machine); !alone && e.cause == refitv1.PendingReplacement && !e.underWay && !e.stuck {
			sets[key.Name] = append(sets[key.Name], e)
		}
	}
	for _, set := range sets {
		last := set[0].earliest
		for _, e := range set {
			if e.earliest.IsZero() {
				last = time.Time{}
				break
			}
			last = latest(last, e.earliest)
		}
		for _, e := range set {
			e.earliest = last
		}
	}
}

// controlPlanesFirst has the workers of a Cluster wait whose control plane is to be upgraded, and nobody knows when.
func controlPlanesFirst(entries []*entry) {
	never := map[string]bool{}
	for _, e := range entries {
		if e.upgrades(refitv1.ControlPlaneRole) && e.earliest.IsZero() {
			never[e.cluster.Name] = true
		}
	}
	for _, e := range entries {
		if e.upgrades(refitv1.WorkerRole) && never[e.cluster.Name] && !e.stuck {
			e.stop(refitv1.PendingControlPlane, "the control plane comes first, and nobody knows when that may start")
		}
	}
}

// upgrades reports whether it waits for the upgrade of a part of its Cluster.
func (e *entry) upgrades(part refitv1.Role) bool {
	return e.cause == refitv1.PendingUpgrade && e.prospect.Role == part
}

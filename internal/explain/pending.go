package explain

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/inplace"
)

// Lot are machines of an owner that differ from what it wants in the same: those of one MachineSet, or one of a control plane.
type Lot struct {
	Machines []clusterv1.Machine
	// Change is what differs, and Err why that can't be told.
	Change fieldset.Change
	Err    error
	// Made is since when all of them are there: of a MachineSet that of its own.
	Made time.Time
	// Updates are those that Cluster API has asked for and that have not ended, by the machine. Such a machine has what its owner wants, and its node has not.
	Updates map[string]Update
}

// Update is the update in place of a machine.
type Update struct {
	// Started reports that no policy holds it back any more.
	Started bool
	// Disruption is what its node has said that it takes; empty if it has said nothing yet. Actions are the same in order.
	Disruption disruption.ActionType
	Actions    []string
}

// asked tells of a machine for which Cluster API has asked already.
func (o *Owner) asked(one *Machine, u Update) {
	if one.Verdict != InPlace && one.Verdict != None {
		return
	}
	one.Verdict, one.Disruption = InPlace, u.Disruption
	o.Verdict = worse(o.Verdict, InPlace)
	o.add(nil, u.Actions)
	switch {
	case u.Started:
		one.When = &When{Reason: started, Policies: []string{}}
	default:
		one.Why = "Cluster API has asked for it, and it waits"
	}
	if u.Disruption == "" {
		o.untold = true
		return
	}
	o.Disruption = disruption.Worst(o.Disruption, u.Disruption)
}

// Pending says what waits at an owner that is there: a MachineDeployment or a KubeadmControlPlane.
func (e *Explainer) Pending(ctx context.Context, owner *unstructured.Unstructured, lots []Lot) (*Owner, error) {
	key := keyOf(owner)
	o := newOwner(key)
	of, err := (sides{}).read(&Set{}, owner)
	if err != nil {
		return nil, err
	}
	o.Cluster = of.cluster
	for _, lot := range lots {
		if err := e.lot(ctx, o, of, lot); err != nil {
			return nil, err
		}
	}
	o.ofSurge(of)
	if of.paused {
		o.Adds = append(o.Adds, "it is paused: nothing happens before that ends")
	}
	if of.after != nil && of.after.After(e.Now) {
		o.Adds = append(o.Adds, fmt.Sprintf("replaces, from %s on, all machines that were made before (rollout.after), whatever could be made in place", of.after.UTC().Format(time.RFC3339)))
	}
	o.inOrder()
	return o, nil
}

// ClusterOf returns the name of the Cluster of an owner that is there; empty if it does not say.
func ClusterOf(owner *unstructured.Unstructured) string {
	of, err := (sides{}).read(&Set{}, owner)
	if err != nil {
		return ""
	}
	return of.cluster
}

// lot says what becomes of machines that differ in the same.
func (e *Explainer) lot(ctx context.Context, o *Owner, of *side, lot Lot) error {
	part := newOwner(Key{Namespace: o.Namespace, Name: o.Name})
	if err := e.decideLot(ctx, part, of, lot); err != nil {
		return err
	}
	o.class = part.class
	o.unasked = part.unasked
	for i := range lot.Machines {
		m := &lot.Machines[i]
		one := &Machine{Name: m.Name, Verdict: part.Verdict, Disruption: part.Disruption, Why: part.uncovered()}
		if one.Why == "" && len(part.Notes) > 0 {
			one.Why = part.Notes[0]
		}
		u, asked := lot.Updates[m.Name]
		if asked {
			part.asked(one, u)
		}
		one.marked(m, asked && !u.Started)
		o.Machines.add(one.Verdict)
		o.Each = append(o.Each, one)
		if err := e.whenOf(ctx, o, one, m); err != nil {
			return err
		}
	}
	o.Verdict, o.Disruption, o.untold = worse(o.Verdict, part.Verdict), worst(o, part), o.untold || part.untold
	o.Adds = append(o.Adds, part.Adds...)
	o.add(part.Fields, part.Actions)
	return nil
}

// add counts a machine of which that becomes.
func (c *Counts) add(v Verdict) {
	c.Total++
	switch v {
	case InPlace:
		c.InPlace++
	case Replace:
		c.Replaced++
	case Deleted:
		c.Deleted++
	default: // it stays as it is
	}
}

// worst is the worst that machines of an owner see, with those of a part; empty where that can't be told.
func worst(o, part *Owner) disruption.ActionType {
	if o.Verdict == Unknown || part.Verdict == Unknown {
		return ""
	}
	return disruption.Worst(o.Disruption, part.Disruption)
}

// decideLot finds out what becomes of machines that Cluster API has not rolled out.
func (e *Explainer) decideLot(ctx context.Context, part *Owner, of *side, lot Lot) error {
	if len(lot.Machines) == 0 {
		return nil
	}
	upToDate, outdated := lot.said()
	switch {
	case of.expired(e.Now, lot):
		part.replaceUnasked(CauseRolloutAfter)
		part.Adds = append(part.Adds, fmt.Sprintf("replaces all machines that were made before %s (rollout.after), whatever could be made in place", of.after.UTC().Format(time.RFC3339)))
		return nil
	case upToDate && (lot.Err != nil || of.controlPlane):
		return nil // Cluster API says that nothing is wanted, and writes more to such machines than it compares
	case lot.Err != nil:
		part.unknown(lot.Err.Error())
		return nil
	case len(lot.Change) > 0:
		return e.judgeLot(ctx, part, of, lot)
	case !outdated:
		return nil
	case of.controlPlane:
		part.replaceUnasked(CauseRolloutAfter)
		part.Notes = append([]string{"the owner wants another machine without another specification"}, part.Notes...)
		return nil
	}
	return e.judgeLot(ctx, part, of, lot)
}

// expired reports whether machines are to be replaced since they were made before an instant that is over.
func (s *side) expired(now time.Time, lot Lot) bool {
	return s.after != nil && !s.after.After(now) && lot.Made.Before(*s.after)
}

// said returns what Cluster API says of the machines: that all are up to date, or that one is not.
func (l *Lot) said() (upToDate, outdated bool) {
	upToDate = true
	for i := range l.Machines {
		yes, known := UpToDate(&l.Machines[i])
		upToDate, outdated = upToDate && yes && known, outdated || known && !yes
	}
	return upToDate, outdated
}

// judgeLot asks the updaters about machines that differ in the same.
func (e *Explainer) judgeLot(ctx context.Context, part *Owner, of *side, lot Lot) error {
	x, err := e.Judge.ExplainChange(ctx, inplace.SubjectOf(&lot.Machines[0]), lot.Change)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		part.unknown(err.Error())
		return nil
	}
	part.take(x)
	part.onDelete(of)
	return nil
}

// add adds fields and actions that are not there yet.
func (o *Owner) add(fields []handlers.FieldExplanation, actions []string) {
	known := map[string]bool{}
	for _, f := range o.Fields {
		known[string(f.Object)+f.Path] = true
	}
	for _, f := range fields {
		if !known[string(f.Object)+f.Path] {
			o.Fields = append(o.Fields, f)
		}
	}
	for _, a := range actions {
		if !slices.Contains(o.Actions, a) {
			o.Actions = append(o.Actions, a)
		}
	}
}

// ofSurge says what Cluster API does beside the updates in place: it is not known of which machine.
func (o *Owner) ofSurge(of *side) {
	if o.Machines.Replaced > 0 {
		o.AtOnce = min(o.Machines.Replaced+o.Machines.InPlace, of.limits.Replaced())
	}
	if o.Machines.InPlace == 0 {
		return
	}
	o.AtOnce = min(o.Machines.InPlace+o.Machines.Replaced, of.limits.InPlace())
	if of.surges {
		o.Adds = append(o.Adds, of.surge("makes one machine more, and deletes the last old one: one of those that are told in place is replaced"))
		o.Machines.InPlace--
		o.Machines.Replaced++
	}
}

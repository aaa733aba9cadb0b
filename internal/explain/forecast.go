package explain

import (
	"fmt"
	"slices"
	"time"

	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/schedule"
)

// Verdict is what becomes of the machines of an owner.
type Verdict string

// The verdicts, the mildest first.
const (
	// None: Cluster API changes no machine.
	None Verdict = "None"
	// New: machines are made, and none is changed.
	New Verdict = "New"
	// InPlace: machines are updated in place. One of them may be replaced beside that, which the counts say.
	InPlace Verdict = "InPlace"
	// OnDelete: machines stay as they are until somebody deletes them.
	OnDelete Verdict = "OnDelete"
	// Forbidden: machines would be replaced, and stay since a policy forbids that.
	Forbidden Verdict = "Forbidden"
	// Unknown: it can't be told. It is never taken for one of the milder ones.
	Unknown Verdict = "Unknown"
	// Replace: machines are replaced.
	Replace Verdict = "Replace"
	// Deleted: machines are deleted, and none comes instead.
	Deleted Verdict = "Deleted"
)

var severity = []Verdict{None, New, InPlace, OnDelete, Forbidden, Unknown, Replace, Deleted}

func worse(a, b Verdict) Verdict {
	return severity[max(slices.Index(severity, a), slices.Index(severity, b))]
}

// Forecast says what becomes of machines.
type Forecast struct {
	// Verdict is the worst of the owners'.
	Verdict Verdict `json:"verdict"`
	// Disruption is the worst that a machine sees; empty where that can't be told.
	Disruption disruption.ActionType `json:"disruption,omitempty"`
	Owners     []*Owner              `json:"owners"`
	Notes      []string              `json:"notes"`
}

// Owner is a MachineDeployment, a KubeadmControlPlane, a part of a Cluster's topology, or a template that no owner names.
type Owner struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Part is which one of a Cluster's topology.
	Part    string  `json:"part,omitempty"`
	Cluster string  `json:"cluster,omitempty"`
	Verdict Verdict `json:"verdict"`
	// Because are the fields of the owner for which Cluster API rolls its machines out.
	Because []string `json:"because"`
	// Disruption is the worst that a change in place takes, or Replace; empty where that can't be told.
	Disruption disruption.ActionType `json:"disruption,omitempty"`
	// Actions are what it takes on the node, in the order in which it is done.
	Actions []string `json:"actions"`
	// Fields are those of the machines that differ, with the updater that makes each in place, or why none does.
	Fields   []handlers.FieldExplanation `json:"fields"`
	Machines Counts                      `json:"machines"`
	// AtOnce is how many are taken at once.
	AtOnce int   `json:"atOnce,omitempty"`
	When   *When `json:"when,omitempty"`
	// Adds is what Cluster API does beside that.
	Adds  []string `json:"clusterAPI"`
	Notes []string `json:"notes"`
	// Each are the machines, where they are known.
	Each []*Machine `json:"each,omitempty"`

	// class is what the change is, and unasked that Cluster API replaces machines without asking anybody.
	class   schedule.Class
	unasked bool
	// surges: it comes to make a machine more where a rollout did not before.
	surges bool
	// untold reports that there are updates of which the nodes have not said what they take.
	untold bool
	// causes are for what Cluster API replaces machines without asking.
	causes []Cause
}

// Cause is for what Cluster API replaces machines without asking anybody, now or later.
type Cause string

// The causes.
const (
	// CauseSurge: a rollout makes a machine more, and deletes the last old one.
	CauseSurge Cause = "surge"
	// CauseSingle: there is one machine, and a rollout makes another one beside it.
	CauseSingle Cause = "single"
	// CauseRolloutAfter: all machines that were made before an instant are replaced.
	CauseRolloutAfter Cause = "rollout_after"
	// CauseRolloutBefore: machines are replaced some time before their certificates end.
	CauseRolloutBefore Cause = "rollout_before"
	// CauseOnDelete: machines stay until somebody deletes them, and the next ones have the change.
	CauseOnDelete Cause = "on_delete"
	// CauseBootstrap: machines come to have a bootstrap config, or have none any more.
	CauseBootstrap Cause = "bootstrap"
)

// Causes returns for what Cluster API replaces machines of the owner without asking anybody, now or later.
func (o *Owner) Causes() []Cause { return o.causes }

// Unasked reports whether Cluster API replaces all machines of the owner now without asking anybody.
func (o *Owner) Unasked() bool { return o.unasked }

// Surges reports whether it comes to make a machine more where a rollout did not before: also in one that is under way, whose changes are none of these.
func (o *Owner) Surges() bool { return o.surges }

// Class is what the change is, as far as that is known.
func (o *Owner) Class() schedule.Class { return o.class }

// Counts are how many machines there are, and what becomes of them. One that is replaced is counted once.
type Counts struct {
	Total    int `json:"total"`
	InPlace  int `json:"inPlace"`
	Replaced int `json:"replaced"`
	Made     int `json:"made"`
	Deleted  int `json:"deleted"`
}

// Machine is what becomes of one machine.
type Machine struct {
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`
	// Disruption is the worst that it sees; empty where that can't be told.
	Disruption disruption.ActionType `json:"disruption,omitempty"`
	// Why is the first field for which it is not updated in place, or what else decides.
	Why  string `json:"why,omitempty"`
	When *When  `json:"when,omitempty"`
}

// When says when changes start, as far as that is known.
type When struct {
	// NotBefore is from when on the policies let the first one start; nil if that is not before something else happens.
	NotBefore *time.Time `json:"notBefore,omitempty"`
	// Reason is Open, or why it is not now.
	Reason string `json:"reason"`
	// Policies are those that were asked, and ForbiddenBy those that forbid a replacement.
	Policies    []string `json:"policies"`
	ForbiddenBy []string `json:"forbiddenBy,omitempty"`
	// Expected is how long one takes, by the policies or by what was measured; 0: nobody knows.
	Expected Duration `json:"expected,omitempty"`
	// AtLeast is how long all of them take one after another, as many at once as Cluster API takes: windows, budgets and drains make it longer.
	AtLeast Duration `json:"atLeast,omitempty"`
	// LastDone is when all would be done, as refit's server estimates it.
	LastDone *time.Time `json:"lastDone,omitempty"`
}

// Duration is written as people write one.
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler: a Forecast can be read again.
func (d *Duration) UnmarshalText(text []byte) error {
	t, err := time.ParseDuration(string(text))
	*d = Duration(t)
	return err
}

// String writes minutes and hours without what is 0 at their end.
func (d Duration) String() string {
	t := time.Duration(d).Round(time.Second)
	h, m, s := t/time.Hour, t/time.Minute%60, t/time.Second%60
	switch {
	case s != 0:
		return t.String()
	case h != 0 && m != 0:
		return fmt.Sprintf("%dh%dm", h, m)
	case h != 0:
		return fmt.Sprintf("%dh", h)
	default:
		return fmt.Sprintf("%dm", m)
	}
}

// NewForecast returns one of no owners.
func NewForecast() *Forecast { return &Forecast{Owners: []*Owner{}, Notes: []string{}} }

// Finish sums up what is said of the owners.
func (f *Forecast) Finish() {
	f.Verdict, f.Disruption = None, disruption.None
	known := true
	for _, o := range f.Owners {
		f.Verdict = worse(f.Verdict, o.Verdict)
		switch {
		case o.touches(disruption.Replace):
			f.Disruption = disruption.Replace
		case o.Verdict == Unknown:
			known = false
		case o.Verdict == InPlace:
			f.Disruption = disruption.Worst(f.Disruption, o.Disruption)
		}
	}
	if !known && f.Disruption != disruption.Replace {
		f.Disruption = ""
	}
}

// touches reports whether machines of an owner see at least what a type of actions does. That their owner goes is no milder than a replacement. Fewer
// replicas are what somebody has asked for, and no such thing.
func (o *Owner) touches(least disruption.ActionType) bool {
	if o.Machines.Replaced > 0 || o.Verdict == Replace || o.Verdict == Deleted {
		return true
	}
	return o.Verdict == InPlace && disruption.Worst(o.Disruption, least) == o.Disruption
}

// Reaches returns the owners of which machines see at least what a type of actions does, or may: what can't be told counts.
func (f *Forecast) Reaches(least disruption.ActionType) []*Owner {
	var out []*Owner
	for _, o := range f.Owners {
		if o.Verdict == Unknown || o.untold || o.touches(least) {
			out = append(out, o)
		}
	}
	return out
}

// Title names an owner as kubectl does.
func (o *Owner) Title() string {
	title := o.Kind + "/" + o.Name
	if o.Part != "" {
		title += " " + o.Part
	}
	return title
}

// Claim has it said that an UpdaterRegistration claims a field which refit's own updaters leave.
func (o *Owner) Claim(object, field, registration string) {
	for i := range o.Fields {
		f := &o.Fields[i]
		if !f.Covered && string(f.Object) == object && f.Path == field && !slices.Contains(f.Claimants, registration) {
			f.Claimants = append(slices.Clip(f.Claimants), registration)
		}
	}
}

// Estimate has the owner's changes be done at an instant, as refit's server expects it.
func (o *Owner) Estimate(lastDone time.Time) {
	if o.When == nil {
		return
	}
	o.When.LastDone = &lastDone
}

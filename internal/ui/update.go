package ui

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// detail is all of one Machine's update.
type detail struct {
	Machine row `json:"machine"`
	// Found reports that there is an update.
	Found    bool   `json:"found"`
	Digest   string `json:"digest,omitempty"`
	Attempts int32  `json:"attempts,omitempty"`
	Instance string `json:"instance,omitempty"`
	Address  string `json:"address,omitempty"`
	// Steps are what has happened, in order.
	Steps []step `json:"steps"`
	// Planned is what the node said that it takes.
	Planned []string         `json:"planned,omitempty"`
	Changes []refitv1.Change `json:"changes"`
	Actions []string         `json:"actions"`
	Notes   []string         `json:"notes"`
	Blocked []string         `json:"blocked,omitempty"`

	Conditions []condition `json:"conditions"`
	Policies   []string    `json:"policies"`
	Events     []told      `json:"events"`
	// EventsProblem says why there are none.
	EventsProblem string `json:"eventsProblem,omitempty"`
}

// step is something that has happened to an update. Seen: the page's own server saw it, while it ran.
type step struct {
	At   time.Time `json:"at"`
	What string    `json:"what"`
	Text string    `json:"text,omitempty"`
	Seen bool      `json:"seen,omitempty"`
}

type condition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"`
	Reason  string    `json:"reason"`
	Message string    `json:"message,omitempty"`
	At      time.Time `json:"at"`
}

// told is an Event.
type told struct {
	At      time.Time `json:"at"`
	Warning bool      `json:"warning,omitempty"`
	Reason  string    `json:"reason"`
	Note    string    `json:"note"`
	Times   int32     `json:"times,omitempty"`
}

// maxChanges bounds what of an update's changes, and maxEvents what of its Events is shown.
const maxChanges, maxEvents = 300, 50

// detailOf returns all of a Machine's update. It is not ok if there is no such Machine.
func (f *Fleet) detailOf(ctx context.Context, key types.NamespacedName) (*detail, bool, error) {
	s, err := f.look(ctx)
	if err != nil {
		return nil, false, err
	}
	r, ok := s.rows[key]
	if !ok {
		return nil, false, nil
	}
	d := &detail{
		Machine: *r, Steps: []step{}, Changes: []refitv1.Change{}, Actions: []string{}, Notes: []string{}, Conditions: []condition{}, Policies: []string{},
	}
	if mu, ok := one[*refitv1.MachineUpdate](f, key.Namespace, key.Name); ok {
		d.fill(mu, f.history.of(mu))
	}
	d.Events, err = f.events(ctx, key)
	if err != nil {
		d.EventsProblem = "Events can't be read: " + bounded(err.Error())
		if apierrors.IsForbidden(err) {
			d.EventsProblem = "You may not list Events here. " + bounded(err.Error())
		}
	}
	return d, true, nil
}

// fill fills in what the update says.
func (d *detail) fill(mu *refitv1.MachineUpdate, seen []sight) {
	st := &mu.Status
	d.Found, d.Digest, d.Attempts, d.Instance, d.Address = true, bounded(mu.Spec.Digest), st.Attempts, bounded(st.Instance), bounded(st.Address)
	d.Steps = stepsOf(mu, seen)
	for _, c := range st.Changes[:min(len(st.Changes), maxChanges)] {
		c.Kind, c.Name, c.Operation = bounded(c.Kind), bounded(c.Name), bounded(c.Operation)
		d.Changes = append(d.Changes, c)
	}
	d.Actions, d.Notes = boundedAll(st.Actions), boundedAll(st.Notes)
	if st.Plan != nil {
		d.Planned = boundedAll(st.Plan.Actions)
	}
	if st.Drain != nil && st.Drain.FinishedAt == nil {
		d.Blocked = boundedAll(st.Drain.Blocked)
	}
	for _, c := range st.Conditions {
		d.Conditions = append(d.Conditions, condition{bounded(c.Type), string(c.Status), bounded(c.Reason), bounded(c.Message), c.LastTransitionTime.UTC()})
	}
	slices.SortFunc(d.Conditions, func(a, b condition) int { return cmp.Compare(a.Type, b.Type) })
	if st.Admission != nil {
		d.Policies = boundedAll(st.Admission.Policies)
	}
}

// stepsOf returns what has happened to an update: what its status says, and what was seen since.
func stepsOf(mu *refitv1.MachineUpdate, seen []sight) []step {
	st := &mu.Status
	out := []step{}
	add := func(at *time.Time, what, text string) {
		if at != nil {
			out = append(out, step{At: *at, What: what, Text: bounded(text)})
		}
	}
	add(instant(st.WantedSince), "Wanted", "the Machine was to have other specs")
	if a := st.Admission; a != nil {
		add(instant(&a.AdmittedAt), "Let start", strings.Trim(a.Reason+": "+a.Message, ": "))
	}
	add(instant(st.StartedAt), "Begun", attempt(st))
	if d := st.Drain; d != nil {
		add(instant(&d.StartedAt), "Drain begun", pods(d))
		add(instant(d.DetachingSince), "Pods have left", fmt.Sprintf("volumes still attached: %d", d.VolumesLeft))
		add(instant(d.FinishedAt), "Drained", "")
	}
	add(instant(st.ApplyingSince), "Node being changed", "")
	add(instant(st.RebootingSince), "Reboot", "the node is on its way through a reboot")
	add(instant(st.SoakingSince), "Soak", "all is done, and the node is watched before that counts as a success")
	if st.ObservedDigest == mu.Spec.Digest {
		add(instant(st.FinishedAt), string(st.Phase), st.Message)
	} else {
		add(instant(st.FinishedAt), "Ended, for earlier specs", st.Message)
	}
	for _, s := range seen {
		out = append(out, step{
			At: s.at.UTC(), What: bounded(strings.Trim(s.phase+" "+brackets(s.reason), " ")), Text: bounded(strings.Trim(s.step+": "+s.message, ": ")), Seen: true,
		})
	}
	slices.SortStableFunc(out, func(a, b step) int { return a.At.Compare(b.At) })
	return out
}

func attempt(st *refitv1.MachineUpdateStatus) string {
	if st.Attempts > 1 {
		return fmt.Sprintf("tried %d times since", st.Attempts)
	}
	return ""
}

func pods(d *refitv1.DrainStatus) string {
	if d.FinishedAt != nil {
		return ""
	}
	return fmt.Sprintf("pods still to leave: %d", d.PodsLeft)
}

func brackets(s string) string {
	if s == "" {
		return ""
	}
	return "(" + s + ")"
}

// involved is the field by which the API server finds the Events of an object.
const involved = "involvedObject.name"

// events returns the Events of a Machine and of its update, the latest first.
func (f *Fleet) events(ctx context.Context, key types.NamespacedName) ([]told, error) {
	out := []told{}
	var list corev1.EventList
	if err := f.Client.List(ctx, &list, client.InNamespace(key.Namespace), client.MatchingFields{involved: key.Name}, client.Limit(500)); err != nil {
		return out, err
	}
	for i := range list.Items {
		e := &list.Items[i]
		if e.InvolvedObject.Kind != "Machine" && e.InvolvedObject.Kind != "MachineUpdate" {
			continue
		}
		one := told{At: eventTime(e), Warning: e.Type == corev1.EventTypeWarning, Reason: bounded(e.Reason), Note: bounded(e.Message), Times: e.Count}
		if e.Series != nil {
			one.Times = e.Series.Count
		}
		out = append(out, one)
	}
	slices.SortStableFunc(out, func(a, b told) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Reason, b.Reason)) })
	return out[:min(len(out), maxEvents)], nil
}

// eventTime is when an Event was seen last.
func eventTime(e *corev1.Event) time.Time {
	at := e.CreationTimestamp.Time
	for _, t := range []time.Time{e.EventTime.Time, e.LastTimestamp.Time} {
		if t.After(at) {
			at = t
		}
	}
	if e.Series != nil && e.Series.LastObservedTime.After(at) {
		at = e.Series.LastObservedTime.Time
	}
	return at.UTC()
}

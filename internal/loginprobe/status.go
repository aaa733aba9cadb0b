package loginprobe

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/index"
	"github.com/capi-refit/refit/internal/nodeaccess"
	"github.com/capi-refit/refit/internal/policykind"
	"github.com/capi-refit/refit/internal/revision"
	"github.com/capi-refit/refit/internal/shard"
)

// +kubebuilder:rbac:groups=capi-refit.dev,resources=nodeaccesses/status,verbs=update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

const (
	// statusRefresh is how old a status may be, and how often it is written at most.
	statusRefresh = 30 * time.Second
	// probedRefresh is how old the time of the last login in a status may be where nothing else has changed.
	probedRefresh = time.Hour
	// maxMessage is how long the message of one Machine may be, in bytes, and named how many Machines the condition names.
	maxMessage, named = 512, 3
)

// Status shows in the status of each NodeAccess which of its Machines' nodes can't be reached. It runs in the leader only, or in who holds the shard,
// which a NodeAccess has with all of its Machines, and writes what has changed.
type Status struct {
	Client client.Client
	// Informers are those of the cache that the client reads. Nil: it is listed.
	Informers index.Informers
	Prober    *Prober
	Recorder  events.EventRecorder

	changes index.Changes
	still   revision.Standing[still]
}

// stillFor is for how long a status is not made again while nothing that it is made from has changed: what is old is forgotten, and that does not show.
const stillFor = 5 * time.Minute

// still is what the status of a NodeAccess is made from.
type still struct {
	access        revision.Revision // as it was before that was written
	changes, news int64
}

// Watch has statuses be made less often where nothing changes. It is for the time before the manager starts.
func (s *Status) Watch(ctx context.Context, informers index.Informers) error {
	return s.changes.Watch(ctx, informers, &refitv1.NodeAccess{}, &clusterv1.Machine{}, &refitv1.MachineUpdate{})
}

func (s *Status) cached() index.Memory { return index.Memory{Client: s.Client, Informers: s.Informers} }

// SetupWithManager has the manager run the Status.
func (s *Status) SetupWithManager(mgr ctrl.Manager) error {
	return shard.Complete(mgr, ctrl.NewControllerManagedBy(mgr).Named("nodeaccess-status").
		For(&refitv1.NodeAccess{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})), s, &refitv1.NodeAccessList{})
}

// Reconcile writes the status of a NodeAccess, and comes back to look again.
func (s *Status) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var na refitv1.NodeAccess
	if err := s.Client.Get(ctx, req.NamespacedName, &na); err != nil {
		s.Prober.known.dropAccess(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	changes, known := s.changes.In(na.Namespace)
	now, from := s.Prober.Clock.Now(), still{revision.Of(&na), changes, s.Prober.known.newsOf(na.Namespace)}
	if known && s.still.Stands(now, req.NamespacedName, from) {
		return ctrl.Result{RequeueAfter: statusRefresh}, nil
	}
	before := na.DeepCopy()
	if err := s.fill(ctx, &na); err != nil {
		return ctrl.Result{}, err
	}
	if !news(&before.Status, &na.Status) {
		s.still.Note(now, req.NamespacedName, from, now.Add(stillFor))
		return ctrl.Result{RequeueAfter: statusRefresh}, nil
	}
	if err := s.Client.Status().Update(ctx, &na); err != nil {
		return ctrl.Result{}, fmt.Errorf("write the status of NodeAccess %s: %w", req, err)
	}
	s.tell(before, &na)
	return ctrl.Result{RequeueAfter: statusRefresh}, nil
}

// news reports whether a status is to be written: the time of the last login alone is not, unless what was written is old.
func news(was, is *refitv1.NodeAccessStatus) bool {
	if was.ProbedAt != nil && is.ProbedAt != nil && is.ProbedAt.Sub(was.ProbedAt.Time) < probedRefresh {
		same := *is
		same.ProbedAt = was.ProbedAt
		return !equality.Semantic.DeepEqual(was, &same)
	}
	return !equality.Semantic.DeepEqual(was, is)
}

// fill writes into a status what is known.
func (s *Status) fill(ctx context.Context, na *refitv1.NodeAccess) error {
	var accesses refitv1.NodeAccessList
	if err := s.Client.List(ctx, &accesses, client.InNamespace(na.Namespace)); err != nil {
		return fmt.Errorf("list NodeAccesses: %w", err)
	}
	var all []*clusterv1.Machine
	err := index.Each(ctx, s.cached(), index.InNamespace(na.Namespace), &clusterv1.MachineList{}, func(m *clusterv1.Machine) error {
		all = append(all, m)
		return nil
	})
	if err != nil {
		return fmt.Errorf("list Machines: %w", err)
	}
	machines, err := selected(na, all)
	if err != nil {
		na.Status = refitv1.NodeAccessStatus{Conditions: na.Status.Conditions, ObservedGeneration: na.Generation}
		ready(na, metav1.ConditionFalse, refitv1.NodeAccessInvalid, err.Error())
		return nil
	}
	records, err := s.records(ctx, na, accesses.Items, machines)
	if err != nil {
		return err
	}
	reached, failed := s.Prober.known.untried(client.ObjectKeyFromObject(na), records, s.Prober.Clock.Now(), s.Prober.lasts())
	write(na, machines, records, reached, failed)
	return nil
}

// selected are the Machines with a node that a NodeAccess selects, by name.
func selected(na *refitv1.NodeAccess, all []*clusterv1.Machine) ([]*clusterv1.Machine, error) {
	var out []*clusterv1.Machine
	for _, m := range all {
		ok, err := nodeaccess.Selects(na, m)
		if err != nil {
			return nil, err
		}
		if ok && counts(m) {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b *clusterv1.Machine) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// records are what is known of Machines.
func (s *Status) records(ctx context.Context, na *refitv1.NodeAccess, accesses []refitv1.NodeAccess, machines []*clusterv1.Machine) ([]record, error) {
	find, err := index.Lookup[refitv1.MachineUpdate](ctx, s.cached())
	if err != nil {
		return nil, fmt.Errorf("read MachineUpdates: %w", err)
	}
	look := func() ([]record, error) {
		now := s.Prober.Clock.Now()
		out := make([]record, len(machines))
		for i, m := range machines {
			if _, err := nodeaccess.Select(accesses, m); err != nil {
				out[i] = record{Finding: Finding{refitv1.ReasonNodeAccess, err.Error()}, at: now, since: now}
				continue
			}
			mu, err := updateOf(find, m)
			if err != nil {
				return nil, err
			}
			out[i] = s.Prober.known.look(m, na, mu, now, s.Prober.lasts())
		}
		return out, nil
	}
	records, err := look()
	if err != nil || !s.Prober.known.take(na, machines, s.Prober.Clock.Now(), s.Prober.lasts()) { // each Machine has a record by now
		return records, err
	}
	return look()
}

// write writes into a status what is known of Machines. Of those that were not tried reached and failed could be reached, and could not, as an earlier status
// has told.
func write(na *refitv1.NodeAccess, machines []*clusterv1.Machine, records []record, reached, failed int32) {
	was := na.Status
	untried := int32(len(machines))
	var last time.Time
	list := []refitv1.UnreachedMachine{}
	for i, r := range records {
		switch {
		case r.Reason != "":
			failed++
			untried--
			list = append(list, entryOf(&was, machines[i], &r))
		case !r.at.IsZero():
			reached++
			untried--
		}
		last = slices.MaxFunc([]time.Time{last, r.at}, time.Time.Compare)
	}
	st := &na.Status
	st.ObservedGeneration = na.Generation
	st.Machines, st.Reachable, st.Unreachable = ptr.To(int32(len(machines))), &reached, &failed
	st.Unreached = list[:min(len(list), refitv1.MaxUnreachedMachines)]
	st.ProbedAt = latest(was.ProbedAt, last)
	switch {
	case len(machines) == 0:
		ready(na, metav1.ConditionUnknown, refitv1.NodeAccessNoMachines, "it selects no Machine that has a node")
	case failed > 0:
		ready(na, metav1.ConditionFalse, refitv1.NodeAccessUnreached, summary(list, len(machines), int(failed), int(untried)))
	case untried > 0:
		ready(na, metav1.ConditionUnknown, refitv1.NodeAccessNotTried, fmt.Sprintf("of %d nodes %d were not tried yet, or too long ago; the others can be reached", len(machines), untried))
	default:
		ready(na, metav1.ConditionTrue, refitv1.NodeAccessReached, "the nodes of all Machines can be reached")
	}
}

// latest returns the later of two times, in whole seconds. Nil, and a zero one, is none.
func latest(was *metav1.Time, at time.Time) *metav1.Time {
	if at.IsZero() || was != nil && !at.After(was.Time) {
		return was
	}
	return ptr.To(metav1.NewTime(at.Truncate(time.Second)))
}

// entryOf is what a status says of a Machine whose node can't be reached. What it said before stays while nothing has changed but what does at each login.
func entryOf(was *refitv1.NodeAccessStatus, m *clusterv1.Machine, r *record) refitv1.UnreachedMachine {
	e := refitv1.UnreachedMachine{Name: m.Name, Reason: r.Reason, Message: shorten(r.Message), Since: metav1.NewTime(r.since.Truncate(time.Second))}
	for _, old := range was.Unreached {
		if old.Name != e.Name || old.Reason != e.Reason {
			continue
		}
		if lasting(old.Message) == lasting(e.Message) {
			e.Message = old.Message
		}
		if e.Since.After(old.Since.Time) && r.uid == "" {
			e.Since = old.Since // nobody remembers since when several NodeAccesses select it
		}
	}
	return e
}

// passing is what differs in a message each time: the port that a connection comes from, how long something took, and when it was.
var passing = regexp.MustCompile(`:\d+->|\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?|\b(\d+h)?(\d+m)?\d+(\.\d+)?(ns|µs|ms|s|m|h)\b`)

// lasting is a message without what differs each time. Of several addresses others may have answered first.
func lasting(message string) string {
	parts := strings.Split(passing.ReplaceAllString(message, "…"), "; ")
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}

func shorten(message string) string {
	const more = "…"
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage-len(more)], "") + more
}

// summary says of how many Machines the nodes can't be reached, and names some.
func summary(list []refitv1.UnreachedMachine, all, failed, untried int) string {
	text := fmt.Sprintf("of %d nodes %d can't be reached", all, failed)
	if untried > 0 {
		text += fmt.Sprintf(", and %d were not tried since refit began, or since the NodeAccess was changed, or too long ago", untried)
	}
	between := ": "
	for _, e := range list[:min(len(list), named)] {
		text += fmt.Sprintf("%s%s (%s): %s", between, e.Name, e.Reason, e.Message)
		between = "; "
	}
	if more := failed - min(len(list), named); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

func ready(na *refitv1.NodeAccess, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&na.Status.Conditions, metav1.Condition{
		Type: refitv1.ReadyCondition, Status: status, Reason: reason, Message: message, ObservedGeneration: na.Generation,
	})
}

// tell has an Event when nodes can't be reached any more, and when all can be again. Which, and why, is in the status.
func (s *Status) tell(before, na *refitv1.NodeAccess) {
	was, is := meta.FindStatusCondition(before.Status.Conditions, refitv1.ReadyCondition), meta.FindStatusCondition(na.Status.Conditions, refitv1.ReadyCondition)
	switch {
	case was != nil && was.Status == is.Status:
	case is.Status == metav1.ConditionFalse:
		s.Recorder.Eventf(na, nil, corev1.EventTypeWarning, is.Reason, "Probe", "%s", policykind.Note(is.Message))
	case was != nil && was.Status == metav1.ConditionFalse:
		s.Recorder.Eventf(na, nil, corev1.EventTypeNormal, is.Reason, "Probe", "%s", policykind.Note(is.Message))
	}
}

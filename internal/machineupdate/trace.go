package machineupdate

import (
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/tracing"
)

// A span is made when what it is about has ended, and exported when a status is written by which no process tells it again. So each is exported
// once at most, and what a process has not written when it dies is told by the next one. See docs/observability.md.

// sameTry reports whether two statuses are about the same try of the same update.
func sameTry(a, b *refitv1.MachineUpdateStatus) bool {
	return a.ObservedDigest == b.ObservedDigest && a.ObservedRetry == b.ObservedRetry && repairOf(a) == repairOf(b)
}

// sameStanding reports whether an update stands in both as in the other.
func sameStanding(a, b *refitv1.MachineUpdateStatus) bool {
	return a.Phase == b.Phase && a.Reason == b.Reason && (sameTry(a, b) || ended(b.Phase))
}

// repairOf tells one repair from another, and from what is none.
func repairOf(s *refitv1.MachineUpdateStatus) string {
	if s.Repair == nil {
		return ""
	}
	return strconv.FormatInt(s.Repair.StartedAt.Unix(), 10)
}

// notePhase writes since when the update stands as it does, if it did not before, and notes how it stood until now.
func (u *update) notePhase(was *refitv1.MachineUpdateStatus) {
	s := &u.mu.Status
	if s.PhaseSince == nil {
		s.PhaseSince = was.PhaseSince // what begins has a status of its own
	}
	if sameStanding(was, s) {
		return
	}
	now := u.Clock.Now().Truncate(time.Microsecond) // as the API server keeps it
	at := metav1.NewMicroTime(now)
	s.PhaseSince = &at
	if !u.Tracer.On() || was.Phase == "" || ended(was.Phase) {
		return
	}
	u.spans = append(u.spans, u.phaseSpan(was, now)...)
	if ended(s.Phase) || !sameTry(was, s) {
		u.spans = append(u.spans, u.updateSpan(was, now))
	}
}

// keepStanding has the update stand as it was written last, if it does: what was told in between was not long enough to be written.
func (u *update) keepStanding(written *refitv1.MachineUpdateStatus) {
	if sameStanding(written, &u.mu.Status) {
		u.mu.Status.PhaseSince, u.spans = written.PhaseSince, nil
	}
}

// phaseNames are what the spans of phases are called.
var phaseNames = map[refitv1.Phase]string{
	refitv1.PhasePending: "pending", refitv1.PhaseWaiting: "wait", refitv1.PhaseStaging: "stage", refitv1.PhaseDraining: "drain",
	refitv1.PhaseApplying: "apply", refitv1.PhaseVerifying: "verify",
}

// phaseSpan is how the update stood until now.
func (u *update) phaseSpan(was *refitv1.MachineUpdateStatus, now time.Time) []tracing.Span {
	if was.PhaseSince == nil || !now.After(was.PhaseSince.Time) {
		return nil // an earlier version has not written since when; or it took no time
	}
	about := u.about(was)
	if was.Reason != "" {
		about = append(about, attribute.String("refit.reason", was.Reason))
	}
	name, since := phaseNames[was.Phase], was.PhaseSince.Time
	return []tracing.Span{u.span(was, name, since, now, about, string(was.Phase), was.Reason, micro(since), micro(now))}
}

// updateSpan is the update as a whole, which has ended now or gives way to another try.
func (u *update) updateSpan(was *refitv1.MachineUpdateStatus, now time.Time) tracing.Span {
	s := &u.mu.Status
	outcome, failed := "Superseded", ""
	switch {
	case !sameTry(was, s) && !ended(s.Phase):
	case s.Phase == refitv1.PhaseFailed:
		outcome, failed = string(s.Phase), s.Reason
	case s.FinishedAt.Equal(s.LastSucceededAt):
		outcome = string(s.Phase)
	default: // the node has what it had before
		outcome = refitv1.ReasonWithdrawn
	}
	about := append(u.about(was), attribute.String("refit.outcome", outcome), attribute.Int("refit.attempts", int(was.Attempts)))
	if p := was.Plan; p != nil && p.Disruption != "" {
		about = append(about, attribute.String("refit.class", classOf(p.Disruption)))
	}
	if failed != "" {
		about = append(about, attribute.String("refit.reason", failed))
	}
	id := tryID(u.mu, was)
	start := now
	if was.StartedAt != nil {
		start = was.StartedAt.Time
	}
	return tracing.Span{ID: id, Name: "update", Start: start, End: now, Failed: failed, Attributes: about}
}

// noteDeleted tells the end of an update whose MachineUpdate goes before it has ended.
func (u *update) noteDeleted() {
	was := &u.mu.Status
	if !u.Tracer.On() || u.mu.DeletionTimestamp.IsZero() || was.Phase == "" || ended(was.Phase) {
		return
	}
	now := u.Clock.Now()
	end := u.updateSpan(was, now)
	end.Attributes = append(u.about(was), attribute.String("refit.outcome", "Deleted"))
	u.Tracer.Record(append(append(u.spans, u.phaseSpan(was, now)...), end)...)
	u.spans = nil
}

// noteRun notes what the node says of a run that has ended, and of its steps.
func (u *update) noteRun(run node.Status) {
	if !u.Tracer.On() || run.StartedAt.IsZero() || run.FinishedAt.IsZero() {
		return
	}
	s := &u.mu.Status
	run = believed(run, s, u.Clock.Now())
	result, failed := string(node.Succeeded), ""
	if run.State != node.Succeeded {
		result, failed = string(node.Failed), string(node.Failed)
	}
	of := u.span(s, "run", run.StartedAt, run.FinishedAt, append(u.about(s), attribute.String("refit.result", result)), "run", strconv.FormatInt(run.Token, 10))
	of.Failed = failed
	u.spans = append(u.spans, of)
	for _, t := range run.Steps {
		about, result := append(u.about(s), attribute.String("refit.step", t.Step)), resultOf(t)
		if t.Class != "" {
			about = append(about, attribute.String("refit.class", t.Class))
		}
		end := t.FinishedAt
		if end.IsZero() {
			end = latest(t.StartedAt, run.FinishedAt)
		}
		step := u.span(s, "step", t.StartedAt, end, append(about, attribute.String("refit.result", result)), "step", strconv.FormatInt(run.Token, 10), t.Step)
		step.Parent = of.ID.Span
		if result == string(node.Failed) {
			step.Failed = result
		}
		u.spans = append(u.spans, step)
	}
}

// runAtEnd is the run on the node that an update has failed with, or had before it failed; none if there was none.
func (u *update) runAtEnd() node.Status {
	if u.failedRun != nil {
		return *u.failedRun
	}
	return u.ran
}

// micro tells times apart as the API server does.
func micro(t time.Time) string { return strconv.FormatInt(t.UnixMicro(), 10) }

// noteLease notes for how long the Machine had the node's lease, which is released.
func (u *update) noteLease(held *lease.Held) {
	if !u.Tracer.On() {
		return
	}
	since := held.Since()
	u.spans = append(u.spans, u.span(&u.mu.Status, "lease", since, u.Clock.Now(), u.about(&u.mu.Status), "lease", micro(since)))
}

// span is a part of the update that a status is about, told from the others by which.
func (u *update) span(s *refitv1.MachineUpdateStatus, name string, start, end time.Time, about []attribute.KeyValue, which ...string) tracing.Span {
	id := tryID(u.mu, s)
	return tracing.Span{ID: id.Of(which...), Parent: id.Span, Name: name, Start: start, End: end, Attributes: about}
}

// about is what all spans of an update say: no content, and nothing that could be a secret.
func (u *update) about(s *refitv1.MachineUpdateStatus) []attribute.KeyValue {
	about := aboutMachine(u.mu)
	if a := s.Admission; a != nil && len(a.Policies) > 0 && s.Phase != refitv1.PhaseWaiting {
		about = append(about, attribute.StringSlice("refit.policies", a.Policies))
	}
	if s.Phase == refitv1.PhaseWaiting {
		if names := u.policies(); len(names) > 0 {
			about = append(about, attribute.StringSlice("refit.policies", names))
		}
	}
	return about
}

// policies are the names of those that were asked in this reconciliation.
func (u *update) policies() []string {
	decision := &u.opened
	if w := u.closed; w != nil && w.decision != nil {
		decision = w.decision
	}
	var names []string
	for _, p := range decision.Policies {
		names = append(names, p.Name)
	}
	return names
}

func aboutMachine(mu *refitv1.MachineUpdate) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("k8s.namespace.name", mu.Namespace),
		attribute.String("refit.cluster", mu.Labels[clusterv1.ClusterNameLabel]),
		attribute.String("refit.machine", mu.Name),
	}
}

// tryID is the ID of the span of a whole update. Its trace is that of all tries: to bring the Machine to the specs of a digest, or to repair it once.
func tryID(mu *refitv1.MachineUpdate, s *refitv1.MachineUpdateStatus) tracing.ID {
	return traceOf(mu, s.ObservedDigest, repairOf(s)).Of("update", s.ObservedRetry)
}

func traceOf(mu *refitv1.MachineUpdate, digest, repair string) tracing.ID {
	return tracing.Trace("refit", string(mu.UID), digest, repair)
}

// keptSpans are the spans of a status that may have been written.
type keptSpans struct {
	spans    []tracing.Span
	standing string
}

// standingOfSpans tells a status that was written from others.
func standingOfSpans(s *refitv1.MachineUpdateStatus) string {
	at := ""
	switch {
	case ended(s.Phase) && s.FinishedAt != nil: // which a record restores
		at = strconv.FormatInt(s.FinishedAt.Unix(), 10)
	case s.PhaseSince != nil:
		at = s.Reason + " " + micro(s.PhaseSince.Time)
	}
	return strings.Join([]string{s.ObservedDigest, string(s.Phase), at}, " ")
}

// keepSpans keeps the spans of a status of whose write no answer came.
func (u *update) keepSpans() {
	if len(u.spans) > 0 {
		u.unexported.Store(client.ObjectKeyFromObject(u.mu), keptSpans{u.spans, standingOfSpans(&u.mu.Status)})
	}
	u.spans = nil
}

// noteRestored notes how the update stood until its status is restored, unless that was kept: this process was about to write it then.
func (u *update) noteRestored(was *refitv1.MachineUpdateStatus) {
	if kept, ok := u.unexported.Load(client.ObjectKeyFromObject(u.mu)); ok && kept.(keptSpans).standing == standingOfSpans(&u.mu.Status) {
		return
	}
	u.notePhase(was)
}

// exportKept exports spans that were kept, if the status shows that it was written.
func (u *update) exportKept() {
	if !u.Tracer.On() {
		return
	}
	if kept, ok := u.unexported.LoadAndDelete(client.ObjectKeyFromObject(u.mu)); ok {
		if k := kept.(keptSpans); k.standing == standingOfSpans(&u.mu.Status) {
			u.Tracer.Record(k.spans...)
		}
	}
}

// exportSpans exports what has ended by the status that is written.
func (u *update) exportSpans() {
	u.Tracer.Record(u.spans...)
	u.spans = nil
}

// traceHook tells that Cluster API has asked for an update, and since when that was to be recorded.
func (s *Store) traceHook(mu *refitv1.MachineUpdate, since time.Time) {
	if !s.Tracer.On() || mu == nil {
		return
	}
	of := traceOf(mu, mu.Spec.Digest, "").Of("update", mu.RetryRequest())
	s.Tracer.Record(tracing.Span{
		ID: of.Of("hook"), Parent: of.Span, Name: "hook", Serves: true, Start: since, End: s.Clock.Now(), Attributes: aboutMachine(mu),
	})
}

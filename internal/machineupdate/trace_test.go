package machineupdate

import (
	"cmp"
	"encoding/hex"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/tracing"
	"github.com/capi-refit/refit/internal/tracing/tracingtest"
)

// traced is a world whose processes export traces to a receiver. An update that is asked for is one trace.
type traced struct {
	*walkWorld
	receiver *tracingtest.Receiver
	// shutdowns end the processes, those before the last in good order when the next one starts.
	shutdowns []func()
}

func newTraced(t *testing.T, f plannedFault) *traced {
	t.Helper()
	w := &traced{walkWorld: newWalkWorld(walkContext(), t, memoryDir(t), restartPath, f), receiver: tracingtest.NewReceiver(t)}
	w.tracer = func(instance string) *tracing.Tracer {
		tracer, shutdown := w.receiver.NewTracer(t, instance)
		w.shutdowns = append(w.shutdowns, shutdown)
		return tracer
	}
	w.tick = time.Millisecond
	w.store.Tracer = w.tracer("refit-hooks")
	w.leader.Tracer = w.tracer("refit-1")
	t.Cleanup(w.node.end)
	return w
}

// restart has another process go on.
func (w *traced) restart() {
	w.leader = w.start()
}

// spans returns what was received of all processes, by its name. All of it is one trace, with each span once, below spans that there are.
func (w *traced) spans(t *testing.T) map[string][]*otlp.Span {
	t.Helper()
	for _, shutdown := range w.shutdowns {
		shutdown()
	}
	w.shutdowns = nil
	all := w.receiver.Spans()
	require.NotEmpty(t, all)
	ids, by := map[string]*otlp.Span{}, map[string][]*otlp.Span{}
	for _, s := range all {
		require.Equal(t, hex.EncodeToString(all[0].TraceId), hex.EncodeToString(s.TraceId), "one trace")
		require.NotContains(t, ids, string(s.SpanId), "the span %s twice", s.Name)
		ids[string(s.SpanId)] = s
		by[s.Name] = append(by[s.Name], s)
	}
	for _, s := range all {
		require.LessOrEqual(t, s.StartTimeUnixNano, s.EndTimeUnixNano, s.Name)
		if s.Name == "update" {
			require.Empty(t, s.ParentSpanId)
			continue
		}
		require.Contains(t, ids, string(s.ParentSpanId), s.Name)
		require.NotContains(t, s.String(), secretContent)
	}
	for _, list := range by {
		slices.SortFunc(list, func(a, b *otlp.Span) int { return cmp.Compare(a.StartTimeUnixNano, b.StartTimeUnixNano) })
	}
	return by
}

// requireOnce requires one trace with each span once, in which the update is in one phase at a time.
func (w *traced) requireOnce(t *testing.T) {
	t.Helper()
	seen, all := map[string]bool{}, w.receiver.Spans()
	names := slices.Collect(maps.Values(phaseNames))
	for _, s := range all {
		require.NotContains(t, seen, string(s.SpanId), "%s: %s twice", w.plan, s.Name)
		seen[string(s.SpanId)] = true
		require.Equal(t, all[0].TraceId, s.TraceId)
	}
	phases := slices.DeleteFunc(slices.Clone(all), func(s *otlp.Span) bool { return !slices.Contains(names, s.Name) })
	slices.SortFunc(phases, inTime)
	require.NotEmpty(t, phases, "%s: %d spans", w.plan, len(all))
	for i, p := range phases[1:] {
		require.LessOrEqual(t, phases[i].EndTimeUnixNano, p.StartTimeUnixNano, "%s: %s and %s", w.plan, phases[i].Name, p.Name)
	}
}

func inTime(a, b *otlp.Span) int {
	return cmp.Or(cmp.Compare(a.StartTimeUnixNano, b.StartTimeUnixNano), cmp.Compare(a.EndTimeUnixNano, b.EndTimeUnixNano))
}

func attributesOf(s *otlp.Span) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes {
		all[a.Key] = a.Value.GetStringValue()
	}
	return all
}

func named(spans []*otlp.Span, key string) []string {
	var all []string
	for _, s := range spans {
		all = append(all, attributesOf(s)[key])
	}
	return all
}

// TestATraceSurvivesARestart has each round of an update, which waits, drains and works, be done by another process.
func TestATraceSurvivesARestart(t *testing.T) {
	for name, between := range map[string]func(*traced){
		"one process":           func(*traced) {},
		"another in each round": (*traced).restart,
	} {
		t.Run(name, func(t *testing.T) {
			w := newTraced(t, newFault(nothing, -1))
			w.stealLease()
			for range maxRounds {
				if w.ask() {
					break
				}
				w.round()
				between(w)
			}
			w.requireDone()
			by := w.spans(t)

			require.Len(t, by["update"], 1)
			require.Len(t, by["hook"], 1)
			require.Equal(t, otlp.Span_SPAN_KIND_SERVER, by["hook"][0].Kind)
			root := attributesOf(by["update"][0])
			require.Equal(t, "Succeeded", root["refit.outcome"])
			require.Equal(t, []string{"lab", "c1", "m1"}, []string{root["k8s.namespace.name"], root["refit.cluster"], root["refit.machine"]})
			require.Contains(t, named(by["wait"], "refit.reason"), refitv1.ReasonLease)
			require.NotEmpty(t, by["drain"])
			require.NotEmpty(t, by["apply"])
			require.Len(t, by["lease"], 1)
			require.Len(t, by["run"], 1)
			steps := map[string]string{}
			for _, s := range by["step"] {
				require.Equal(t, by["run"][0].SpanId, s.ParentSpanId)
				a := attributesOf(s)
				require.Equal(t, "Succeeded", a["refit.result"])
				steps[a["refit.step"]] = a["refit.class"]
			}
			require.Equal(t, "Write", steps["write "+restartPath])
			require.Equal(t, "Restart", steps["restart app.service"])
			require.Contains(t, steps, "verify")

			// The phases are all of the time of the update, one after the other.
			var phases []*otlp.Span
			for _, name := range phaseNames {
				phases = append(phases, by[name]...)
			}
			slices.SortFunc(phases, inTime)
			for i, p := range phases[1:] {
				require.Equal(t, phases[i].EndTimeUnixNano, p.StartTimeUnixNano, "%s after %s", p.Name, phases[i].Name)
			}
			require.Equal(t, by["update"][0].EndTimeUnixNano, phases[len(phases)-1].EndTimeUnixNano)
		})
	}
}

// TestNoSpanIsExportedTwice whatever happens to the process that writes what it is about.
func TestNoSpanIsExportedTwice(t *testing.T) {
	calls := *func() *[]call {
		w := newTraced(t, newFault(nothing, -1))
		w.finish()
		return w.plan.calls
	}()
	for _, f := range []fault{killedAfter, answerLost, refused, rivalled} {
		t.Run(string(f), func(t *testing.T) {
			for nth, c := range calls {
				if !f.applies(nth, c) || c.place != management || !c.writes {
					continue
				}
				w := newTraced(t, newFault(f, nth))
				w.finish()
				for _, shutdown := range w.shutdowns {
					shutdown()
				}
				w.requireOnce(t)
			}
		})
	}
}

// TestAnAnswerThatIsLostLosesNoEnd holds the span of the update itself to be exported where its last write is not answered.
func TestAnAnswerThatIsLostLosesNoEnd(t *testing.T) {
	w := newTraced(t, newFault(nothing, -1))
	w.finish()
	last := -1
	for nth, c := range *w.plan.calls {
		if c.String() == "management update status of MachineUpdate" {
			last = nth
		}
	}
	require.Positive(t, last)
	w = newTraced(t, newFault(answerLost, last))
	w.finish()
	w.round()
	require.Len(t, w.spans(t)["update"], 1)
}

func TestATraceOfAFailureAndOfATryAfterIt(t *testing.T) {
	w := newWorld(t)
	receiver := tracingtest.NewReceiver(t)
	tracer, shutdown := receiver.NewTracer(t, "refit-1")
	w.reconciler.Tracer = tracer
	w.ask()
	const said = "what a program on the node has said"
	at := managementtest.Start
	w.node.plans = []node.Plan{writeA}
	w.node.applied = []node.Status{{
		State: node.Failed, Message: "restart x.service failed: " + said, RolledBack: true, Token: 1, StartedAt: at, FinishedAt: at,
		Steps: []node.StepTime{{Step: "restart x.service", Class: "Restart", StartedAt: at, FinishedAt: at, Failed: true}},
	}}
	w.reconcile()
	w.requirePhase(refitv1.PhaseFailed)
	w.annotate(refitv1.RetryAnnotation)
	w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
	w.reconcile()
	w.requirePhase(refitv1.PhaseSucceeded)
	shutdown()
	var outcomes []string
	for _, s := range receiver.Spans() {
		require.Equal(t, receiver.Spans()[0].TraceId, s.TraceId, "both tries are one trace")
		require.NotContains(t, s.String(), said)
		a := attributesOf(s)
		switch s.Name {
		case "update":
			outcomes = append(outcomes, a["refit.outcome"]+" "+s.Status.Message)
		case "step":
			require.Equal(t, "Failed", a["refit.result"])
			require.Equal(t, otlp.Status_STATUS_CODE_ERROR, s.Status.Code)
		}
	}
	require.Equal(t, []string{"Failed NodeFailed", "Succeeded "}, outcomes)
}

// TestALookIsNoSpan has an update that waits look again, which is not told.
func TestALookIsNoSpan(t *testing.T) {
	w := newWorld(t)
	receiver := tracingtest.NewReceiver(t)
	tracer, shutdown := receiver.NewTracer(t, "refit-1")
	w.reconciler.Tracer = tracer
	w.ask()
	w.node.plans = []node.Plan{{Blocked: []node.Problem{{Path: "/etc/app/a", Reason: "it is a directory"}}}}
	for range 5 {
		w.reconcile()
		w.clock.Step(retryDefault)
	}
	since := w.requirePhase(refitv1.PhaseWaiting).PhaseSince
	require.Equal(t, managementtest.Start.UTC(), since.UTC(), "a look does not begin the wait again")
	shutdown()
	leases := 0
	for _, s := range receiver.Spans() {
		require.NotContains(t, []string{"wait", "update"}, s.Name)
		if s.Name == "lease" {
			leases++
		}
	}
	require.LessOrEqual(t, leases, 1, "of the first look, after which it waits")
}

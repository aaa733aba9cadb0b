package flow

import (
	"fmt"
	"slices"
	"strings"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// transition is a change of the phase that a MachineUpdate shows.
type transition struct {
	from, to refitv1.Phase
	// when says what makes it.
	when string
}

// underWay are the phases of an update that comes nearer to its end.
var underWay = []refitv1.Phase{
	refitv1.PhasePending, refitv1.PhaseStaging, refitv1.PhaseDraining, refitv1.PhaseApplying, refitv1.PhaseVerifying,
}

// forward are the transitions between phases. Only one of them ends in success, and it is the one with the proof.
var forward = []transition{
	{"", refitv1.PhasePending, "asked for"},
	{refitv1.PhasePending, refitv1.PhaseStaging, "the node is asked"},
	{refitv1.PhasePending, refitv1.PhaseApplying, "another try goes on"},
	{refitv1.PhaseStaging, refitv1.PhaseApplying, "it may start"},
	{refitv1.PhaseDraining, refitv1.PhaseApplying, "the pods have left"},
	{refitv1.PhaseApplying, refitv1.PhaseDraining, "pods are to leave first"},
	{refitv1.PhaseApplying, refitv1.PhaseStaging, "the work takes a reboot after all"},
	{refitv1.PhaseApplying, refitv1.PhaseVerifying, "the node has done its work"},
	{refitv1.PhaseVerifying, refitv1.PhaseApplying, "another leader goes on"},
	{refitv1.PhaseDraining, refitv1.PhaseStaging, "something else is to be fetched"},
	{refitv1.PhaseVerifying, refitv1.PhaseStaging, "something else is to be fetched"},
	{refitv1.PhaseVerifying, refitv1.PhaseSucceeded, "the node works, and shows what is desired"},
	{refitv1.PhaseWaiting, refitv1.PhaseStaging, "the node is asked"},
	{refitv1.PhaseWaiting, refitv1.PhaseApplying, "it may start, or goes on"},
	{refitv1.PhaseWaiting, refitv1.PhaseVerifying, "what ran on the node has ended"},
	{refitv1.PhaseSucceeded, refitv1.PhasePending, "other specs, or a repair"},
	{refitv1.PhaseFailed, refitv1.PhasePending, "other specs, or another try"},
	{refitv1.PhaseSucceeded, refitv1.PhaseWaiting, "a rollback has to wait"},
	{refitv1.PhaseFailed, refitv1.PhaseWaiting, "a withdrawal has to wait"},
}

// aside are those that each phase under way has, and Waiting, too. An update of which nothing was begun becomes what it was before it
// was asked for: the node still has what it had.
var aside = []transition{
	{to: refitv1.PhaseWaiting, when: "something must happen first"},
	{to: refitv1.PhaseFailed, when: "it can't go on"},
	{to: refitv1.PhasePending, when: "other specs, or another try"},
	{to: refitv1.PhaseSucceeded, when: "withdrawn, and nothing was changed"},
}

// Permits reports whether a MachineUpdate may go from one phase to another.
func Permits(from, to refitv1.Phase) bool {
	if from == to {
		return true
	}
	open := from == refitv1.PhaseWaiting || slices.Contains(underWay, from)
	return open && slices.ContainsFunc(aside, func(t transition) bool { return t.to == to }) ||
		slices.ContainsFunc(forward, func(t transition) bool { return t.from == from && t.to == to })
}

// Diagram returns the transitions as a state diagram of Mermaid.
func Diagram() string {
	var b strings.Builder
	b.WriteString("stateDiagram-v2\n    state \"under way\" as work {\n")
	for _, t := range forward {
		if slices.Contains(underWay, t.from) && slices.Contains(underWay, t.to) {
			fmt.Fprintf(&b, "        %s --> %s: %s\n", t.from, t.to, t.when)
		}
	}
	b.WriteString("    }\n")
	for _, t := range forward {
		switch {
		case t.from == "":
			fmt.Fprintf(&b, "    [*] --> %s: %s\n", t.to, t.when)
		case !slices.Contains(underWay, t.from) || !slices.Contains(underWay, t.to):
			fmt.Fprintf(&b, "    %s --> %s: %s\n", t.from, t.to, t.when)
		}
	}
	for _, t := range aside {
		fmt.Fprintf(&b, "    work --> %s: %s\n", t.to, t.when)
		if t.to != refitv1.PhaseWaiting {
			fmt.Fprintf(&b, "    Waiting --> %s: %s\n", t.to, t.when)
		}
	}
	return b.String()
}

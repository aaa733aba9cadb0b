package admin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// row is how one update stands, as people see it.
type row struct {
	Namespace, Name, Phase, Reason, Step, Progress, Age, Message string
}

// barWidth is how many characters a progress bar has.
const barWidth = 10

func rowOf(mu *refitv1.MachineUpdate, now time.Time) row {
	st := &mu.Status
	r := row{
		Namespace: mu.Namespace, Name: mu.Name, Phase: oneLine(string(cmp.Or(st.Phase, refitv1.PhasePending))), Reason: oneLine(st.Reason),
		Step: oneLine(st.Step), Message: oneLine(st.Message),
	}
	since := mu.CreationTimestamp.Time
	switch {
	case st.ObservedDigest != mu.Spec.Digest:
		// What the status says is about specs that nobody wants any more.
		r.Phase, r.Reason, r.Step, r.Message = string(refitv1.PhasePending), "", "", "asked for, not begun"
	case st.FinishedAt != nil:
		since = st.FinishedAt.Time
	case st.StartedAt != nil:
		since = st.StartedAt.Time
	}
	if st.ObservedDigest == mu.Spec.Digest {
		r.Progress = progressOf(st)
	}
	r.Age = duration.HumanDuration(max(now.Sub(since), 0))
	return r
}

// progressOf returns what is left of a drain, or what is done of the steps.
func progressOf(st *refitv1.MachineUpdateStatus) string {
	switch {
	case st.Phase == refitv1.PhaseSucceeded:
		return ""
	case st.Phase == refitv1.PhaseDraining && st.Drain != nil && st.Drain.PodsLeft == 1:
		return "1 pod left"
	case st.Phase == refitv1.PhaseDraining && st.Drain != nil:
		return fmt.Sprintf("%d pods left", st.Drain.PodsLeft)
	case st.StepsTotal > 0:
		done := min(max(st.StepsDone, 0), st.StepsTotal)
		full := int(int64(done) * barWidth / int64(st.StepsTotal))
		return fmt.Sprintf("[%s%s] %d/%d", strings.Repeat("#", full), strings.Repeat("-", barWidth-full), done, st.StepsTotal)
	default:
		return ""
	}
}

// rank sorts what needs a person first.
func (r row) rank() int {
	switch refitv1.Phase(r.Phase) {
	case refitv1.PhaseFailed:
		return 0
	case refitv1.PhaseWaiting:
		return 1
	case refitv1.PhaseSucceeded:
		return 3
	default:
		return 2
	}
}

func rowsOf(updates []refitv1.MachineUpdate, now time.Time) []row {
	rows := make([]row, len(updates))
	for i := range updates {
		rows[i] = rowOf(&updates[i], now)
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return rows
}

// waits says what a waiting update waits for, by its reason.
var waits = map[string]string{
	refitv1.ReasonNodeAccess:  "for a NodeAccess",
	refitv1.ReasonUnreachable: "for a connection",
	refitv1.ReasonHostKey:     "for a host key",
	refitv1.ReasonSpecs:       "for specs",
	refitv1.ReasonBlocked:     "because the node can't be changed",
	refitv1.ReasonBusy:        "for an earlier run",
	refitv1.ReasonPaused:      "because paused",
	refitv1.ReasonDeleting:    "because being deleted",
	refitv1.ReasonTaken:       "because Cluster API takes it",
	refitv1.ReasonAgent:       "for the agent",
	refitv1.ReasonWindow:      "for a window",
	refitv1.ReasonBudget:      "for the budget",
	refitv1.ReasonHealth:      "for a health gate",
	refitv1.ReasonSlot:        "for a slot",
	refitv1.ReasonHold:        "because held",
	refitv1.ReasonLease:       "for the node's lease",
	refitv1.ReasonWorkload:    "for the workload cluster",
	refitv1.ReasonAudit:       "for the audit log",
	refitv1.ReasonNode:        "for the node",
	refitv1.ReasonStaging:     "for a version to be fetched",
	refitv1.ReasonUpdater:     "for a registered updater",
	refitv1.ReasonSkew:        "for versions elsewhere in the cluster",
	refitv1.ReasonWithdrawn:   "for the end of a run",
}

// summaryOf counts rows, in their order.
func summaryOf(rows []row) string {
	if len(rows) == 0 {
		return "no updates"
	}
	var order []string
	counts := map[string]int{}
	for _, r := range rows {
		what := strings.ToLower(r.Phase)
		switch refitv1.Phase(r.Phase) {
		case refitv1.PhaseWaiting:
			what = "waiting " + WaitsFor(r.Reason)
		case refitv1.PhaseSucceeded:
			what = "up to date"
		default:
		}
		if counts[what]++; counts[what] == 1 {
			order = append(order, what)
		}
	}
	parts := make([]string, len(order))
	for i, what := range order {
		parts[i] = fmt.Sprintf("%d %s", counts[what], what)
	}
	machines := "machines"
	if len(rows) == 1 {
		machines = "machine"
	}
	return fmt.Sprintf("%d %s: %s", len(rows), machines, strings.Join(parts, ", "))
}

package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/capi-refit/refit/schedule"
)

const scheduleNextExample = `  # When may changes start, and which rules say so?
  refit schedule next -f policies.yaml

  # The next twenty windows after an instant, as people in New York read their clocks
  refit schedule next -f policies.yaml -n 20 --now 2026-12-01T00:00:00Z --time-zone America/New_York

  # When may the machines of a cluster be changed, by the policies that are there and with its overrides?
  refit schedule next --namespace fleet --cluster prod

  # The start of the next window, for a script; null if it has begun longer ago than can be told
  refit schedule next -f policies.yaml -n 1 -o json | jq -r '.windows[0].start'`

func newScheduleNextCommand() *cobra.Command { return scheduleNextCommand(&liveFlags{}) }

func scheduleNextCommand(live *liveFlags) *cobra.Command {
	flags := policyFlags{optional: true}
	var n int
	cmd := &cobra.Command{
		Use:   "next (-f POLICIES | --machine MACHINE | --cluster CLUSTER)",
		Short: "List the next windows, with the rules that make them",
		Long: `Reads ChangeManagementPolicy objects as eval does, and lists the next windows in which all of them are open: the one that
is open now, if there is one, and those that start within 1000 days. Each has its start and end in local time and in UTC,
its length, the permits that make it, and the excludes that cut it short.

If there is none, it says why, and when each policy would open by itself. A policy that can't be read is an error.

With --machine or --cluster the policies that select those Machines in the management cluster are asked, with their calendars
and overrides, about the change that waits, or, without one, about some change. What budgets and deadlines allow is in the status
of the updates.`,
		Example: scheduleNextExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if n < 1 || n > 1000 {
				return fmt.Errorf("--number is %d and can be 1 to 1000", n)
			}
			if err := checkLive(live, flags.files, &flags.of); err != nil {
				return err
			}
			if live.asked() {
				return live.next(cmd, &flags, n)
			}
			p, err := flags.load(cmd.InOrStdin())
			if err != nil {
				return err
			}
			if err := p.check(); err != nil {
				return err
			}
			p.tellGates(cmd.ErrOrStderr())
			next := p.next(n)
			return show(cmd.OutOrStdout(), flags.output.Format, next.output(), next.text())
		},
	}
	flags.add(cmd)
	live.add(cmd.Flags())
	cmd.Flags().IntVarP(&n, "number", "n", 5, "How many windows to list.")
	return cmd
}

// openings are the next windows of policies.
type openings struct {
	*policies
	windows []opening
	// decision says what is so now, and so why there is no window.
	decision schedule.Decision
}

// opening is a window, with what makes it.
type opening struct {
	schedule.Window
	permits []schedule.Source
	// late are the excludes without which the window would start earlier, and early those without which it would end later.
	late, early []schedule.Source
	// tooShort is how long an update is expected to take, if that is longer than what is left of the window.
	tooShort time.Duration
}

func (p *policies) next(n int) openings {
	all := openings{policies: p, decision: schedule.Decide(schedule.Query{Now: p.now}, p.schedules...)}
	for w := range schedule.Windows(p.now, p.now.Add(schedule.DefaultHorizon), p.schedules...) {
		if len(all.windows) == n {
			break
		}
		all.windows = append(all.windows, p.opening(w))
	}
	return all
}

func (p *policies) opening(w schedule.Window) opening {
	o := opening{Window: w}
	from, until := w.Start, w.End
	if from.IsZero() {
		from = p.now
	}
	if until.IsZero() {
		until = from.Add(schedule.DefaultHorizon)
	}
	for _, s := range p.schedules {
		for _, permit := range s.Permits() {
			for range permit.Windows(from, until) {
				o.permits = append(o.permits, permit)
				break
			}
		}
		if !w.Start.IsZero() {
			o.late = append(o.late, cuts(s, w.Start.Add(-time.Second))...)
		}
		if !w.End.IsZero() {
			o.early = append(o.early, cuts(s, w.End)...)
		}
		if d := s.ExpectedDuration(); s.Fit() != schedule.FitOff && d > o.left(p.now) {
			o.tooShort = max(o.tooShort, d)
		}
	}
	return o
}

// left returns how long the window is from its start, or from now if that is later.
func (o opening) left(now time.Time) time.Duration {
	if o.End.IsZero() {
		return 1<<63 - 1
	}
	if o.Start.After(now) {
		now = o.Start
	}
	return o.End.Sub(now)
}

// cuts returns the excludes that close a policy at an instant at which it would be open.
func cuts(s *schedule.Schedule, t time.Time) []schedule.Source {
	permitted := false
	for _, permit := range s.Permits() {
		permitted = permitted || permit.Covers(t)
	}
	if !permitted {
		return nil
	}
	var all []schedule.Source
	for _, exclude := range s.Excludes() {
		if exclude.Covers(t) {
			all = append(all, exclude)
		}
	}
	return all
}

func (o openings) text() string {
	var b strings.Builder
	if len(o.windows) == 0 {
		o.explain(&b)
	}
	for i, w := range o.windows {
		fmt.Fprintf(&b, "%d. %s", i+1, between(w.Window, o.loc))
		if !w.Start.IsZero() && !w.End.IsZero() {
			fmt.Fprintf(&b, ", %s", short(w.End.Sub(w.Start)))
		}
		if !w.Start.After(o.now) {
			b.WriteString(", open now")
		}
		fmt.Fprintf(&b, "\n   UTC: %s\n", betweenUTC(w.Window))
		lines(&b, "by: ", w.permits)
		lines(&b, "starts late for ", w.late)
		lines(&b, "ends early for ", w.early)
		if w.tooShort > 0 {
			fmt.Fprintf(&b, "   too short for an update, which is expected to take %s\n", short(w.tooShort))
		}
	}
	return b.String()
}

func lines(b *strings.Builder, label string, sources []schedule.Source) {
	for _, s := range sources {
		fmt.Fprintf(b, "   %s%s\n", label, s)
	}
}

// explain says why there is no window, and what each policy has by itself.
func (o openings) explain(b *strings.Builder) {
	fmt.Fprintf(b, "There is no window (%s): %s.\n", o.decision.Reason, o.decision.Message)
	if len(o.schedules) == 1 {
		return
	}
	for _, s := range o.schedules {
		when := "never"
		if next := o.only(s).next(1); len(next.windows) > 0 {
			when = between(next.windows[0].Window, o.loc)
		}
		fmt.Fprintf(b, "By itself, %s is open next: %s\n", s.Name(), when)
	}
}

// openingsOutput are windows as programs read them.
type openingsOutput struct {
	Now      string          `json:"now"`
	TimeZone string          `json:"timeZone"`
	Windows  []openingOutput `json:"windows"`
	Reason   schedule.Reason `json:"reason"`
	Message  string          `json:"message"`
}

// windowOutput is a window as programs read it. A bound that is too far away to be known is null.
type windowOutput struct {
	Start      *string `json:"start"`
	End        *string `json:"end"`
	LocalStart *string `json:"localStart"`
	LocalEnd   *string `json:"localEnd"`
	Seconds    *int64  `json:"lengthSeconds"`
}

type openingOutput struct {
	windowOutput
	Permits  []sourceOutput `json:"permits"`
	StartsBy []sourceOutput `json:"startsLateFor,omitempty"`
	EndsBy   []sourceOutput `json:"endsEarlyFor,omitempty"`
	Fits     bool           `json:"fits"`
}

type sourceOutput struct {
	Policy string `json:"policy"`
	Field  string `json:"field"`
	Rule   string `json:"rule"`
	Reason string `json:"reason,omitempty"`
}

func (o openings) output() openingsOutput {
	out := openingsOutput{
		Now: o.now.UTC().Format(time.RFC3339), TimeZone: o.loc.String(), Windows: []openingOutput{},
		Reason: o.decision.Reason, Message: o.decision.Message,
	}
	for _, w := range o.windows {
		out.Windows = append(out.Windows, openingOutput{
			windowOutput: newWindowOutput(w.Window, o.loc), Permits: sources(w.permits),
			StartsBy: sources(w.late), EndsBy: sources(w.early), Fits: w.tooShort == 0,
		})
	}
	return out
}

func newWindowOutput(w schedule.Window, loc *time.Location) windowOutput {
	out := windowOutput{Start: bound(w.Start), End: bound(w.End)}
	if !w.Start.IsZero() {
		out.LocalStart = bound(w.Start.In(loc))
	}
	if !w.End.IsZero() {
		out.LocalEnd = bound(w.End.In(loc))
	}
	if !w.Start.IsZero() && !w.End.IsZero() {
		out.Seconds = new(int64(w.End.Sub(w.Start) / time.Second))
	}
	return out
}

func sources(all []schedule.Source) []sourceOutput {
	var out []sourceOutput
	for _, s := range all {
		out = append(out, sourceOutput{Policy: s.Policy, Field: s.Field, Rule: s.Text, Reason: s.Reason})
	}
	return out
}

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/capi-refit/refit/internal/printer"
	"github.com/capi-refit/refit/schedule"
)

const scheduleEvalExample = `  # May changes start now, and if not, when?
  refit schedule eval -f policies.yaml

  # The same for an instant and an update that takes an hour and a half, for programs
  refit schedule eval -f policies.yaml --now 2026-10-03T20:00:00Z --expected-duration 90m -o json

  # For a script: exits with 1 while changes may not start
  refit schedule eval -f policies/ --role Worker --labels pool=gpu --exit-code

  # Do the worked cases of a file still come out as they say?
  refit schedule eval --vectors vectors.json`

func newScheduleCommand() *cobra.Command {
	return subcommands(&cobra.Command{Use: "schedule", Short: "Ask when changes may start"},
		newScheduleEvalCommand(), newScheduleNextCommand(), newScheduleSimulateCommand(), newScheduleLintCommand(), newScheduleCoverageCommand())
}

// evalFlags are the flags of schedule eval.
type evalFlags struct {
	files        []string
	vectors, now string
	output       printer.Output
	expected     time.Duration
	horizonDays  int
	exitCode     bool
	of           subjectFlags
	class        classFlags
}

func newScheduleEvalCommand() *cobra.Command {
	var flags evalFlags
	cmd := &cobra.Command{
		Use:   "eval (-f POLICIES | --vectors FILE)",
		Short: "Report whether change-management policies are open at an instant, until when, and when they open next",
		Long: `Reads ChangeManagementPolicy objects, or their specs, and reports whether all of them together let changes start. They may be
a list or several documents. Calendars are taken from the ConfigMaps among them. It is the server's own engine, and needs no
cluster.

Where the policies select different machines, say about which one you ask: --role, --labels, --cluster-labels, or --policy.
Where permits or excludes are for some changes only, say about which one: --kind and --disruption.

A policy that can't be read is closed, and the answer says why: nextChangeETASeconds is -2 then. It is -1 if there is no
window within the horizon, and permissiveRemainingSeconds is -1 if there is no end within it.`,
		Example: scheduleEvalExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.output.Check(); err != nil {
				return err
			}
			if flags.vectors != "" {
				return flags.checkVectors(cmd)
			}
			err := flags.eval(cmd)
			var status *exitStatus
			if err != nil && flags.exitCode && !errors.As(err, &status) { // what can't be asked is not closed
				return &exitStatus{2, err}
			}
			return err
		},
	}
	fs := cmd.Flags()
	addFiles(fs, &flags.files)
	flags.of.add(fs)
	flags.class.add(fs, "what is not said is taken for the worst.")
	fs.BoolVar(&flags.exitCode, "exit-code", false, "Exit with 0 if changes may start, 1 if they may not, and 2 if a policy is invalid or can't be asked.")
	fs.StringVar(&flags.vectors, "vectors", "", "File with worked cases; those that come out differently are listed.")
	fs.StringVar(&flags.now, "now", "", "Instant to ask about, in RFC 3339. By default it is now.")
	fs.DurationVar(&flags.expected, "expected-duration", 0, "How long the update takes. By default it is what the policies say.")
	fs.IntVar(&flags.horizonDays, "horizon-days", 1000, "How far ahead a window may start.")
	flags.output.Add(cmd, printer.Text, printer.JSON, printer.YAML)
	cmd.MarkFlagsOneRequired("filename", "vectors")
	cmd.MarkFlagsMutuallyExclusive("filename", "vectors")
	return cmd
}

// query returns what the flags ask.
func (f *evalFlags) query() (schedule.Query, error) {
	if f.expected < 0 {
		return schedule.Query{}, fmt.Errorf("--expected-duration is %s, and an update takes longer than that", f.expected)
	}
	if f.horizonDays < 1 || f.horizonDays > 36500 {
		return schedule.Query{}, fmt.Errorf("--horizon-days is %d and can be 1 to 36500", f.horizonDays)
	}
	now, err := parseNow(f.now)
	return schedule.Query{
		Now: now, ExpectedDuration: f.expected, Horizon: time.Duration(f.horizonDays) * 24 * time.Hour,
	}, err
}

func (f *evalFlags) eval(cmd *cobra.Command) error {
	q, err := f.query()
	if err != nil {
		return err
	}
	docs, err := readPolicies(cmd.InOrStdin(), f.files, q.Now)
	if err != nil {
		return err
	}
	class, err := f.class.class()
	if err != nil {
		return err
	}
	view := func(s *schedule.Schedule) *schedule.Schedule { return s.For(class) }
	p, err := f.of.choose(newPolicies(docs, q.Now, view))
	switch {
	case errors.Is(err, errNoneSelects):
		p = &policies{}
	case err != nil:
		return err
	}
	p.tellGates(cmd.ErrOrStderr())
	d := schedule.Decide(q, p.schedules...)
	if err := printDecision(cmd.OutOrStdout(), d, f.output.Format); err != nil || !f.exitCode {
		return err
	}
	switch {
	case d.Open:
		return nil
	case d.Reason == schedule.InvalidPolicy:
		return &exitStatus{2, nil}
	default:
		return &exitStatus{1, nil}
	}
}

// decisionOutput is a decision as programs read it. A bound of the window that lies beyond the horizon is null.
type decisionOutput struct {
	Open      bool            `json:"open"`
	Reason    schedule.Reason `json:"reason"`
	ETA       int64           `json:"nextChangeETASeconds"`
	Remaining int64           `json:"permissiveRemainingSeconds"`
	Window    []*string       `json:"window,omitempty"`
	Message   string          `json:"message,omitempty"`
}

func newDecisionOutput(d schedule.Decision) decisionOutput {
	out := decisionOutput{
		Open: d.Open, Reason: d.Reason, ETA: d.NextChangeETASeconds, Remaining: d.PermissiveRemainingSeconds, Message: d.Message,
	}
	if d.Window != nil {
		out.Window = []*string{bound(d.Window.Start), bound(d.Window.End)}
	}
	return out
}

func bound(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	return new(t.Format(time.RFC3339))
}

func printDecision(w io.Writer, d schedule.Decision, output string) error {
	out := newDecisionOutput(d)
	if output == printer.JSON { // a line, as there is one for each case of a file
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		return enc.Encode(out)
	}
	if printed, err := printer.Print(w, output, out); printed {
		return err
	}
	state := "closed"
	if d.Open {
		state = "open"
	}
	text := fmt.Sprintf("%s (%s): %s\n", state, d.Reason, printable(d.Message))
	_, err := io.WriteString(w, printer.Fold(text, printer.Width(w)))
	return err
}

// vector is a worked case.
type vector struct {
	Name             string            `json:"name"`
	Policies         []json.RawMessage `json:"policies"`
	Now              string            `json:"now"`
	ExpectedDuration string            `json:"expectedDuration"`
	HorizonDays      int               `json:"horizonDays"`
	Kinds            []string          `json:"kinds"`
	Disruption       string            `json:"disruption"`
	Expect           json.RawMessage   `json:"expect"`
}

func (f *evalFlags) checkVectors(cmd *cobra.Command) error {
	data, err := readFile(cmd.InOrStdin(), f.vectors)
	if err != nil {
		return err
	}
	var vectors []vector
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&vectors); err != nil {
		return fmt.Errorf("%s: %w", f.vectors, err)
	}
	if len(vectors) == 0 {
		return errors.New("there are no cases in " + f.vectors)
	}
	different := 0
	for _, v := range vectors {
		diff, err := v.check()
		if err != nil {
			return fmt.Errorf("%s: %w", v.Name, err)
		}
		if diff != "" {
			different++
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", v.Name, diff) //nolint:errcheck // it is for people
		}
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%d of %d cases agree\n", len(vectors)-different, len(vectors)) //nolint:errcheck // the error counts them too
	if different > 0 {
		return fmt.Errorf("%d cases differ", different)
	}
	return nil
}

// check returns how the answer differs from the one that is expected, or nothing.
func (v *vector) check() (string, error) {
	f := evalFlags{now: v.Now, horizonDays: 1000}
	if v.HorizonDays != 0 {
		f.horizonDays = v.HorizonDays
	}
	if v.ExpectedDuration != "" {
		var err error
		if f.expected, err = schedule.ParseDuration(v.ExpectedDuration); err != nil {
			return "", err
		}
	}
	q, err := f.query()
	if err != nil {
		return "", err
	}
	docs := policyDocuments{now: q.Now}
	for _, p := range v.Policies {
		if err := docs.addJSON(p); err != nil {
			return "", err
		}
	}
	of := classFlags{v.Kinds, v.Disruption}
	class, err := of.class()
	if err != nil {
		return "", err
	}
	all := docs.schedules()
	for i, s := range all {
		all[i] = s.For(class)
	}
	return v.compare(newDecisionOutput(schedule.Decide(q, all...)))
}

// compare looks at what the case says, and at no more: it need not say what the reason is, for example.
func (v *vector) compare(out decisionOutput) (string, error) {
	got, err := json.Marshal(out)
	if err != nil {
		return "", err
	}
	var have, want map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(got, &have), json.Unmarshal(v.Expect, &want)); err != nil {
		return "", err
	}
	for key, w := range want {
		var compact bytes.Buffer
		if err := json.Compact(&compact, w); err != nil {
			return "", err
		}
		if !bytes.Equal(have[key], compact.Bytes()) {
			return fmt.Sprintf("%s is %s, expected %s", key, have[key], w), nil
		}
	}
	return "", nil
}

package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

const scheduleLintExample = `  # Will these policies do what they are meant to do?
  refit schedule lint -f policies.yaml

  # In CI: warnings fail, too
  refit schedule lint -f policies.yaml --strict

  # What is invalid, for programs
  refit schedule lint -f policies.yaml -o json | jq '.findings[] | select(.severity == "error")'`

func newScheduleLintCommand() *cobra.Command {
	flags := policyFlags{all: true}
	var strict bool
	cmd := &cobra.Command{
		Use:   "lint -f POLICIES",
		Short: "Warn of policies that can't be read, or that open too rarely, too briefly or never together",
		Long: `Reads ChangeManagementPolicy objects as eval does, and lists what is wrong with them, and what to do:

  Invalid      a policy that can't be read, and so is closed, or that API servers refuse (an error; all others are warnings)
  LittleTime   it is open for less than 48 hours of the next 32 days
  Overlap      two permits of a policy are open at the same time
  NoScope      changes of a kind, or that take more than something, have no window within 1000 days
  NeverMeet    policies that have windows have none together within 1000 days
  TooShort     a window is shorter than an update is expected to take
  Over         a permit has had its last window (UNTIL, COUNT)
  NoDate       a permit names days that there are not, such as February 30
  NoDay        a permit is weekly and names no day: it is on Mondays, or on the weekday of its startDate
  NoStart      a permit is each second or third time (INTERVAL) and does not say from when on

What is said of policies together holds for machines that all of them select. The exit status is 1 if there are errors, and
with --strict also if there are warnings.`,
		Example: scheduleLintExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := flags.load(cmd.InOrStdin())
			if err != nil {
				return err
			}
			report := p.lint()
			if err := report.print(cmd.OutOrStdout(), flags.output.Format); err != nil {
				return err
			}
			return report.verdict(strict)
		},
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&strict, "strict", false, "Fail on warnings, too.")
	return cmd
}

// severity is how bad a finding is.
type severity string

const (
	lintError   severity = "error"
	lintWarning severity = "warning"
)

// finding is something that is wrong with a policy, or with several of them together.
type finding struct {
	Severity severity `json:"severity"`
	Check    string   `json:"check"`
	Policy   string   `json:"policy"`
	Field    string   `json:"field,omitempty"`
	Message  string   `json:"message"`
	Remedy   string   `json:"remedy"`
}

func (f finding) String() string {
	where := f.Policy
	if f.Field != "" {
		where += ": " + f.Field
	}
	return fmt.Sprintf("%s (%s): %s: %s.\n  %s\n", f.Severity, f.Check, where, f.Message, f.Remedy)
}

// lintReport is what was found in a file of policies.
type lintReport struct {
	Policies int       `json:"policies"`
	Findings []finding `json:"findings"`
}

func (r lintReport) count(s severity) int {
	n := 0
	for _, f := range r.Findings {
		if f.Severity == s {
			n++
		}
	}
	return n
}

func (r lintReport) print(w io.Writer, output string) error {
	var b strings.Builder
	for _, f := range r.Findings {
		b.WriteString(f.String())
	}
	fmt.Fprintf(&b, "%s: %s, %s\n", counted(r.Policies, "policy", "policies"),
		counted(r.count(lintError), "error", "errors"), counted(r.count(lintWarning), "warning", "warnings"))
	return show(w, output, r, printable(b.String()))
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// verdict is an error if the findings are to fail a build.
func (r lintReport) verdict(strict bool) error {
	invalid, warnings := r.count(lintError), r.count(lintWarning)
	switch {
	case invalid > 0:
		return fmt.Errorf("%s invalid", counted(invalid, "policy is", "policies are"))
	case strict && warnings > 0:
		return errors.New(counted(warnings, "warning", "warnings") + ", which --strict takes for errors")
	default:
		return nil
	}
}

// lint looks at each policy by itself, and at all that are valid together.
func (p *policies) lint() lintReport {
	report := lintReport{Policies: len(p.schedules), Findings: []finding{}}
	valid := p.only()
	for _, s := range p.schedules {
		if err := s.Err(p.now); err != nil {
			report.Findings = append(report.Findings, invalidFinding(s.Name(), err))
			continue
		}
		valid.schedules = append(valid.schedules, s)
		one := p.only(s)
		report.Findings = append(report.Findings, slices.Concat(one.littleTime(), one.overlaps(), one.tooShort(), one.never(), one.recurrences())...)
	}
	if len(valid.schedules) > 1 {
		report.Findings = append(report.Findings, valid.together()...)
	}
	return report
}

package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/capi-refit/refit/internal/printer"
	"github.com/capi-refit/refit/schedule"
)

const scheduleSimulateExample = `  # The next six weeks, an hour a column
  refit schedule simulate -f policies.yaml

  # What would these changes alter in the coming quarter?
  refit schedule simulate -f policies.yaml --with changed.yaml --weeks 13

  # A page for those who are to agree to it
  refit schedule simulate -f policies.yaml --with changed.yaml --html windows.html`

func newScheduleSimulateCommand() *cobra.Command {
	var flags policyFlags
	var s simulateFlags
	cmd := &cobra.Command{
		Use:   "simulate -f POLICIES [--with CHANGED]",
		Short: "Draw when policies will be open, and what a change of them would alter",
		Long: `Reads ChangeManagementPolicy objects as eval does, and draws when all of them will be open, a row a day and a column an
hour of the local time. Hours that the clocks skip are blank; where the clocks go back, a column stands for two hours.

--with names files with all policies as they would be. Their windows are compared with those of the files of -f: the drawing
marks what would open and what would close, and a list says which windows are added, removed, moved, shortened, lengthened,
split or joined.

--html writes a page instead, which needs no network and no scripts: a lane for each policy and one for all of them together.`,
		Example: scheduleSimulateExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := flags.load(cmd.InOrStdin())
			if err != nil {
				return err
			}
			p.tellGates(cmd.ErrOrStderr())
			sim, err := s.simulate(cmd.InOrStdin(), p)
			if err != nil {
				return err
			}
			return s.print(cmd.OutOrStdout(), sim, flags.output.Format)
		},
	}
	flags.add(cmd)
	fs := cmd.Flags()
	fs.IntVar(&s.weeks, "weeks", 6, "How many weeks to look ahead.")
	fs.StringArrayVar(&s.with, "with", nil, "File with the policies as they would be. Can be there more than once.")
	fs.StringVar(&s.html, "html", "", "File to write a page to.")
	cmd.MarkFlagsMutuallyExclusive("html", "output")
	return cmd
}

// simulateFlags are the flags of simulate alone.
type simulateFlags struct {
	weeks int
	with  []string
	html  string
}

// simulation is what policies open in some whole days.
type simulation struct {
	*policies
	// changed are the policies as they would be, or nil.
	changed     *policies
	with        string // the files of the changed ones
	from, until time.Time
}

func (f *simulateFlags) simulate(stdin io.Reader, p *policies) (*simulation, error) {
	if f.weeks < 1 || f.weeks > 106 {
		return nil, fmt.Errorf("--weeks is %d and can be 1 to 106", f.weeks)
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	s := &simulation{policies: p}
	s.from = startOfDay(noon(p.now, p.loc, 0))
	s.until = startOfDay(noon(p.now, p.loc, 7*f.weeks))
	if len(f.with) == 0 {
		return s, nil
	}
	s.with = strings.Join(f.with, ", ")
	changed, err := loadPolicies(stdin, f.with, p.now, p.view)
	if err != nil {
		return nil, err
	}
	if err := changed.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", s.with, err)
	}
	changed.loc = p.loc
	s.changed = changed
	return s, nil
}

func (f *simulateFlags) print(w io.Writer, s *simulation, output string) error {
	if printed, err := printer.Print(w, output, s.output()); printed {
		return err
	}
	if f.html == "" {
		_, err := io.WriteString(w, s.text(isTerminal(w)))
		return err
	}
	file, err := os.Create(f.html)
	if err != nil {
		return err
	}
	if err := errors.Join(s.html(file), file.Close()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "wrote %s\n", f.html)
	return err
}

// isTerminal reports whether colors are welcome, by the custom of no-color.org.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// simulationOutput is a simulation as programs read it.
type simulationOutput struct {
	From     string         `json:"from"`
	Until    string         `json:"until"`
	TimeZone string         `json:"timeZone"`
	Windows  []windowOutput `json:"windows"`
	// Changes is there if there is something to compare with.
	Changes *[]changeOutput `json:"changes,omitempty"`
}

type changeOutput struct {
	Change string         `json:"change"`
	Before []windowOutput `json:"before"`
	After  []windowOutput `json:"after"`
}

func (s *simulation) output() simulationOutput {
	out := simulationOutput{
		From: s.from.UTC().Format(time.RFC3339), Until: s.until.UTC().Format(time.RFC3339), TimeZone: s.loc.String(),
		Windows: windowOutputs(s.windows(s.policies), s.loc),
	}
	if s.changed == nil {
		return out
	}
	changes := []changeOutput{}
	for _, c := range s.changes() {
		changes = append(changes, changeOutput{
			Change: string(c.kind), Before: windowOutputs(c.before, s.loc), After: windowOutputs(c.after, s.loc),
		})
	}
	out.Changes = &changes
	return out
}

func windowOutputs(windows []schedule.Window, loc *time.Location) []windowOutput {
	out := []windowOutput{}
	for _, w := range windows {
		out = append(out, newWindowOutput(w, loc))
	}
	return out
}

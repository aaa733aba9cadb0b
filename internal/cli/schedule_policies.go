package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/printer"
	"github.com/capi-refit/refit/schedule"
)

// policyFlags are the flags of the commands that look at the windows of policies.
type policyFlags struct {
	files     []string
	now, zone string
	output    printer.Output
	of        subjectFlags
	class     classFlags
	// all: the command looks at policies that select different machines, too.
	all bool
	// optional: the command may ask a management cluster instead.
	optional bool
}

func (f *policyFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	addFiles(fs, &f.files)
	if !f.all {
		f.of.add(fs)
	}
	f.class.add(fs, "by default the windows are shown in which some change may start.")
	fs.StringVar(&f.now, "now", "", "Instant to look from, in RFC 3339. By default it is now.")
	fs.StringVar(&f.zone, "time-zone", "", "Zone to show times in, such as Europe/Berlin. By default it is that of the first policy.")
	f.output.Add(cmd, printer.Text, printer.JSON, printer.YAML)
	if !f.optional {
		_ = cmd.MarkFlagRequired("filename") // the flag is there
	}
}

// policies are those of files, asked at an instant. Times are shown in loc.
type policies struct {
	now       time.Time
	loc       *time.Location
	schedules []*schedule.Schedule
	// selectors are what the schedules are of.
	selectors map[*schedule.Schedule]*changemanagement.Policy
	specs     map[*schedule.Schedule]*refitv1.ChangeManagementPolicySpec
	kinds     *kinds
	// view returns a schedule as it is asked, where it is not for all changes the same.
	view func(*schedule.Schedule) *schedule.Schedule
}

func (f *policyFlags) load(stdin io.Reader) (*policies, error) {
	now, err := f.from()
	if err != nil {
		return nil, err
	}
	view, err := f.class.view()
	if err != nil {
		return nil, err
	}
	p, err := loadPolicies(stdin, f.files, now, view)
	if err != nil {
		return nil, err
	}
	if !f.all {
		if p, err = f.of.choose(p); err != nil {
			return nil, err
		}
	}
	return p, f.showIn(p)
}

// from returns the instant that the flags ask about, if they can be read.
func (f *policyFlags) from() (time.Time, error) {
	if err := f.output.Check(); err != nil {
		return time.Time{}, err
	}
	return parseNow(f.now)
}

// showIn has times be shown in the zone of the flags.
func (f *policyFlags) showIn(p *policies) error {
	if f.zone == "" {
		return nil
	}
	var err error
	if p.loc, err = time.LoadLocation(f.zone); err != nil {
		return fmt.Errorf("--time-zone is %q, which is not an IANA time zone, such as Europe/Berlin", f.zone)
	}
	return nil
}

func loadPolicies(stdin io.Reader, files []string, now time.Time, view func(*schedule.Schedule) *schedule.Schedule) (*policies, error) {
	docs, err := readPolicies(stdin, files, now)
	if err != nil {
		return nil, err
	}
	return newPolicies(docs, now, view), nil
}

func newPolicies(docs *policyDocuments, now time.Time, view func(*schedule.Schedule) *schedule.Schedule) *policies {
	p := &policies{now: now, view: view, selectors: map[*schedule.Schedule]*changemanagement.Policy{}, specs: map[*schedule.Schedule]*refitv1.ChangeManagementPolicySpec{}}
	for i, policy := range docs.compile() {
		s := view(policy.Schedule)
		p.schedules = append(p.schedules, s)
		p.selectors[s] = policy
		p.specs[s] = &docs.policies[i].spec
	}
	p.kinds = newKinds(p)
	p.loc = p.schedules[0].Location()
	return p
}

func parseNow(s string) (time.Time, error) {
	if s == "" {
		return time.Now(), nil
	}
	now, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, fmt.Errorf("--now is %q, which is not an instant in RFC 3339, such as 2026-10-03T20:00:00Z", s)
	}
	return now, nil
}

// tellGates tells of the health gates that nobody asks without a cluster.
func (p *policies) tellGates(w io.Writer) {
	var all []string
	for _, s := range p.schedules {
		if policy := p.selectors[s]; policy != nil {
			for _, g := range policy.Gates {
				all = append(all, printable(g.Name+" of policy "+s.Name()))
			}
		}
	}
	if len(all) > 0 {
		_, _ = fmt.Fprintf(w, "Not asked here: health gates, %s. While one does not hold, nothing starts.\n", strings.Join(all, ", "))
	}
}

// check says which policies are invalid, with the fields to put right.
func (p *policies) check() error {
	var all []error
	for _, s := range p.schedules {
		if err := s.Err(p.now); err != nil {
			all = append(all, fmt.Errorf("policy %s is invalid, and so closed: %w", s.Name(), err))
		}
	}
	return errors.Join(all...)
}

// only returns some of the policies, asked at the same instant.
func (p *policies) only(schedules ...*schedule.Schedule) *policies {
	return &policies{now: p.now, loc: p.loc, schedules: schedules, selectors: p.selectors, specs: p.specs, kinds: p.kinds, view: p.view}
}

// names returns the names of the policies, as one.
func (p *policies) names() string {
	all := make([]string, 0, len(p.schedules))
	for _, s := range p.schedules {
		all = append(all, s.Name())
	}
	return strings.Join(all, " + ")
}

// localTime writes an instant as the clocks of the zone show it. The zone's abbreviation tells the two hours apart that have the
// same name when the clocks go back.
func localTime(t time.Time, loc *time.Location) string {
	layout := "Mon 2006-01-02 15:04 MST"
	if t.Second() != 0 {
		layout = "Mon 2006-01-02 15:04:05 MST"
	}
	return t.In(loc).Format(layout)
}

// between says when a window is, in a zone.
func between(w schedule.Window, loc *time.Location) string {
	return bounds(w, func(t time.Time) string { return localTime(t, loc) })
}

// betweenUTC says when a window is, as programs write it.
func betweenUTC(w schedule.Window) string {
	return bounds(w, func(t time.Time) string { return t.UTC().Format(time.RFC3339) })
}

func bounds(w schedule.Window, show func(time.Time) string) string {
	switch {
	case w.Start.IsZero() && w.End.IsZero():
		return "always"
	case w.Start.IsZero():
		return "until " + show(w.End)
	case w.End.IsZero():
		return "from " + show(w.Start) + " on"
	default:
		return show(w.Start) + " to " + show(w.End)
	}
}

// short writes a duration without the parts that are zero at its end: 8h, not 8h0m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

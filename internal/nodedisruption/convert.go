package nodedisruption

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/schedule"
)

const (
	maxActions = 10
	maxEntries = 50
	maxTimeout = time.Hour
)

// MaxSoak is how long a node may be watched at most.
const MaxSoak = time.Hour

// converter turns the entries of a policy into rules, and collects what is wrong with them.
type converter struct{ errs []error }

func (c *converter) wrong(field string, err error) {
	if err != nil {
		c.errs = append(c.errs, &schedule.FieldError{Field: field, Err: err})
	}
}

// convert returns the rules of a policy, without those for domains that it says nothing about.
func convert(s *refitv1.NodeDisruptionPolicySpec) (disruption.Rules, error) {
	var c converter
	out := disruption.Rules{Domains: map[disruption.Domain][]disruption.Action{}, OnFailure: disruption.OnFailure(s.OnFailure), Soak: c.soak(s.Soak)}
	seen := map[string]bool{}
	c.most("files", len(s.Files))
	for _, f := range s.Files {
		field := fmt.Sprintf("files[%s]", f.Path)
		c.wrong(field, disruption.ValidPath(f.Path))
		c.once(field, seen)
		out.Files = append(out.Files, disruption.Rule{Path: f.Path, Actions: c.actions(field, f.Disruption), Unsafe: f.Unsafe})
	}
	c.most("units", len(s.Units))
	for _, u := range s.Units {
		field := fmt.Sprintf("units[%s]", u.Name)
		if !disruption.ValidUnit(u.Name) {
			c.wrong(field, fmt.Errorf("%q is not the name of a systemd unit", u.Name))
		}
		c.once(field, seen)
		out.Units = append(out.Units, disruption.UnitRule{Name: u.Name, Actions: c.actions(field, u.Disruption)})
	}
	for _, d := range domainsOf(s) {
		if d.says != nil {
			out.Domains[d.domain] = c.actions(d.field, *d.says)
		}
	}
	out.ConfirmWithin = c.confirmWithin(s.ConfirmWithin)
	out.Probes = c.probes(s.Probes)
	return out, errors.Join(c.errs...)
}

// confirmWithin reads how long a login is awaited. 0: nothing is said.
func (c *converter) confirmWithin(value refitv1.ConfirmTimeout) time.Duration {
	if value == "" {
		return 0
	}
	d, err := schedule.ParseDuration(string(value))
	if err == nil && (d < disruption.MinConfirmWithin || d > disruption.MaxConfirmWithin) {
		err = fmt.Errorf("%q is not from %s to %s", value, disruption.MinConfirmWithin, disruption.MaxConfirmWithin)
	}
	c.wrong("confirmWithin", err)
	return d
}

// once notes an entry, of which there may be no other.
func (c *converter) once(field string, seen map[string]bool) {
	if seen[field] {
		c.wrong(field, errors.New("it is there twice"))
	}
	seen[field] = true
}

func (c *converter) most(field string, entries int) {
	if entries > maxEntries {
		c.wrong(field, fmt.Errorf("it has %d entries, of which %d are allowed", entries, maxEntries))
	}
}

// actions returns the actions of an entry. Those that have no timeout of their own have the entry's.
func (c *converter) actions(field string, d refitv1.Disruption) []disruption.Action {
	preset := c.timeout(field+".timeout", d.Timeout)
	field += ".actions"
	switch n := len(d.Actions); {
	case n == 0:
		c.wrong(field, errors.New("it is empty; say None for a change that takes nothing"))
	case n > maxActions:
		c.wrong(field, fmt.Errorf("it has %d entries, of which %d are allowed", n, maxActions))
	case n > 1 && slices.ContainsFunc(d.Actions, alone):
		c.wrong(field, errors.New("each of None, Reboot and Replace stands alone"))
	}
	out := make([]disruption.Action, 0, len(d.Actions))
	for i, a := range d.Actions {
		action := disruption.Action{Type: disruption.ActionType(a.Type), Unit: a.Unit}
		c.wrong(field, action.Validate())
		action.Timeout = cmp.Or(c.timeout(fmt.Sprintf("%s[%d].timeout", field, i), a.Timeout), preset)
		if action.Type == disruption.None {
			action.Timeout = 0 // there is nothing that could take long
		}
		out = append(out, action)
	}
	return out
}

// alone reports whether an action can't stand beside others.
func alone(a refitv1.DisruptionAction) bool {
	return a.Type == refitv1.NoDisruption || a.Type == refitv1.RebootDisruption || a.Type == refitv1.ReplaceDisruption
}

// timeout reads how long an action may take. 0: nothing is said.
func (c *converter) timeout(field string, value refitv1.DisruptionTimeout) time.Duration {
	if value == "" {
		return 0
	}
	d, err := schedule.ParseDuration(string(value))
	if err == nil && (d <= 0 || d > maxTimeout) {
		err = fmt.Errorf("%q is not longer than nothing and at most %s", value, maxTimeout)
	}
	c.wrong(field, err)
	return d
}

// soak reads how long a node is watched. Nil: nothing is said.
func (c *converter) soak(value refitv1.SoakDuration) *time.Duration {
	if value == "" {
		return nil
	}
	d, err := time.ParseDuration(string(value))
	if err != nil {
		err = fmt.Errorf("%q is not a duration; write it as 30s or 5m", value)
	} else if d < 0 || d > MaxSoak {
		err = fmt.Errorf("%q is not between 0s and %s", value, MaxSoak)
	}
	c.wrong("soak", err)
	return &d
}

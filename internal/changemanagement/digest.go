package changemanagement

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
)

// facts are what a decision that is closed rests on, as far as people are told of it. They don't change by themselves while time passes: each change of
// them is a write for all that wait.
type facts struct {
	Reason    schedule.Reason
	Otherwise schedule.Reason
	ClosedBy  []string
	Required  time.Duration
	Opens     int64
	Overrides []saidOverride
	Firm      []string
	Invalid   []readPolicy
	Due       *saidDue
	Near      bool
	Limits    []string
}

// saidOverride is an override that has a say, also one that is ignored.
type saidOverride struct {
	Override

	Since   int64
	Taken   rule
	Allowed time.Duration
}

// readPolicy is a policy as it was read.
type readPolicy struct {
	Title, UID string
	Generation int64
	Calendars  string
}

type saidDue struct {
	At, Since int64
	Cause     refitv1.DeadlineCause
	Policy    string
	Opens     bool
	Then      *saidDue
}

// Digest identifies what a decision that is closed rests on: reason, policies, overrides, instants, and the budget or the health gate. An update that
// was held back by one with the same digest is told nothing else by this one.
func (d *Decision) Digest() string {
	f := facts{Reason: d.Reason, Otherwise: d.Otherwise, ClosedBy: d.ClosedBy, Required: d.Required, Due: saidOf(d.Due), Near: d.Near, Limits: d.limits}
	if d.Window != nil {
		f.Opens = d.Window.Start.Unix()
	}
	for _, o := range d.said {
		f.Overrides = append(f.Overrides, saidOverride{o, o.since.Unix(), o.taken, o.allowed})
	}
	for _, p := range d.HeldBy {
		f.Firm = append(f.Firm, p.Title())
	}
	if d.Reason == schedule.InvalidPolicy {
		for _, p := range d.Policies {
			f.Invalid = append(f.Invalid, readPolicy{p.Title(), string(p.UID), p.Generation, p.calendars})
		}
	}
	text, _ := json.Marshal(f) // strings and numbers
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

func saidOf(d *Due) *saidDue {
	if d == nil {
		return nil
	}
	return &saidDue{d.At.Unix(), d.since.Unix(), d.Cause, d.Policy, d.Opens, saidOf(d.then)}
}

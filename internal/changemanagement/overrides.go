package changemanagement

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
)

// always is the value of an override that holds for as long as it is there.
const always = "true"

// Override is one annotation that opens or closes policies.
type Override struct {
	// Kind is the annotation's name without its group, such as permissive-until.
	Kind string
	// Object is what has it, such as Cluster c1.
	Object string
	// Value is the annotation's.
	Value string
	// Reason is why, in somebody's words.
	Reason string

	// since is when permissive-until was seen first with its value; zero if nobody has noted it yet.
	since time.Time
	// taken is the rule by which it is told of as ignored, or as read in another way than it is written, and allowed what policies allow where that is why.
	taken   rule
	allowed time.Duration
}

// rule is why an override is not taken as it is written.
type rule string

const (
	takenUnread  rule = "unreadable"
	takenUnnoted rule = "unnoted"
	takenTooLong rule = "too long"
	takenTooFar  rule = "too far"
)

// String returns the override as people read it.
func (o Override) String() string {
	text := fmt.Sprintf("%s=%s on %s", o.Kind, o.Value, o.Object)
	if o.Reason != "" {
		text += " (" + o.Reason + ")"
	}
	return text
}

// Overrides are those of a Machine and of what it belongs to.
type Overrides []Override

// annotations that override, by their kinds. What stops changes on one object is not lifted by what opens policies on another: only a bypass,
// which names the change, passes it.
var annotations = []string{refitv1.BypassAnnotation, refitv1.RestrictiveUntilAnnotation, refitv1.NotBeforeAnnotation, refitv1.PermissiveUntilAnnotation}

func kindOf(annotation string) string { return annotation[strings.Index(annotation, "/")+1:] }

func (o *Overrides) read(kind string, obj metav1.Object) {
	all := obj.GetAnnotations()
	for _, annotation := range annotations {
		value, ok := all[annotation]
		if !ok {
			continue
		}
		override := Override{
			Kind: kindOf(annotation), Object: kind + " " + obj.GetName(), Value: value,
			Reason: all[annotation+refitv1.OverrideReasonSuffix],
		}
		if annotation == refitv1.PermissiveUntilAnnotation {
			override.since = sinceOf(all)
		}
		*o = append(*o, override)
	}
}

// force is what overrides come to at an instant.
type force struct {
	bypass                        bool
	permissiveUntil, restrictedTo time.Time
	// notBefore is when the change is wanted at the earliest, and wanted says where that stands. It is a wish of who wants the change, and overrides
	// no policy.
	notBefore time.Time
	wanted    Overrides
	// by are the overrides in force, and ignored what is said about the others.
	by      Overrides
	ignored []string
	// passedOver are the overrides that are told of as ignored, or as read in another way than they are written.
	passedOver Overrides
}

// at returns the overrides in force for a change, by policies of which each allows permissive-until up to maxOverride ahead.
func (o Overrides) at(now time.Time, digest string, maxOverride time.Duration) force {
	var f force
	for _, one := range o {
		switch one.Kind {
		case kindOf(refitv1.BypassAnnotation):
			// The digests of other changes say nothing about this one.
			if digest != "" && slices.Contains(strings.Split(strings.ReplaceAll(one.Value, " ", ""), ","), digest) {
				f.bypass = true
				f.by = append(f.by, one)
			}
		case kindOf(refitv1.PermissiveUntilAnnotation):
			f.permissive(now, one, maxOverride)
		case kindOf(refitv1.RestrictiveUntilAnnotation):
			f.restrictive(now, one)
		case kindOf(refitv1.NotBeforeAnnotation):
			f.later(now, one)
		}
	}
	return f
}

func (f *force) permissive(now time.Time, o Override, limit time.Duration) {
	until := o.since.Add(limit)
	if o.Value != always {
		var err error
		if until, err = time.Parse(time.RFC3339, o.Value); err != nil {
			f.ignore(o, takenUnread, "is ignored: it is neither a time, as 2026-10-03T20:00:00Z, nor \"true\"")
			return
		}
	}
	switch over := !now.Before(until); {
	case over && o.Value != always:
	case o.since.IsZero():
		f.ignore(o, takenUnnoted, "is not in force yet: refit's leader has not noted yet since when it is there")
	case over:
		o.allowed = limit
		f.ignore(o, takenTooLong, "is ignored: it has been there for longer than %s, which is the most that the policies allow; to set it again, "+
			"give it a time instead, or take %s away with it first", limit, refitv1.PermissiveSinceAnnotation)
	case until.Sub(now) > limit+clockSkew, until.Sub(o.since) > limit+clockSkew:
		// One that was too far ahead when it was set must not open by itself when its end comes near.
		o.allowed = limit
		f.ignore(o, takenTooFar, "is ignored: the policies allow at most %s ahead", limit)
	default:
		f.by = append(f.by, o)
		if until.After(f.permissiveUntil) {
			f.permissiveUntil = until
		}
	}
}

// clockSkew is how far the clock of who sets an override may be ahead of the API server's.
const clockSkew = time.Minute

// endOfTime is beyond every horizon, and the same whenever it is asked for: messages must not change by themselves.
var endOfTime = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// wantedFrom returns when a change is wanted at the earliest, by itself; zero if it does not say, or can't be read.
func (o Overrides) wantedFrom() time.Time {
	var latest time.Time
	for _, one := range o {
		if one.Kind != kindOf(refitv1.NotBeforeAnnotation) {
			continue
		}
		if at, err := time.Parse(time.RFC3339, one.Value); err == nil && at.After(latest) {
			latest = at
		}
	}
	return latest
}

// wantedBy adds when a change is wanted by what Machines are to have: the template says it before it comes to a Machine.
func (o *Overrides) wantedBy(p inplace.Proposal) {
	kind, object := kindOf(refitv1.NotBeforeAnnotation), "Machine "+p.Name
	if p.Machine == nil {
		object = "the template of MachineSet " + p.Name
	}
	value, ok := p.Annotations[refitv1.NotBeforeAnnotation]
	if !ok || slices.ContainsFunc(*o, func(one Override) bool { return one.Kind == kind && one.Object == object && one.Value == value }) {
		return
	}
	*o = append(*o, Override{Kind: kind, Object: object, Value: value, Reason: p.Annotations[refitv1.NotBeforeAnnotation+refitv1.OverrideReasonSuffix]})
}

// later has the change wait for the instant that it says itself. One that can't be read holds it: it was not wanted at once.
func (f *force) later(now time.Time, o Override) {
	at, err := time.Parse(time.RFC3339, o.Value)
	if err != nil {
		at = endOfTime
		f.ignore(o, takenUnread, "is not a time, as 2026-10-03T20:00:00Z, so that nothing starts; correct it, or take it away")
	}
	if now.Before(at) {
		f.wanted = append(f.wanted, o)
		if at.After(f.notBefore) {
			f.notBefore = at
		}
	}
}

func (f *force) restrictive(now time.Time, o Override) {
	until, err := time.Parse(time.RFC3339, o.Value)
	if err != nil {
		until = endOfTime
	}
	if err != nil && o.Value != always {
		// Who writes this wants changes to stop.
		f.ignore(o, takenUnread, "is neither a time, as 2026-10-03T20:00:00Z, nor \"true\", and counts as \"true\"")
	}
	if now.Before(until) {
		f.by = append(f.by, o)
		if until.After(f.restrictedTo) {
			f.restrictedTo = until
		}
	}
}

func (f *force) ignore(o Override, by rule, format string, args ...any) {
	f.ignored = append(f.ignored, o.String()+" "+fmt.Sprintf(format, args...))
	o.taken = by
	f.passedOver = append(f.passedOver, o)
}

// said returns the overrides that have a say.
func (f *force) said() Overrides { return slices.Concat(f.by, f.wanted, f.passedOver) }

// deciding returns the overrides that made a decision, bypasses, else what is restrictive, else what is permissive; and the stops that are passed
// by it.
func (f *force) deciding() (by, passed Overrides) {
	for _, annotation := range annotations {
		if by = f.of(annotation); len(by) == 0 {
			continue
		}
		if annotation == refitv1.BypassAnnotation {
			passed = f.of(refitv1.RestrictiveUntilAnnotation)
		}
		return by, passed
	}
	return nil, nil
}

// of returns the overrides in force that are of an annotation.
func (f *force) of(annotation string) Overrides {
	kind := kindOf(annotation)
	return slices.DeleteFunc(slices.Clone(f.by), func(o Override) bool { return o.Kind != kind })
}

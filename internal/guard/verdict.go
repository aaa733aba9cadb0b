package guard

import (
	"fmt"
	"strings"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/explain"
)

// outcome is what became of an edit.
type outcome string

const (
	passed   outcome = "passed"
	warned   outcome = "warned"
	refused  outcome = "refused"
	bypassed outcome = "bypassed"
	// unjudged: it could not be told in time what it makes of machines, and it was let be stored.
	unjudged outcome = "unjudged"
)

// verdict is the answer about an edit.
type verdict struct {
	outcome  outcome
	refusal  string
	warnings []string
	// digest is what a bypass names; empty where there is nothing to bypass.
	digest  string
	unasked []explain.Cause
}

// take takes what was found over into the answer.
func (v *verdict) take(e *edit, all []*finding) error { //nolint:cyclop // one outcome after the other
	var refusing []*finding
	firm := false
	for _, f := range all {
		if len(f.refusing) == 0 || e.advice {
			v.outcome, v.warnings = warned, append(v.warnings, f.warning())
			continue
		}
		refusing = append(refusing, f)
		for _, p := range f.refusing {
			firm = firm || p.Firm
		}
	}
	if len(refusing) == 0 {
		v.shorten()
		return nil
	}
	digest, bypasses, err := e.bypass()
	if err != nil {
		return err
	}
	v.digest = digest
	if bypasses && !firm {
		v.outcome = bypassed
		for _, f := range refusing {
			v.warnings = append(v.warnings, "bypassed: "+f.refusal())
		}
		v.refusal = refusing[0].refusal()
		v.shorten()
		return nil
	}
	v.outcome, v.refusal = refused, refusing[0].refusal()
	if more := len(refusing) - 1; more > 0 {
		v.refusal += fmt.Sprintf("; and so in %d more of its parts", more)
	}
	v.refusal += "; " + whatToDo(refusing, v.digest, firm)
	v.shorten()
	return nil
}

// mostWarnings bounds what is said at once. API servers cut more off.
const mostWarnings = 10

func (v *verdict) shorten() {
	if more := len(v.warnings) - mostWarnings; more > 0 {
		v.warnings = append(v.warnings[:mostWarnings], fmt.Sprintf("and %d more like these: refit diff shows all", more))
	}
}

// whatToDo says how to go on, with one of these reasons being first.
func whatToDo(all []*finding, digest string, firm bool) string {
	f := all[0]
	var do string
	switch p := f.refusing[0]; {
	case f.unreadable != nil:
		do = "mend the policy, or take the change back"
	case f.manner == asked && !p.Forbid:
		do = "make the edit again when the policy is open, or take the change back"
	case f.manner == asked:
		do = "take the change of these fields back, or set replacement: Allow in the policy"
	case f.manner == unsure:
		do = "make the edit in steps that can be told, or set guard: Refuse in the policy"
	default:
		do = "have Cluster API roll out without it, or set guard: Refuse in the policy"
	}
	if firm {
		return do + "; the platform's policies are opened by no annotation in the namespace"
	}
	return fmt.Sprintf("%s. To have the edit stored all the same, set the annotation %s: %q in it; refit's hooks go on to hold back what Cluster API asks them about", do, refitv1.BypassAnnotation, digest)
}

// refusal says what would be replaced, because of what, and which policy does not let that be.
func (f *finding) refusal() string { return f.what() + "; " + f.policy() }

// warning says the same of what is not refused.
func (f *finding) warning() string {
	text := f.what() + "; " + f.policy()
	if f.manner == asked {
		text += ". Until policies let that be, refit holds it back, and its owner does not scale"
	}
	return text
}

// what says what becomes of which machines, and why.
func (f *finding) what() string {
	o := f.owner
	of := o.Title()
	if o.Namespace != "" {
		of = o.Kind + "/" + o.Namespace + "/" + strings.TrimPrefix(of, o.Kind+"/")
	}
	which := fmt.Sprintf("%s of %d Machines of %s", f.machine, len(f.machines), of)
	if len(f.machines) == 1 {
		which = f.machine + ", the Machine of " + of + ","
	}
	switch f.manner {
	case unsure:
		return fmt.Sprintf("refit can't tell whether %s would be replaced%s: %s", which, because(o), f.doubt())
	case asked:
		return fmt.Sprintf("%s would be replaced%s: %s", which, because(o), left(o))
	case goes:
		return fmt.Sprintf("%s would be deleted: that is no part of the topology any more", which)
	case later:
		return fmt.Sprintf("of %s: Cluster API %s", which, adds(o))
	default:
		return fmt.Sprintf("%s would be replaced, or another one instead%s, without refit being asked: Cluster API %s", which, because(o), adds(o))
	}
}

func because(o *explain.Owner) string {
	if len(o.Because) == 0 {
		return ""
	}
	return " because of " + some(o.Because)
}

// mostNamed is how many of several are named.
const mostNamed = 3

func some(all []string) string {
	if more := len(all) - mostNamed; more > 0 {
		return strings.Join(all[:mostNamed], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(all, ", ")
}

// left names the fields that can't be updated in place, each with the reason that refit explain gives.
func left(o *explain.Owner) string {
	var all []string
	for _, f := range o.Fields {
		if !f.Covered {
			all = append(all, fmt.Sprintf("%s of the %s can't be updated in place: %s", f.Path, f.Object, f.Reason))
		}
	}
	if more := len(all) - mostNamed; more > 0 {
		return strings.Join(all[:mostNamed], "; ") + fmt.Sprintf("; and %d more fields", more)
	}
	return strings.Join(all, "; ")
}

// doubt says why it can't be told.
func (f *finding) doubt() string {
	if f.unsure {
		return "they are not what the stored object wants: " + left(f.owner)
	}
	if len(f.owner.Notes) == 0 { // registered updaters may claim what is left
		return left(f.owner)
	}
	return some(f.owner.Notes)
}

// adds is what Cluster API does without asking anybody.
func adds(o *explain.Owner) string {
	if len(o.Adds) == 0 {
		return "replaces all of them"
	}
	return strings.Join(o.Adds, "; ")
}

// policy says which policy protects the machine, and how.
func (f *finding) policy() string {
	d := f.decision
	if len(f.refusing) > 0 && f.unreadable != nil {
		return fmt.Sprintf("policy %s can't be read, so that it may forbid that: %v", f.refusing[0].Title(), f.unreadable)
	}
	of := d.Policies
	if len(f.refusing) > 0 {
		of = f.refusing
	}
	for _, p := range of {
		if p.Forbid {
			return fmt.Sprintf("policy %s forbids replacement (replacement: Forbid)", p.Title())
		}
	}
	if d.Open {
		return "by its policies (" + names(of) + ") machines are replaced in windows only"
	}
	if len(f.refusing) > 0 {
		return fmt.Sprintf("policy %s lets nothing of it be stored now (%s): %s", f.refusing[0].Title(), f.says(), d.Message)
	}
	return "policies don't let a replacement start now: " + d.Message
}

// says names the field by which the first policy refuses what is closed.
func (f *finding) says() string {
	if p := f.refusing[0]; f.manner != asked || !p.Refuse {
		return "guard: Strict"
	}
	return "whenClosed: Refuse"
}

func names(policies []*changemanagement.Policy) string {
	all := make([]string, len(policies))
	for i, p := range policies {
		all[i] = p.Title()
	}
	return some(all)
}

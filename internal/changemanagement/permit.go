package changemanagement

import (
	"fmt"
	"strings"
	"time"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// Permit is somebody's permission for one change, where a policy is Manual.
type Permit struct {
	// At is when it was given: who was permitted first is first. It is zero if there is none.
	At time.Time
	// By is who has given it.
	By string
}

func (p Permit) given() bool { return !p.At.IsZero() }

// before returns what is told of a permission, with what is told of the other policies if there are some.
func (p Permit) before(message string, others bool) string {
	by := fmt.Sprintf("permitted by %s at %s", p.By, p.At.UTC().Format(time.RFC3339))
	if others {
		by += "; " + message
	}
	return by
}

// PermitOf returns the permission of an update for the change that is asked for; none if it is over, or was for another change.
func PermitOf(mu *refitv1.MachineUpdate, now time.Time) Permit {
	p, until := permitOf(mu)
	if !until.IsZero() && !now.Before(until) {
		return Permit{}
	}
	return p
}

// permitOf returns the permission of an update for the change that is asked for, and when it is over; zero if that is never.
func permitOf(mu *refitv1.MachineUpdate) (p Permit, until time.Time) {
	parts := strings.SplitN(mu.Annotations[refitv1.PermitAnnotation], " ", 4)
	if len(parts) < 4 || parts[1] != mu.ChangeID() {
		return p, until
	}
	at, err := time.Parse(time.RFC3339, parts[0])
	if err != nil {
		return p, until
	}
	if parts[2] != "-" {
		if until, err = time.Parse(time.RFC3339, parts[2]); err != nil || until.IsZero() {
			return p, time.Time{}
		}
	}
	return Permit{At: at, By: parts[3]}, until
}

// PermitValue returns the value of the annotation that permits a change. A zero until is for always.
func PermitValue(now time.Time, change string, until time.Time, by string) string {
	end := "-"
	if !until.IsZero() {
		end = until.UTC().Format(time.RFC3339)
	}
	return strings.Join([]string{now.UTC().Format(time.RFC3339Nano), change, end, by}, " ")
}

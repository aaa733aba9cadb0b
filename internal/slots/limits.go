package slots

import (
	"cmp"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// DefaultWorkers is the limit for workers unless Limits have another.
const DefaultWorkers = "20%"

// Limits say how many nodes may be disturbed at once. Control planes have none to set: one node, whatever Limits say.
type Limits struct {
	// Workers is how many of a cluster's workers: a number, or a percentage of them, rounded up. Its zero value stands for
	// DefaultWorkers.
	Workers intstr.IntOrString
	// FailureDomain is how many of those workers that are in one failure domain; nil: as many as Workers lets. A Machine that
	// names no failure domain is in none.
	FailureDomain *intstr.IntOrString
}

// ParseLimits reads Limits as flags have them. An empty text stands for the default, which for failure domains is no limit.
func ParseLimits(workers, failureDomain string) (Limits, error) {
	l := Limits{Workers: intstr.Parse(cmp.Or(workers, DefaultWorkers))}
	if failureDomain != "" {
		l.FailureDomain = ptr.To(intstr.Parse(failureDomain))
	}
	if l.Workers == (intstr.IntOrString{}) {
		return l, fmt.Errorf("at most %s workers out at once: %w", workers, errLimit)
	}
	return l, l.Validate()
}

var errLimit = errors.New("the limit must be a number from 1 on, or a percentage from 1% to 100%")

// Validate returns an error for limits that can't be meant.
func (l Limits) Validate() error {
	if workers := l.workers(); !valid(workers) {
		return fmt.Errorf("at most %s workers out at once: %w", workers.String(), errLimit)
	}
	if l.FailureDomain != nil && !valid(*l.FailureDomain) {
		return fmt.Errorf("at most %s nodes of a failure domain out at once: %w", l.FailureDomain.String(), errLimit)
	}
	return nil
}

// workers returns the limit for workers, or its default.
func (l Limits) workers() intstr.IntOrString {
	return cmp.Or(l.Workers, intstr.FromString(DefaultWorkers))
}

func valid(limit intstr.IntOrString) bool {
	n, err := intstr.GetScaledValueFromIntOrPercent(&limit, 100, true)
	return err == nil && n >= 1 && (limit.Type == intstr.Int || n <= 100)
}

// scale returns how many of total a limit is. One is always meant, or nothing could ever be updated.
func scale(limit intstr.IntOrString, total int) (int, error) {
	n, err := intstr.GetScaledValueFromIntOrPercent(&limit, total, true)
	if err != nil {
		return 0, fmt.Errorf("read the limit %s: %w", limit.String(), err)
	}
	return max(n, 1), nil
}

// Of returns how many of so many workers may be out at once.
func (l Limits) Of(workers int) int {
	n, err := scale(l.workers(), workers)
	if err != nil {
		return 1
	}
	return n
}

package health

import (
	"strings"
	"time"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// mostSays bounds what an answer says, in bytes.
const mostSays = 800

func answerOf(at time.Time, found verdict, err error) Answer {
	out := Answer{State: refitv1.GateFailing, At: at, Since: at, Says: short(found.says, mostSays)}
	switch {
	case err != nil:
		out.State, out.Says = refitv1.GateUnknown, short(err.Error(), mostSays)
	case found.holds:
		out.State, out.Says = refitv1.GatePassing, ""
	}
	return out
}

const (
	// saysFor is for how long at least an answer says the same, as a policy's status shows it.
	saysFor = time.Minute
	// While a gate lets none start, those that wait are told of another answer at once, and then less and less often: where it now fails and now can't
	// be asked, each is a write for each of them.
	leastTellEvery, mostTellEvery, tellsLess = time.Minute, 10 * time.Minute, 3
)

// Passes reports whether updates start by an answer.
func (g *Gate) Passes(s refitv1.GateState) bool {
	return s == refitv1.GatePassing || s == refitv1.GateUnknown && g.IgnoresErrors
}

// answer keeps an answer, and returns the state of before, and whether somebody may wait for it.
func (a *Asker) answer(k *kept, now Answer) (was refitv1.GateState, changed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := k.answer
	switch {
	case before.State != now.State:
		k.said = now.At
	case cause(before.Says) != cause(now.Says) && now.At.Sub(k.said) >= saysFor:
		k.said, now.Since = now.At, before.Since
	default:
		now.Since, now.Says = before.Since, before.Says
	}
	changed = k.tell(before, &now) || k.missed
	k.answer, k.asking, k.missed = now, false, false
	close(k.next)
	k.next = make(chan struct{})
	return before.State, changed
}

// tell decides what those that wait are told of an answer, and reports whether it is something else than before.
func (k *kept) tell(before Answer, now *Answer) bool {
	held, stood := before.State != "" && !k.gate.Passes(before.State) && !k.gate.Passes(now.State), now.At.Sub(k.told)
	if now.told = before.told; !held || stood >= k.toldFor {
		now.told = Told{now.State, now.Since, now.Says}
	}
	if now.told == before.told {
		return false
	}
	if k.told = now.At; !held || stood >= 2*mostTellEvery {
		k.toldFor = 0
	} else {
		k.toldFor = min(max(leastTellEvery, tellsLess*k.toldFor), mostTellEvery)
	}
	return true
}

// cause returns what a text says without its numbers: values, ports and times change with each question.
func cause(says string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r == '.' {
			return -1
		}
		return r
	}, says)
}

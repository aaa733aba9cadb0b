package drain

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// maxBlocked and maxBlockedLength bound what is said about pods that are blocked. They are those of a MachineUpdate's status.
	maxBlocked       = 10
	maxBlockedLength = 1024
	// maxNamed is how many pods of a kind are named in a message.
	maxNamed = 3
)

// round is one round of a drain: the pods that are to leave, and the order whose turn it is.
type round struct {
	pods  []leaver
	order int32
}

// newRound returns the round of pods, of which there is at least one. It is the turn of the lowest order as long as one pod of
// it is there.
func newRound(pods []leaver) *round {
	r := &round{pods: pods, order: pods[0].order}
	for i := range pods {
		r.order = min(r.order, pods[i].order)
	}
	return r
}

// find returns the pod of that name, or nil.
func (r *round) find(key types.NamespacedName) *leaver {
	for i := range r.pods {
		if p := r.pods[i].pod; p.Name == key.Name && p.Namespace == key.Namespace {
			return &r.pods[i]
		}
	}
	return nil
}

// turn returns the pods to be evicted now, without one.
func (r *round) turn(without types.NamespacedName) []*leaver {
	var turn []*leaver
	for i := range r.pods {
		l := &r.pods[i]
		if l.behavior == drains && l.order == r.order && !l.terminating() && l != r.find(without) {
			turn = append(turn, l)
		}
	}
	return turn
}

// progress returns how the round has ended.
func (r *round) progress() Progress {
	var evict, leave, complete, later, blocked []string
	for i := range r.pods {
		l := &r.pods[i]
		switch {
		case l.terminating():
			leave = append(leave, l.String())
		case l.behavior == awaits:
			complete = append(complete, l.String())
		case l.order != r.order:
			later = append(later, l.String())
		default:
			evict = append(evict, l.String())
		}
		if l.blocked != "" {
			blocked = append(blocked, cut(fmt.Sprintf("pod %s: %s", l, l.blocked)))
		}
	}
	var parts []string
	for _, kind := range []struct {
		what string
		pods []string
	}{{"to be evicted", evict}, {"terminating", leave}, {"to complete", complete}, {"to be evicted after these", later}} {
		if len(kind.pods) > 0 {
			parts = append(parts, fmt.Sprintf("%d %s (%s)", len(kind.pods), kind.what, named(kind.pods)))
		}
	}
	message := fmt.Sprintf("%s left: %s", counted(len(r.pods), "pod"), strings.Join(parts, ", "))
	if len(blocked) > 0 {
		message += "; " + blocked[0]
	}
	if more := len(blocked) - 1; more > 0 {
		message += fmt.Sprintf("; and %d more blocked", more)
	}
	return Progress{Left: len(r.pods), Blocked: blocked[:min(len(blocked), maxBlocked)], Message: message}
}

func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func named(pods []string) string {
	text := strings.Join(pods[:min(len(pods), maxNamed)], ", ")
	if more := len(pods) - maxNamed; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}

// cut shortens a text to what a status takes.
func cut(text string) string {
	if runes := []rune(text); len(runes) > maxBlockedLength {
		return string(runes[:maxBlockedLength-1]) + "…"
	}
	return text
}

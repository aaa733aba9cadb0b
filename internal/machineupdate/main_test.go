package machineupdate

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/machineupdate/flow"
)

// transitions are changes of phase.
type transitions struct {
	mu   sync.Mutex
	seen map[[2]refitv1.Phase]bool
}

// entered are those that the tests of this package have seen, but for those out of phases that a test has written itself.
var entered = transitions{seen: map[[2]refitv1.Phase]bool{}}

func (e *transitions) note(from, to refitv1.Phase) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen[[2]refitv1.Phase{from, to}] = true
}

// missing returns the rows of the table, as its diagram has them, that were not entered.
func (e *transitions) missing() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []string
	for line := range strings.Lines(flow.Diagram()) {
		line = strings.TrimSpace(line)
		from, rest, is := strings.Cut(line, " --> ")
		to, _, _ := strings.Cut(rest, ":")
		if is && !slices.ContainsFunc(sources(from), func(p refitv1.Phase) bool { return e.seen[[2]refitv1.Phase{p, refitv1.Phase(to)}] }) {
			out = append(out, line)
		}
	}
	return out
}

// sources are the phases that a row of the diagram begins at.
func sources(from string) []refitv1.Phase {
	switch from {
	case "[*]":
		return []refitv1.Phase{""}
	case "work":
		return []refitv1.Phase{refitv1.PhasePending, refitv1.PhaseStaging, refitv1.PhaseDraining, refitv1.PhaseApplying, refitv1.PhaseVerifying}
	default:
		return []refitv1.Phase{refitv1.Phase(from)}
	}
}

// TestMain demands that each row of the table of phases was entered by some test, when all of them have run, which they don't with -short: what none enters is dead, or not
// tested.
func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	all := flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.list").Value.String() == "" && !testing.Short()
	if code == 0 && all {
		for _, row := range entered.missing() {
			fmt.Printf("flow/phases.go: no test enters %q\n", row)
			code = 1
		}
	}
	os.Exit(code)
}

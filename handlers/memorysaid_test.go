package handlers

import (
	"context"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	ctrl "sigs.k8s.io/controller-runtime"
)

// TestWhatIsWithheldAgainIsLoggedAgain has a policy let a change be made in place in between, of which nothing is logged.
func TestWhatIsWithheldAgainIsLoggedAgain(t *testing.T) {
	lines := 0
	log := funcr.New(func(string, string) { lines++ }, funcr.Options{})
	policies := &withheld{}
	h := NewCanUpdate(NewEngine(&based{Updaters: engine(t, "/etc/demo.conf").updaters}), policies, NewMetrics(prometheus.NewRegistry()), "")
	body := recorded(t, "canupdatemachine-file-content")
	for _, want := range []struct {
		err   error
		lines int
	}{{context.DeadlineExceeded, 1}, {context.DeadlineExceeded, 1}, {nil, 1}, {context.DeadlineExceeded, 2}} {
		policies.err = want.err
		h.Machine(ctrl.LoggerInto(t.Context(), log), body)
		require.Equal(t, want.lines, lines)
	}
}

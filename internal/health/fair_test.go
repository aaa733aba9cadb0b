package health

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
)

// dark answers for clusters whose API server does not answer only when nobody waits any more.
type dark struct{}

func (dark) ask(ctx context.Context, _ *Sources, about Subject) (verdict, error) {
	if strings.HasPrefix(about.Cluster, "dark") {
		<-ctx.Done()
		return verdict{}, ctx.Err()
	}
	return verdict{holds: true}, nil
}

// TestClustersThatDontAnswerAreInNobodysWay: what answers at once is fresh whenever somebody asks, however many others take all the time that they have.
func TestClustersThatDontAnswerAreInNobodysWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		a := NewAsker(Sources{}, clock.RealClock{}, nil)
		go func() { _ = a.Start(ctx) }()
		g := &Gate{Name: "g", Interval: 30 * time.Second, timeout: 10 * time.Second, OfCluster: true, question: dark{}}
		waits := func() (fresh bool) { // those that wait look again
			for i := range 500 {
				a.Latest(policyA, g, fmt.Sprintf("dark-%d", i))
			}
			_, fresh = a.Latest(policyA, g, "fine")
			return fresh
		}
		waits()
		time.Sleep(time.Minute)
		for at := range 300 {
			require.True(t, waits(), "after %d seconds", at)
			time.Sleep(time.Second)
		}
		cancel()
		synctest.Wait()
	})
}

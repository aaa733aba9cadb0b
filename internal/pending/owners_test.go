package pending

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/rollback"
)

func TestHowManyMachinesOfADeploymentAreOutAtOnce(t *testing.T) {
	limit := func(s string) *intstr.IntOrString { return ptr.To(intstr.Parse(s)) }
	for name, tc := range map[string]struct {
		unavailable, surge *intstr.IntOrString
		inPlace, replaced  int
	}{
		"by default one":             {nil, nil, 1, 1},
		"maxUnavailable":             {limit("2"), limit("0"), 2, 2},
		"a share, rounded down":      {limit("25%"), nil, 2, 3},
		"a surge is for replacement": {limit("0"), limit("3"), 1, 3},
	} {
		t.Run(name, func(t *testing.T) {
			md := deployment1(func(md *clusterv1.MachineDeployment) { md.Spec.Replicas = ptr.To[int32](10) })
			md.Spec.Rollout.Strategy.RollingUpdate.MaxUnavailable, md.Spec.Rollout.Strategy.RollingUpdate.MaxSurge = tc.unavailable, tc.surge
			var d deployment
			d.read(md)
			require.Equal(t, tc.inPlace, d.inPlace)
			require.Equal(t, tc.replaced, d.replaced)
		})
	}
}

// differences answers as often as it is asked.
type differences struct {
	err   error
	asked int
}

func (d *differences) Difference(context.Context, client.ObjectKey) (fieldset.Change, error) {
	d.asked++
	return nil, d.err
}

func TestWhatCannotBeToldIsTriedAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		says string
	}{
		"it is refused":              {&rollback.RefusedError{Reason: "it has no template"}, "it has no template"},
		"an error may have contents": {errors.New("secret"), "what is wanted could not be read; refit tries again"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, outside, fleet(sysctl)...)
			answers := &differences{err: tc.err}
			w.view.Owners.Differences = answers
			ask := func() verdict {
				w.view.Owners.begin()
				return w.view.Owners.verdict(t.Context(), worker("w1"), &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Generation: 1}}, false)
			}
			require.Equal(t, refitv1.PendingUnknown, ask().cause)
			require.Equal(t, tc.says, ask().note)
			require.Equal(t, 1, answers.asked)
			w.Clock.Step(unknownFor + time.Second)
			ask()
			require.Equal(t, 2, answers.asked)

			answers.err = nil
			w.Clock.Step(unknownFor + time.Second)
			require.Equal(t, refitv1.PendingReplacement, ask().cause, "rolloutAfter, say, makes no difference")
			w.Clock.Step(unknownFor + time.Second)
			ask()
			require.Equal(t, 3, answers.asked, "what is known is known for longer")
			w.Clock.Step(knownFor)
			ask()
			require.Equal(t, 4, answers.asked)
		})
	}
}

// TestAChangeOfAFleetIsReadBitByBit: each view reads a bounded number of owners.
func TestAChangeOfAFleetIsReadBitByBit(t *testing.T) {
	w := newWorld(t, outside, fleet(sysctl)...)
	answers := &differences{}
	w.view.Owners.Differences = answers
	ask := func() (unknown int) {
		w.view.Owners.begin()
		for i := range readAtOnce + 5 {
			if w.view.Owners.verdict(t.Context(), controlPlane(fmt.Sprintf("cp%d", i)), &metav1.PartialObjectMetadata{}, false).cause == refitv1.PendingUnknown {
				unknown++
			}
		}
		return unknown
	}
	require.Equal(t, 5, ask())
	require.Equal(t, readAtOnce, answers.asked)
	require.Zero(t, ask())
	require.Equal(t, readAtOnce+5, answers.asked)
	w.Clock.Step(keptFor + time.Second)
	w.view.Owners.begin()
	require.Empty(t, w.view.Owners.verdicts, "what nobody asks about is forgotten")
}

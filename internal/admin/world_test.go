package admin

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/workload/workloadtest"
)

var start = managementtest.Start

// jumping is a clock on which nobody waits: whoever would moves it on.
type jumping struct {
	*clocktesting.FakeClock
}

func (j jumping) NewTimer(d time.Duration) clock.Timer {
	t := j.FakeClock.NewTimer(d)
	j.Step(d)
	return t
}

func (j jumping) After(d time.Duration) <-chan time.Time {
	c := j.FakeClock.After(d)
	j.Step(d)
	return c
}

// world is a management cluster.
type world struct {
	client.WithWatch
	t     *testing.T
	clock jumping
	out   bytes.Buffer
	// progress is what is said meanwhile.
	progress bytes.Buffer
	// fail answers instead of the cluster if it returns an error.
	fail func(verb string, obj client.Object) error
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{t: t, clock: jumping{clocktesting.NewFakeClock(start)}}
	w.WithWatch = workloadtest.Before(managementtest.As("oidc:alice", managementtest.New(objects...)), func(verb string, obj runtime.Object) error {
		if one, ok := obj.(client.Object); ok && w.fail != nil {
			return w.fail(verb, one)
		}
		return nil
	})
	return w
}

func machine(name string, change ...func(*clusterv1.Machine)) *clusterv1.Machine {
	return managementtest.Machine("fleet", name, "prod", change...)
}

func update(name string, phase refitv1.Phase, reason, message string, change ...func(*refitv1.MachineUpdate)) *refitv1.MachineUpdate {
	mu := managementtest.MachineUpdate(machine(name), func(mu *refitv1.MachineUpdate) {
		mu.CreationTimestamp = metav1.NewTime(start.Add(-48 * time.Hour))
		mu.Status.Phase, mu.Status.Reason, mu.Status.Message = phase, reason, message
		mu.Status.StartedAt = new(metav1.NewTime(start.Add(-90 * time.Second)))
	})
	for _, f := range change {
		f(mu)
	}
	return mu
}

// machine is the one that is named a, as it is now.
func (w *world) machine() *clusterv1.Machine {
	w.t.Helper()
	var m clusterv1.Machine
	require.NoError(w.t, w.Get(w.t.Context(), types.NamespacedName{Namespace: "fleet", Name: "a"}, &m))
	return &m
}

// said returns what was printed since it was asked last.
func (w *world) said() string {
	defer w.out.Reset()
	return w.out.String()
}

func lines(s ...string) string { return strings.Join(s, "\n") + "\n" }

package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/managementtest"
)

func steps(done, total int32) func(*refitv1.MachineUpdate) {
	return func(mu *refitv1.MachineUpdate) {
		mu.Status.Step, mu.Status.StepsDone, mu.Status.StepsTotal = "restart kubelet.service", done, total
	}
}

func fleet() []client.Object {
	return []client.Object{
		update("cp-1", refitv1.PhaseSucceeded, "", "the node shows what is desired", steps(3, 3), func(mu *refitv1.MachineUpdate) {
			mu.Status.Step, mu.Status.FinishedAt = "", new(metav1.NewTime(start.Add(-3*time.Hour)))
		}),
		update("cp-2", refitv1.PhaseApplying, "", "the node has done 3 of 5 steps", steps(3, 5)),
		update("w-1", refitv1.PhaseDraining, "", "pods leave", func(mu *refitv1.MachineUpdate) {
			mu.Status.Step, mu.Status.Drain = "drain", &refitv1.DrainStatus{PodsLeft: 1}
		}),
		update("w-2", refitv1.PhaseWaiting, refitv1.ReasonWindow, "policy weekends: OutsideWindow;\nopens at 2026-10-04T20:00:00Z"),
		update("w-3", refitv1.PhaseWaiting, refitv1.ReasonWindow, "policy weekends: OutsideWindow; opens at 2026-10-04T20:00:00Z"),
		update("w-4", refitv1.PhaseWaiting, "New", "\x1b[2Jfoo"),
		update("w-5", refitv1.PhaseFailed, "NodeFailed", "the node reports: restart kubelet.service: status 1", steps(4, 0)),
		update("w-6", refitv1.PhaseFailed, "NodeFailed", "of specs that nobody wants", func(mu *refitv1.MachineUpdate) { mu.Spec.Digest = "d2" }),
		update("x", refitv1.PhaseSucceeded, "", "", func(mu *refitv1.MachineUpdate) {
			mu.Namespace, mu.Labels[clusterv1.ClusterNameLabel] = "other", "test"
		}),
	}
}

func (w *world) status(width, height int) *Status {
	return &Status{Client: w, Clock: w.clock, Out: &w.out, Scope: Scope{Namespace: "fleet"}, Size: func() (int, int) { return width, height }}
}

func TestShow(t *testing.T) {
	w := newWorld(t, append(fleet(), machine("new"), managementtest.Cluster("fleet", "prod", nil))...)
	s := w.status(100, 3)
	require.NoError(t, s.Show(t.Context()))
	indent := strings.Repeat(" ", 77)
	require.Equal(t, lines(
		"NAME  PHASE      REASON      STEP                     PROGRESS          AGE  MESSAGE",
		"w-5   Failed     NodeFailed  restart kubelet.service                    90s  the node reports:",
		indent+"restart", indent+"kubelet.service: status", indent+"1",
		"w-2   Waiting    Window                                                 90s  policy weekends:",
		indent+"OutsideWindow; opens at", indent+"2026-10-04T20:00:00Z",
		"w-3   Waiting    Window                                                 90s  policy weekends:",
		indent+"OutsideWindow; opens at", indent+"2026-10-04T20:00:00Z",
		"w-4   Waiting    New                                                    90s  [2Jfoo",
		"cp-2  Applying               restart kubelet.service  [######----] 3/5  90s  the node has done 3 of", indent+"5 steps",
		"w-1   Draining               drain                    1 pod left        90s  pods leave",
		"w-6   Pending                                                           2d   asked for, not begun",
		"cp-1  Succeeded                                                         3h   the node shows what is", indent+"desired",
		"",
		"8 machines: 1 failed, 2 waiting for a window, 1 waiting (New), 1 applying, 1 draining, 1 pending, 1", "up to date",
	), strings.ReplaceAll(w.said(), "\u00a0", " "))

	s.Machines, s.Size = []string{"w-2", "new"}, func() (int, int) { return 0, 0 }
	require.EqualError(t, s.Show(t.Context()), "there is no update in namespace fleet of new: refit was not asked to update it")
	require.Equal(t, lines(
		"NAME  PHASE    REASON  AGE  MESSAGE",
		"w-2   Waiting  Window  90s  policy weekends: OutsideWindow; opens at 2026-10-04T20:00:00Z",
		"",
		"1 machine: 1 waiting for a window",
	), w.said())

	s.Machines, s.Scope = nil, Scope{Cluster: "test"}
	require.NoError(t, s.Show(t.Context()))
	require.Equal(t, lines("NAMESPACE  NAME  PHASE      AGE", "other      x     Succeeded  90s", "", "1 machine: 1 up to date"), w.said())

	require.NoError(t, w.DeleteAllOf(t.Context(), &refitv1.MachineUpdate{}, client.InNamespace("fleet")))
	s.Scope = Scope{Namespace: "fleet", Cluster: "prod"}
	require.NoError(t, s.Show(t.Context()))
	require.Equal(t, "no updates\n", w.said())
}

// TestEveryReasonHasWords reads the reasons where they are declared, so that a new one is told in words as well.
func TestEveryReasonHasWords(t *testing.T) {
	source, err := os.ReadFile(filepath.Join("..", "..", "api", "v1alpha1", "machineupdate_types.go"))
	require.NoError(t, err)
	found := regexp.MustCompile(`(?m)^\tReason\w+ += "(\w+)"$`).FindAllStringSubmatch(string(source), -1)
	require.GreaterOrEqual(t, len(found), len(waits))
	for _, m := range found {
		require.NotEmpty(t, waits[m[1]], m[1])
	}
}

func TestPageIsBounded(t *testing.T) {
	w := newWorld(t)
	var updates []refitv1.MachineUpdate
	for _, name := range []string{"a", "b", "c", "d"} {
		updates = append(updates, *update(name, refitv1.PhasePending, "", ""))
	}
	page := w.status(80, 7).page(updates, 80, 7)
	require.Equal(t, lines("NAME  PHASE    AGE", "a     Pending  90s", "b     Pending  90s", "", "(2 more)", "4 machines: 4 pending"), page)
}

// TestPageFitsTheTerminal: what has failed is not scrolled away by lines that are wrapped.
func TestPageFitsTheTerminal(t *testing.T) {
	w := newWorld(t)
	var updates []refitv1.MachineUpdate
	for i := range 30 {
		updates = append(updates, *update(fmt.Sprintf("prod-workers-94547-kb%02d", i), refitv1.PhaseApplying, "", "Restart kubelet.service, and more", steps(2, 5)))
	}
	updates[29].Status.Phase, updates[29].Status.Reason = refitv1.PhaseFailed, "NodeFailed"
	for _, size := range [][2]int{{20, 4}, {60, 24}, {80, 24}, {100, 30}, {120, 40}} {
		page := strings.Split(w.status(size[0], size[1]).page(updates, size[0], size[1]), "\n")
		require.LessOrEqual(t, len(page), size[1])
		require.True(t, strings.HasPrefix(page[1], "prod-workers-94547-"), "%q", page[1])
		for _, line := range page {
			require.LessOrEqual(t, utf8.RuneCountInString(line), size[0])
		}
	}
}

// screen is what is written while others write.
type screen struct {
	mu      sync.Mutex
	text    strings.Builder
	changed chan struct{}
}

func newScreen() *screen { return &screen{changed: make(chan struct{}, 1000)} }

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(p)
	s.changed <- struct{}{}
	return len(p), nil
}

var _ io.Writer = (*screen)(nil)

// until waits until something is shown.
func (s *screen) until(t *testing.T, what string) {
	t.Helper()
	for {
		s.mu.Lock()
		found := strings.Contains(s.text.String(), what)
		s.mu.Unlock()
		if found {
			return
		}
		select {
		case <-s.changed:
		case <-t.Context().Done():
			require.Fail(t, "never shown", what)
		}
	}
}

// watching watches until it is stopped, and returns what that says.
func watching(t *testing.T, s *Status) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Watch(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

func TestWatchWritesChanges(t *testing.T) {
	w := newWorld(t, append(fleet()[3:5], machine("w-9"))...)
	out := newScreen()
	s := w.status(0, 0)
	s.Out, s.Machines = out, []string{"w-2", "w-9"}
	stop := watching(t, s)
	out.until(t, "fleet/w-2 Waiting (Window): policy weekends")

	another := update("w-3", refitv1.PhaseSucceeded, "", "not asked for")
	require.NoError(t, w.Delete(t.Context(), another.DeepCopy()))
	added := update("w-9", refitv1.PhaseApplying, "", "", steps(1, 4))
	require.NoError(t, w.Create(t.Context(), added))
	require.NoError(t, w.Status().Update(t.Context(), added))
	out.until(t, "fleet/w-9 Applying restart kubelet.service [##--------] 1/4\n")
	require.NoError(t, w.Delete(t.Context(), added))
	out.until(t, "fleet/w-9 is gone\n")
	require.NoError(t, stop(), "Ctrl-C is no error")
	require.NotContains(t, out.text.String(), "w-3")
	require.Contains(t, out.text.String(), "2026-10-03T20:00:00Z fleet/w-2 ")
	require.Equal(t, 1, strings.Count(out.text.String(), "fleet/w-2 "), "what has not changed is not told again")
}

func TestWatchDraws(t *testing.T) {
	w := newWorld(t, fleet()[0])
	out := newScreen()
	s := w.status(80, 24)
	s.Out = out
	stop := watching(t, s)
	out.until(t, "\x1b[HNAME  PHASE      AGE  MESSAGE\x1b[K\ncp-1  Succeeded  3h   the node shows what is desired\x1b[K\n\x1b[K\n1 machine: 1 up to date\x1b[K\n\x1b[J")
	w.clock.Step(time.Hour)
	out.until(t, "cp-1  Succeeded  4h ")
	require.NoError(t, stop())
}

// TestWatchGoesOn has the API server end watches and not answer.
func TestWatchGoesOn(t *testing.T) {
	w := newWorld(t, fleet()[0])
	var mu sync.Mutex
	lists, watches := 0, 0
	watched := make(chan struct{})
	flaky := interceptor.NewClient(w.WithWatch, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			mu.Lock()
			defer mu.Unlock()
			if lists++; lists == 2 {
				return errors.New("connection\nrefused")
			}
			return c.List(ctx, list, opts...)
		},
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
			mu.Lock()
			defer mu.Unlock()
			switch watches++; watches {
			case 1:
				ended := watch.NewFake()
				ended.Stop()
				return ended, nil
			case 2:
				gone := watch.NewFakeWithChanSize(2, false)
				gone.Add(&metav1.Status{}) // is no MachineUpdate
				gone.Error(&metav1.Status{Code: 410})
				return gone, nil
			case 3:
				return nil, errors.New("too many requests")
			}
			w, err := c.Watch(ctx, list, opts...)
			close(watched) // the fake client does not tell of what was before
			return w, err
		},
	})
	out := newScreen()
	s := w.status(0, 0)
	s.Client, s.Out = flaky, out
	stop := watching(t, s)
	out.until(t, "asking again: list MachineUpdates in namespace fleet: connection refused\n")
	out.until(t, "asking again: watch MachineUpdates in namespace fleet: too many requests\n")
	<-watched
	require.NoError(t, w.Delete(t.Context(), fleet()[0]))
	out.until(t, "cp-1 is gone")
	require.NoError(t, stop())
}

func TestWatchNeedsAFirstAnswer(t *testing.T) {
	w := newWorld(t)
	s := w.status(0, 0)
	s.Client = interceptor.NewClient(w.WithWatch, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("forbidden")
		},
	})
	require.EqualError(t, s.Watch(t.Context()), "list MachineUpdates in namespace fleet: forbidden")
	require.EqualError(t, s.Show(t.Context()), "list MachineUpdates in namespace fleet: forbidden")

	// Ctrl-C while it waits to ask again.
	w = newWorld(t, managementtest.Cluster("fleet", "prod", nil))
	ctx, cancel := context.WithCancel(t.Context())
	s = w.status(0, 0)
	s.Clock = clocktesting.NewFakeClock(start)
	s.Client = interceptor.NewClient(w.WithWatch, interceptor.Funcs{
		Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
			ended := watch.NewFake()
			ended.Stop()
			return ended, nil
		},
	})
	go func() {
		for !s.Clock.(*clocktesting.FakeClock).HasWaiters() {
			if ctx.Err() != nil {
				return
			}
		}
		cancel()
	}()
	require.NoError(t, s.Watch(ctx))
	cancel()
}

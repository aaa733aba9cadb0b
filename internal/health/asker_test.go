package health

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/managementtest"
)

// scripted is a question whose answers tests give.
type scripted struct {
	mu      sync.Mutex
	verdict verdict
	err     error
	about   []Subject
	panics  bool
	// hangs, if not nil, has it be answered when it is closed.
	hangs chan struct{}
}

func (s *scripted) ask(ctx context.Context, _ *Sources, about Subject) (verdict, error) {
	s.mu.Lock()
	hangs := s.hangs
	s.about = append(s.about, about)
	s.mu.Unlock()
	if hangs != nil {
		select {
		case <-hangs:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.panics {
		panic("a bracket too many")
	}
	return s.verdict, s.err
}

func (s *scripted) answers(v verdict, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.verdict, s.err = v, err
}

func (s *scripted) asked() []Subject {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Subject(nil), s.about...)
}

// asking is an Asker that runs.
type asking struct {
	*Asker
	t       *testing.T
	clock   *clocktesting.FakeClock
	script  *scripted
	gate    *Gate
	changes chan string
}

var (
	policyA = Policy{NamespacedName: types.NamespacedName{Namespace: "fleet", Name: "a"}, UID: "a", Generation: 1}
	fine    = verdict{holds: true}
)

func newAsking(t *testing.T, edits ...func(*asking)) *asking {
	a := &asking{
		t: t, clock: clocktesting.NewFakeClock(managementtest.Start), script: &scripted{verdict: fine}, changes: make(chan string, 100),
	}
	a.gate = &Gate{Name: "g", Interval: 30 * time.Second, timeout: 10 * time.Second, question: a.script}
	a.Asker = NewAsker(Sources{}, a.clock, nil)
	a.OnChange(func(namespace string) { a.changes <- namespace })
	for _, e := range edits {
		e(a)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = a.Start(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return a
}

// changed waits until the Asker tells of another answer.
func (a *asking) changed() {
	a.t.Helper()
	require.Equal(a.t, "fleet", <-a.changes)
}

// after has time pass, and waits for an answer to a question of then.
func (a *asking) after(d time.Duration) Answer {
	a.t.Helper()
	a.clock.Step(d)
	answer, err := a.Ask(a.t.Context(), policyA, a.gate, "c1", a.clock.Now())
	require.NoError(a.t, err)
	return answer
}

func TestWhoAsksFirstDoesNotStart(t *testing.T) {
	a := newAsking(t)
	answer, fresh := a.Latest(policyA, a.gate, "c1")
	require.False(t, fresh)
	require.Zero(t, answer)
	a.changed()
	answer, fresh = a.Latest(policyA, a.gate, "c1")
	require.True(t, fresh)
	require.Equal(t, Told{State: refitv1.GatePassing, Since: managementtest.Start}, answer.Told())
	require.Equal(t, managementtest.Start, answer.At)
	require.Len(t, a.script.asked(), 1)
	for range 1000 { // a fleet
		_, fresh = a.Latest(policyA, a.gate, "c2")
		require.True(t, fresh)
	}
	require.Equal(t, []Subject{{Namespace: "fleet"}}, a.script.asked(), "one answer is for all")
}

// TestAnAnswerGetsOld: while nobody answers, the last answer lets nothing start.
func TestAnAnswerGetsOld(t *testing.T) {
	a := newAsking(t)
	a.after(0)
	a.changed()
	hangs := make(chan struct{})
	a.script.mu.Lock()
	a.script.hangs = hangs
	a.script.mu.Unlock()
	a.clock.Step(29 * time.Second)
	_, fresh := a.Latest(policyA, a.gate, "c1")
	require.True(t, fresh)
	a.clock.Step(time.Second)
	answer, fresh := a.Latest(policyA, a.gate, "c1")
	require.False(t, fresh)
	require.Equal(t, refitv1.GatePassing, answer.State, "so that it can be told")
	require.Empty(t, drained(a.changes))
	close(hangs)
	a.changed() // whoever was not let start is woken
	require.Eventually(t, func() bool { _, fresh := a.Latest(policyA, a.gate, "c1"); return fresh }, 10*time.Second, time.Millisecond)
}

func drained(c chan string) (out []string) {
	for {
		select {
		case s := <-c:
			out = append(out, s)
		default:
			return out
		}
	}
}

// TestWhatIsToldStaysTheSame: each change of a message is a write for each update that waits.
func TestWhatIsToldStaysTheSame(t *testing.T) {
	a := newAsking(t)
	a.after(0)
	a.changed()
	a.script.answers(verdict{says: "it is 0.031"}, nil)
	first := a.after(15 * time.Second)
	require.Equal(t, refitv1.GateFailing, first.State)
	require.Equal(t, a.clock.Now(), first.Since)
	a.changed()
	a.script.answers(verdict{says: "it is 0.032"}, nil)
	second := a.after(2 * time.Minute)
	require.Equal(t, "it is 0.031", second.Says, "by the value at which it came to fail")
	require.Equal(t, first.Since, second.Since)
	require.Empty(t, drained(a.changes))
	a.script.answers(verdict{says: "another is 7"}, nil)
	require.Equal(t, "another is 7", a.after(15*time.Second).Says, "another cause")
	a.changed()
	a.script.answers(verdict{says: "it is 0.031"}, nil)
	require.Equal(t, "another is 7", a.after(15*time.Second).Says, "and not again at once")
	a.script.answers(verdict{}, errors.New("it is away"))
	third := a.after(15 * time.Second)
	require.Equal(t, refitv1.GateUnknown, third.State)
	require.Equal(t, "it is away", third.Says)
	require.Equal(t, Told{first.State, first.Since, "another is 7"}, third.Told(), "those that wait are told what they were")
	require.Empty(t, drained(a.changes))
	require.Equal(t, map[string]map[string]Answer{"g": {"": third}}, a.Known(policyA))
}

// TestAGateThatNowFailsAndNowIsAwayIsToldOfSeldom: of two replicas one may be away, and 30,000 updates wait.
func TestAGateThatNowFailsAndNowIsAwayIsToldOfSeldom(t *testing.T) {
	a := newAsking(t)
	a.after(0)
	for i := range 60 { // 15 minutes
		a.script.answers(verdict{says: "it is 0.031"}, nil)
		want := refitv1.GateFailing
		if i%2 == 1 {
			a.script.answers(verdict{}, errors.New("it is away"))
			want = refitv1.GateUnknown
		}
		require.Equal(t, want, a.after(15*time.Second).State)
	}
	require.LessOrEqual(t, len(drained(a.changes)), 6, "that it holds, that it does not, that it is away, and after 1, 3 and 9 minutes")
	a.script.answers(fine, nil)
	require.Equal(t, refitv1.GatePassing, a.after(15*time.Second).Told().State, "which is told at once")
	a.changed()
}

func TestWhatIsAskedAgain(t *testing.T) {
	a := newAsking(t)
	a.after(0)
	for want := 2; want < 5; want++ { // while somebody is interested, twice in an interval
		a.clock.Step(a.gate.Interval / 2)
		require.Eventually(t, func() bool {
			a.poke()
			at := a.Known(policyA)["g"][""].At
			return at.Equal(a.clock.Now())
		}, 10*time.Second, time.Millisecond)
		require.Len(t, a.script.asked(), want)
	}
	a.clock.Step(keptFor)
	require.Eventually(t, func() bool {
		a.poke()
		return len(a.Known(policyA)) == 0
	}, 10*time.Second, time.Millisecond, "nobody is interested any more")
	require.Len(t, a.script.asked(), 4)
}

func TestEachClusterHasItsOwnAnswer(t *testing.T) {
	a := newAsking(t, func(a *asking) { a.gate.OfCluster = true })
	for _, cluster := range []string{"c1", "c2"} {
		_, err := a.Ask(t.Context(), policyA, a.gate, cluster, a.clock.Now())
		require.NoError(t, err)
	}
	require.Equal(t, []Subject{{"fleet", "c1"}, {"fleet", "c2"}}, a.script.asked())
	require.Len(t, a.Known(policyA)["g"], 2)
	other := policyA
	other.Generation++
	_, fresh := a.Latest(other, a.gate, "c1")
	require.False(t, fresh, "another version of the policy asks something else")
}

// TestAnotherProcessHasWorkedMeanwhile: what was known of a shard that is acquired again lets nothing start.
func TestAnotherProcessHasWorkedMeanwhile(t *testing.T) {
	var holds sync.Map
	holds.Store("fleet", true)
	a := newAsking(t, func(a *asking) {
		a.Holds = func(namespace string) bool {
			yes, _ := holds.Load(namespace)
			return yes == true
		}
	})
	a.after(0)
	a.changed()
	holds.Store("fleet", false)
	a.ForgetNamespaces(func(namespace string) bool { return namespace == "fleet" })
	_, fresh := a.Latest(policyA, a.gate, "c1")
	require.False(t, fresh)
	require.Empty(t, a.begin(a.clock.Now()), "who does not hold the shard asks nobody")
	require.Len(t, a.script.asked(), 1)
	holds.Store("fleet", true)
	a.after(time.Second)
	a.changed()
}

func TestAskEndsWithItsContext(t *testing.T) {
	a := newAsking(t, func(a *asking) { a.script.hangs = make(chan struct{}) })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := a.Ask(ctx, policyA, a.gate, "c1", a.clock.Now())
	require.ErrorIs(t, err, context.Canceled)
}

func TestAPanicIsNoAnswer(t *testing.T) {
	a := newAsking(t, func(a *asking) { a.script.panics = true })
	answer := a.after(0)
	require.Equal(t, refitv1.GateUnknown, answer.State)
	require.Equal(t, "panic: a bracket too many", answer.Says)
}

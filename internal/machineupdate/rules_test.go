package machineupdate

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	ctrl "sigs.k8s.io/controller-runtime"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/nodedisruption"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/files"
)

// disruptionsFunc is a fake of the NodeDisruptionPolicies.
type disruptionsFunc func(*clusterv1.Machine) (*nodedisruption.Selected, error)

func (f disruptionsFunc) Machine(_ context.Context, m *clusterv1.Machine) (*nodedisruption.Selected, error) {
	return f(m)
}

// fixedRules are the same for every Machine, by the policies.
func fixedRules(t require.TestingT, rules disruption.Rules, policies ...string) Disruptions {
	registry, err := updaters.NewRegistry(files.New(rules))
	require.NoError(t, err)
	selected := &nodedisruption.Selected{Effective: nodedisruption.Effective{Rules: rules, Policies: policies}, Updaters: registry, Revision: fmt.Sprint(rules, policies)}
	return disruptionsFunc(func(*clusterv1.Machine) (*nodedisruption.Selected, error) { return selected, nil })
}

func failing(err error) Disruptions {
	return disruptionsFunc(func(*clusterv1.Machine) (*nodedisruption.Selected, error) { return nil, err })
}

// TestWhatNoLongerHasAnAction has Cluster API commit a change that then no rule has an action for, with a real agent on the node.
func TestWhatNoLongerHasAnAction(t *testing.T) {
	replaced := disruption.Rules{Files: disruption.Table{{Path: "/etc/app", Actions: []disruption.Action{{Type: disruption.Replace}}}}}
	whatToDo := []string{"nothing was changed on the node", "have a NodeDisruptionPolicy say what it takes", "delete the Machine"}
	for name, tc := range map[string]struct {
		now  Disruptions
		says []string
	}{
		"a policy says Replace": {
			fixedRules(t, replaced, "a", "strict"),
			append(whatToDo, restartPath, "the rule for it says Replace", "NodeDisruptionPolicies that select the Machine: a, strict"),
		},
		"the policy was deleted": {
			fixedRules(t, disruption.BuiltinRules()),
			append(whatToDo, "no rule says what a change of "+restartPath+" takes", "no NodeDisruptionPolicy selects the Machine"),
		},
		"a policy can't be read": {
			failing(&nodedisruption.InvalidError{Policy: "strict", Err: errors.New("files[/etc/app].actions: it is empty")}),
			[]string{"NodeDisruptionPolicy strict can't be read", "files[/etc/app].actions", "correct the policy, or delete it"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWalkWorld(walkContext(), t, memoryDir(t), restartPath, newFault(nothing, -1))
			defer w.node.end()
			require.False(t, w.ask())
			before := w.leader.Disruptions
			w.leader.Disruptions = tc.now
			for range 4 {
				w.round()
				require.False(t, w.ask())
			}
			mu := w.update()
			require.Equal(t, refitv1.PhaseWaiting, mu.Status.Phase)
			require.Equal(t, refitv1.ReasonBlocked, mu.Status.Reason)
			for _, text := range tc.says {
				require.Contains(t, mu.Status.Message, text)
			}
			require.NoFileExists(t, filepath.Join(w.node.root, restartPath))
			require.Empty(t, w.node.journal())
			require.False(t, w.theNode().Spec.Unschedulable)

			w.leader.Disruptions = before
			require.Positive(t, w.finish(), "it goes on by itself")
			w.requireDone()
		})
	}
}

func TestOtherProblemsAreNotThoseOfPolicies(t *testing.T) {
	w := newWorld(t)
	w.node.plans = []node.Plan{{Blocked: []node.Problem{{Path: "/etc/app/a", Reason: "it is a directory"}}}}
	w.ask()
	w.reconcile()
	require.Equal(t, "the node can't be updated in place: /etc/app/a: it is a directory", w.update().Status.Message)
}

func TestADomainThatNoLongerHasAnAction(t *testing.T) {
	w := newWorld(t)
	rules := disruption.BuiltinRules()
	rules.Domains[disruption.Users] = []disruption.Action{{Type: disruption.Replace}}
	w.reconciler.Disruptions = fixedRules(t, rules, "strict")
	_, err := rules.Domain(disruption.Users)
	require.Error(t, err)
	w.node.plans = []node.Plan{{Blocked: []node.Problem{{Path: "user ops", Reason: "it can't be made: " + err.Error(), Ruled: true}}}}
	w.ask()
	w.reconcile()
	mu := w.update()
	require.Equal(t, refitv1.ReasonBlocked, mu.Status.Reason)
	require.Contains(t, mu.Status.Message, "NodeDisruptionPolicies that select the Machine: strict")
}

func TestPoliciesThatCanNotBeAskedAreAskedAgain(t *testing.T) {
	w := newWorld(t)
	down := errors.New("the caches are not filled")
	before := w.reconciler.Disruptions
	w.reconciler.Disruptions = failing(down)
	w.ask()
	_, err := w.reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	require.ErrorIs(t, err, down)
	require.Empty(t, w.node.calls)
	w.reconciler.Disruptions = before
	w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
	w.reconcile()
	require.Equal(t, refitv1.PhaseSucceeded, w.update().Status.Phase)
}

func TestPoliciesOfAnUpdateThatIsHeldBack(t *testing.T) {
	w := under(t, restartA, nightly())
	w.reconcile()
	w.reconcile()
	require.Equal(t, []string{"plan"}, w.node.calls, "what it takes is known")
	require.Equal(t, refitv1.ReasonWindow, w.update().Status.Reason)

	// By other rules it does not disturb the node any more.
	w.reconciler.Disruptions = fixedRules(t, disruption.BuiltinRules(), "calm")
	w.node.plans = []node.Plan{writeA, {}}
	w.reconcile()
	require.Equal(t, refitv1.PhaseSucceeded, w.update().Status.Phase)
	require.Equal(t, []string{"plan", "plan", "apply", "plan"}, w.node.calls)
}

func TestPoliciesWithHoldAllDoNotConnect(t *testing.T) {
	all := nightly()
	all.Spec.Hold = refitv1.HoldAll
	w := under(t, restartA, all)
	w.reconcile()
	w.reconciler.Disruptions = fixedRules(t, disruption.BuiltinRules(), "calm")
	w.reconcile()
	require.Empty(t, w.node.calls)
	require.Equal(t, refitv1.ReasonWindow, w.update().Status.Reason)
}

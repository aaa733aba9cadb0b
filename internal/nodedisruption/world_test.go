package nodedisruption

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/policykind/policykindtest"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/files"
)

type (
	spec = refitv1.NodeDisruptionPolicySpec
	edit = func(*spec)
)

// policy is one of the namespace fleet.
func policy(name string, edits ...edit) *refitv1.NodeDisruptionPolicy {
	p := &refitv1.NodeDisruptionPolicy{ObjectMeta: policykindtest.Meta(name)}
	for _, e := range edits {
		e(&p.Spec)
	}
	return p
}

func takes(actions ...refitv1.DisruptionAction) refitv1.Disruption {
	return refitv1.Disruption{Actions: actions}
}

func act(t refitv1.DisruptionActionType, unit ...string) refitv1.DisruptionAction {
	a := refitv1.DisruptionAction{Type: t}
	if len(unit) > 0 {
		a.Unit = unit[0]
	}
	return a
}

// file has an entry for a path.
func file(path string, actions ...refitv1.DisruptionAction) edit {
	return func(s *spec) {
		s.Files = append(s.Files, refitv1.FileDisruption{Path: path, Disruption: takes(actions...)})
	}
}

func roles(all ...refitv1.Role) edit { return func(s *spec) { s.Selector.Roles = all } }

func clusters(l map[string]string) edit { return func(s *spec) { s.Selector.Clusters.MatchLabels = l } }

func inert(group, kind string, paths ...string) edit {
	return func(s *spec) {
		s.InertFields = append(s.InertFields, refitv1.InertField{Group: group, Kind: kind, Paths: paths})
	}
}

// compiled are the policies as they are read.
func compiled(all ...*refitv1.NodeDisruptionPolicy) []*Policy {
	var out []*Policy
	for _, p := range all {
		out = append(out, Compile(p))
	}
	return out
}

var (
	cluster = policykindtest.Cluster
	machine = policykindtest.Machine
)

// worker is what is asked about a worker of the cluster c1.
var worker = inplace.Subject{Namespace: "fleet", Cluster: "c1"}

// world is a management cluster with its policies.
type world struct {
	*policykindtest.World
	policies *Policies
	// built is how often updaters were made, and reads how often something was read.
	built, reads int
}

func newWorld(t testing.TB, objects ...client.Object) *world {
	w := &world{World: policykindtest.New(t, policykindtest.With(objects...))}
	w.OnRead = func(runtime.Object) { w.reads++ }
	w.policies = w.newPolicies()
	require.NoError(t, w.policies.Prime(t.Context()))
	return w
}

func (w *world) newPolicies() *Policies {
	return NewPolicies(w, disruption.BuiltinRules(), func(e Effective) (*updaters.Registry, error) {
		w.built++
		return updaters.NewRegistry(files.New(e.Rules))
	})
}

// reread has the policies read one of them again.
func (w *world) reread(name string) ctrl.Result {
	w.T.Helper()
	return w.Reconcile(w.policies, name)
}

// selected is what holds for a machine.
func (w *world) selected(s inplace.Subject) *Selected {
	w.T.Helper()
	out, err := w.policies.Select(w.T.Context(), s)
	require.NoError(w.T, err)
	return out
}

// get reads a policy by its name.
func (w *world) get(name string) *refitv1.NodeDisruptionPolicy {
	w.T.Helper()
	return policykindtest.Get(w.World, name, &refitv1.NodeDisruptionPolicy{})
}

// change changes a policy as an API server does.
func (w *world) change(name string, edits ...edit) {
	w.T.Helper()
	policykindtest.Change(w.World, name, &refitv1.NodeDisruptionPolicy{}, func(p *refitv1.NodeDisruptionPolicy) {
		for _, e := range edits {
			e(&p.Spec)
		}
	})
}

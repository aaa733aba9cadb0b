package nodedisruption

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
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

var kind policykindtest.Kind[*refitv1.NodeDisruptionPolicy, spec]

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
	policy   = kind.Policy
	roles    = kind.Roles
	clusters = kind.Clusters
	cluster  = policykindtest.Cluster
	machine  = policykindtest.Machine
)

// worker is what is asked about a worker of the cluster c1.
var worker = inplace.Subject{Namespace: "fleet", Cluster: "c1"}

// world is a management cluster with its policies.
type world struct {
	*policykindtest.Policies[*refitv1.NodeDisruptionPolicy, spec]
	policies *Policies
	// built is how often updaters were made, and reads how often something was read.
	built, reads int
}

func newWorld(t testing.TB, objects ...client.Object) *world {
	w := &world{Policies: kind.World(t, policykindtest.With(objects...))}
	w.OnRead = func(runtime.Object) { w.reads++ }
	w.policies = w.newPolicies()
	w.Prime(w.policies)
	return w
}

func (w *world) newPolicies() *Policies {
	return NewPolicies(w, disruption.BuiltinRules(), func(e Effective) (*updaters.Registry, error) {
		w.built++
		return updaters.NewRegistry(files.New(e.Rules))
	})
}

// selected is what holds for a machine.
func (w *world) selected(s inplace.Subject) *Selected {
	w.T.Helper()
	out, err := w.policies.Select(w.T.Context(), s)
	require.NoError(w.T, err)
	return out
}

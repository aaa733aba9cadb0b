package kubernetessource

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/policykind/policykindtest"
)

type (
	spec = refitv1.KubernetesSourceSpec
	edit = func(*spec)
)

var kind policykindtest.Kind[*refitv1.KubernetesSource, spec]

// source is one of the namespace fleet, with packages of apt.
func source(name string, edits ...edit) *refitv1.KubernetesSource {
	apt := func(s *spec) { s.Packages = &refitv1.PackagesSource{Manager: refitv1.APTPackages} }
	return kind.Policy(name, append([]edit{apt}, edits...)...)
}

func inWindow(s *spec) { s.Staging = refitv1.InWindowStaging }

// unreadable has a manager that is none.
func unreadable(s *spec) { s.Packages.Manager = "zypper" }

// named has versions, of which packages need no checksums.
func named(versions ...string) edit {
	return func(s *spec) {
		for _, v := range versions {
			s.Versions = append(s.Versions, refitv1.SourceVersion{Version: v})
		}
	}
}

// digest is some SHA-256.
var digest = strings.Repeat("0a", 32)

// sums has v1.36.3 with the checksums, each "name" or "name architecture".
func sums(of ...string) edit {
	return func(s *spec) {
		v := refitv1.SourceVersion{Version: "v1.36.3"}
		for _, one := range of {
			name, arch, _ := strings.Cut(one, " ")
			v.Checksums = append(v.Checksums, refitv1.SourceChecksum{Name: name, Architecture: arch, SHA256: digest})
		}
		s.Versions = append(s.Versions, v)
	}
}

var (
	roles    = kind.Roles
	clusters = kind.Clusters
	cluster  = policykindtest.Cluster
	machine  = policykindtest.Machine
)

// worker is what is asked about a worker of the cluster c1.
var worker = inplace.Subject{Namespace: "fleet", Cluster: "c1"}

// world is a management cluster with its sources.
type world struct {
	*policykindtest.Policies[*refitv1.KubernetesSource, spec]
	sources *Sources
}

func newWorld(t testing.TB, objects ...client.Object) *world {
	w := &world{Policies: kind.World(t, policykindtest.With(objects...))}
	w.sources = New(w)
	w.Prime(w.sources)
	return w
}

// selected returns the name of the source of a machine, or nothing.
func (w *world) selected(s inplace.Subject) string {
	w.T.Helper()
	selected, err := w.sources.For(w.T.Context(), s)
	require.NoError(w.T, err)
	if selected == nil {
		return ""
	}
	return selected.Name
}

package bootimage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/policykind/policykindtest"
	"github.com/capi-refit/refit/updaters/image"
)

var (
	worker  = inplace.Subject{Namespace: "fleet", Cluster: "c1", Labels: map[string]string{"pool": "gpu"}}
	control = inplace.Subject{Namespace: "fleet", Cluster: "c1", Labels: map[string]string{clusterv1.MachineControlPlaneLabel: ""}}
)

func TestWhichPoliciesCount(t *testing.T) {
	for name, tc := range map[string]struct {
		policies []*refitv1.BootImagePolicy
		of       inplace.Subject
		names    []string
		keep     []string
	}{
		"none":                                 {nil, worker, nil, nil},
		"all":                                  {[]*refitv1.BootImagePolicy{policy("a")}, worker, []string{"a"}, nil},
		"none of them":                         {[]*refitv1.BootImagePolicy{policy("a", mode(refitv1.NoBootImages))}, worker, []string{"a"}, []string{"a"}},
		"part of them, and it is one":          {[]*refitv1.BootImagePolicy{policy("a", partial("gpu"))}, worker, []string{"a"}, nil},
		"part of them, and it is none":         {[]*refitv1.BootImagePolicy{policy("a", partial("cpu"))}, worker, []string{"a"}, []string{"a"}},
		"another role":                         {[]*refitv1.BootImagePolicy{policy("a", roles(refitv1.WorkerRole))}, control, nil, nil},
		"that role":                            {[]*refitv1.BootImagePolicy{policy("a", roles(refitv1.ControlPlaneRole))}, control, []string{"a"}, nil},
		"another cluster":                      {[]*refitv1.BootImagePolicy{policy("a", func(s *spec) { s.Selector.Clusters.MatchLabels = map[string]string{"env": "dev"} })}, worker, nil, nil},
		"None over All":                        {[]*refitv1.BootImagePolicy{policy("b"), policy("a", mode(refitv1.NoBootImages))}, worker, []string{"a", "b"}, []string{"a"}},
		"None over Partial":                    {[]*refitv1.BootImagePolicy{policy("a", partial("gpu")), policy("b", mode(refitv1.NoBootImages))}, worker, []string{"a", "b"}, []string{"b"}},
		"Partial over All":                     {[]*refitv1.BootImagePolicy{policy("a"), policy("b", partial("cpu"))}, worker, []string{"a", "b"}, []string{"b"}},
		"Partial over All, and it is":          {[]*refitv1.BootImagePolicy{policy("a"), policy("b", partial("gpu"))}, worker, []string{"a", "b"}, nil},
		"every Partial counts":                 {[]*refitv1.BootImagePolicy{policy("a", partial("gpu")), policy("b", partial("cpu"))}, worker, []string{"a", "b"}, []string{"b"}},
		"one that selects others says nothing": {[]*refitv1.BootImagePolicy{policy("a"), policy("b", mode(refitv1.NoBootImages), roles(refitv1.ControlPlaneRole))}, worker, []string{"a"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			for _, p := range tc.policies {
				require.NoError(t, w.Create(t.Context(), p))
				w.Reread(p.Name)
			}
			keep, names, err := w.ask(tc.of)
			require.NoError(t, err)
			require.Equal(t, tc.names, names)
			require.Equal(t, tc.keep, keep)
		})
	}
}

func TestKindsAreJoined(t *testing.T) {
	w := newWorld(t, policy("b", kinds("FooMachine", "disk.image"), kinds("AWSMachine", "x")), policy("a", kinds("FooMachine", "image")), policy("c", roles(refitv1.ControlPlaneRole), kinds("FooMachine", "y")))
	selected, err := w.policies.For(t.Context(), worker)
	require.NoError(t, err)
	require.Equal(t, []string{"image", "disk.image"}, image.Paths(infrastructureGroup, "FooMachine", selected.Kinds...))
	require.Contains(t, image.Paths(infrastructureGroup, "AWSMachine", selected.Kinds...), "x")
	m := capiMachine("m", "FooMachine", label(clusterv1.MachineControlPlaneLabel, ""))
	selected, err = w.policies.Machine(t.Context(), m)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "c"}, selected.Policies)
}

func TestAnErrorIsNeverANo(t *testing.T) {
	t.Run("policies that were not read yet", func(t *testing.T) {
		w := newWorld(t, policy("a"))
		w.policies = NewPolicies(w)
		require.Error(t, w.policies.Ready())
		_, err := w.policies.For(t.Context(), worker)
		require.ErrorContains(t, err, "BootImagePolicies have not been read yet")
		require.NoError(t, w.policies.Prime(t.Context()))
		require.NoError(t, w.policies.Ready())
	})
	t.Run("a cluster that can't be read", func(t *testing.T) {
		w := newWorld(t, policy("a"))
		w.Down = true
		_, err := w.policies.For(t.Context(), worker)
		require.ErrorIs(t, err, policykindtest.ErrDown)
		_, err = w.policies.For(t.Context(), inplace.Subject{Namespace: "none", Cluster: "c1"})
		require.NoError(t, err, "a namespace without policies needs no cluster")
	})
	t.Run("a policy that can't be read", func(t *testing.T) {
		w := newWorld(t, policy("a"), policy("b", func(s *spec) { s.VersionPattern = "(" }), policy("c", minimum("1.x")))
		_, _, err := w.ask(worker)
		var invalid *InvalidError
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, "b", invalid.Policy)
		require.ErrorContains(t, err, "BootImagePolicy b can't be read")
		require.ErrorContains(t, err, "correct the policy")
		w.change("b", func(s *spec) { s.VersionPattern = "" }, roles(refitv1.WorkerRole))
		w.change("c", roles(refitv1.ControlPlaneRole))
		_, _, err = w.ask(worker)
		require.NoError(t, err, "those that it does not select are no worse off")
	})
}

func TestCompile(t *testing.T) {
	selector := func(s *spec) {
		s.Selection.Machines = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
	}
	for name, tc := range map[string]struct {
		edits []edit
		want  string // empty: it can be read
	}{
		"all":                             {nil, ""},
		"part":                            {[]edit{partial("gpu")}, ""},
		"a version":                       {[]edit{minimum("v1.36.0")}, ""},
		"a pattern":                       {[]edit{func(s *spec) { s.VersionPattern = `-(\d{8})` }}, ""},
		"no mode":                         {[]edit{mode("")}, `selection.mode: "" is not known`},
		"another mode":                    {[]edit{mode("Some")}, `selection.mode: "Some" is not known`},
		"part of what":                    {[]edit{mode(refitv1.PartialBootImages)}, "selection.machines: it is missing, and Partial needs it"},
		"all of a part":                   {[]edit{partial("gpu"), mode(refitv1.AllBootImages)}, "selection.machines: it is for Partial, and the mode is All"},
		"a part that can't be read":       {[]edit{mode(refitv1.PartialBootImages), selector}, "selection.machines: "},
		"a role that is none":             {[]edit{roles("Master")}, "selector.roles: "},
		"no version":                      {[]edit{minimum("latest")}, `minimumVersion: "latest" is not numbers`},
		"a pattern that is none":          {[]edit{func(s *spec) { s.VersionPattern = "(" }}, "versionPattern: "},
		"a pattern without a group":       {[]edit{func(s *spec) { s.VersionPattern = `\d+` }}, "versionPattern: it has no group"},
		"a pattern with a nameless group": {[]edit{func(s *spec) { s.VersionPattern = `(?:\d+)` }}, "versionPattern: it has no group"},
	} {
		t.Run(name, func(t *testing.T) {
			p := Compile(policy("a", tc.edits...))
			if tc.want == "" {
				require.NoError(t, p.Err)
				return
			}
			require.ErrorContains(t, p.Err, tc.want)
		})
	}
	p := Compile(policy("a", mode(""), minimum("x"), func(s *spec) { s.VersionPattern = "(" }))
	for _, field := range []string{"selection.mode", "minimumVersion", "versionPattern"} {
		require.ErrorContains(t, p.Err, field, "all that is wrong is said at once")
	}
}

func TestPoliciesAreReadAgain(t *testing.T) {
	w := newWorld(t, policy("a", mode(refitv1.NoBootImages)))
	keep, _, _ := w.ask(worker)
	require.Equal(t, []string{"a"}, keep)
	w.change("a", mode(refitv1.AllBootImages))
	keep, names, _ := w.ask(worker)
	require.Empty(t, keep)
	require.Equal(t, []string{"a"}, names)
	require.NoError(t, w.Delete(t.Context(), w.Policy("a")))
	w.Reread("a")
	_, names, _ = w.ask(worker)
	require.Empty(t, names)

	w.policies = NewPolicies(w)
	result, err := w.policies.Reconcile(t.Context(), request("a"))
	require.NoError(t, err)
	require.Equal(t, time.Second, result.RequeueAfter, "one of them is not all of them")
}

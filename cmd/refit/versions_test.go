package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/bootimage"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/kubernetessource"
	"github.com/capi-refit/refit/internal/nodedisruption"
)

// Requests that managers sent: v1.36.0 of a control-plane machine, and of a worker's MachineSet, becomes v1.36.1.
var (
	upgradedMachine = filepath.Join("..", "..", "handlers", "testdata", "canupdatemachine-version.json")
	upgradedSet     = filepath.Join("..", "..", "handlers", "testdata", "canupdatemachineset-version.json")
)

func kubernetesSource(name string, versions ...string) *refitv1.KubernetesSource {
	s := &refitv1.KubernetesSource{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: name, Generation: 1}}
	s.Spec.Packages = &refitv1.PackagesSource{Manager: refitv1.APTPackages}
	for _, v := range versions {
		s.Spec.Versions = append(s.Spec.Versions, refitv1.SourceVersion{Version: v})
	}
	return s
}

// judgesOf are those of a management cluster, a fake of one, that has been read.
func judgesOf(t *testing.T, objects ...client.Object) versioned {
	scheme := runtime.NewScheme()
	require.NoError(t, clusterv1.AddToScheme(scheme))
	require.NoError(t, refitv1.AddToScheme(scheme))
	objects = append(objects, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "c1"}})
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	v := versioned{nodedisruption.NewPolicies(c, disruption.BuiltinRules(), registry), kubernetessource.New(c), bootimage.NewPolicies(c)}
	require.NoError(t, v.images.Prime(t.Context()))
	require.NoError(t, v.disruptions.Prime(t.Context()))
	require.NoError(t, v.sources.Prime(t.Context()))
	return v
}

func TestVersionsInHooks(t *testing.T) {
	never := &refitv1.NodeDisruptionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "never", Generation: 1}}
	never.Spec.KubernetesVersion = &refitv1.Disruption{Actions: []refitv1.DisruptionAction{{Type: refitv1.ReplaceDisruption}}}
	for name, tc := range map[string]struct {
		objects []client.Object
		verdict string
		reason  string
		err     string
	}{
		"a source that has it":      {[]client.Object{kubernetesSource("a", "v1.36.1")}, handlers.VerdictInPlace, "", ""},
		"packages of any version":   {[]client.Object{kubernetesSource("a")}, handlers.VerdictInPlace, "", ""},
		"no source":                 {nil, handlers.VerdictReplace, "no KubernetesSource selects the machine", ""},
		"a source that lacks it":    {[]client.Object{kubernetesSource("a", "v1.36.2")}, handlers.VerdictReplace, "KubernetesSource a does not have v1.36.1; it has v1.36.2", ""},
		"a policy says Replace":     {[]client.Object{kubernetesSource("a"), never}, handlers.VerdictReplace, "NodeDisruptionPolicy never says Replace", ""},
		"two sources are no answer": {[]client.Object{kubernetesSource("a"), kubernetesSource("b")}, "", "", "the KubernetesSources a, b select the same machine"},
	} {
		for _, file := range []string{upgradedMachine, upgradedSet} {
			t.Run(name+" "+filepath.Base(file), func(t *testing.T) {
				request, err := os.ReadFile(file)
				require.NoError(t, err)
				x, err := handlers.NewEngine(judgesOf(t, tc.objects...)).Explain(t.Context(), request)
				if tc.err != "" {
					require.ErrorContains(t, err, tc.err)
					return
				}
				require.NoError(t, err)
				require.Equal(t, tc.verdict, x.Verdict)
				require.Contains(t, x.Fields[0].Reason, tc.reason)
				if tc.reason == "" {
					require.Equal(t, "version", x.Fields[0].Updater)
					require.Equal(t, []string{"Drain"}, x.Actions)
				}
			})
		}
	}
}

// TestVersionsThatAreWrongHoldBackNoOtherChange has two sources, and another field that changes.
func TestVersionsThatAreWrongHoldBackNoOtherChange(t *testing.T) {
	request, err := os.ReadFile(explained)
	require.NoError(t, err)
	x, err := handlers.NewEngine(judgesOf(t, kubernetesSource("a"), kubernetesSource("b"))).Explain(t.Context(), request)
	require.NoError(t, err)
	require.NotEmpty(t, x.Fields)
}

func TestInPlace(t *testing.T) {
	for name, tc := range map[string]struct {
		objects  []client.Object
		from, to string
		says     string
	}{
		"it has the version already": {nil, "v1.36.1", "v1.36.1", ""},
		"a source has it":            {[]client.Object{kubernetesSource("a", "v1.36.1")}, "v1.36.0", "v1.36.1", ""},
		"no source":                  {nil, "v1.36.0", "v1.36.1", "no KubernetesSource selects the machine"},
		"a minor version is skipped": {[]client.Object{kubernetesSource("a")}, "v1.35.0", "v1.37.0", "can't skip a minor version"},
		"two sources":                {[]client.Object{kubernetesSource("a"), kubernetesSource("b")}, "v1.36.0", "v1.36.1", "the KubernetesSources a, b select"},
	} {
		t.Run(name, func(t *testing.T) {
			m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "m"}}
			m.Spec.ClusterName, m.Spec.Version = "c1", tc.from
			m.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "KubeadmConfig", Name: "m"}
			err := judgesOf(t, tc.objects...).InPlace(t.Context(), m, tc.to)
			require.Equal(t, tc.from, m.Spec.Version, "it is left as it was")
			if tc.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.says)
		})
	}
}

func TestOnlyWhatKubeadmHasMadeIsBroughtToAVersion(t *testing.T) {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "m"}}
	m.Spec.ClusterName, m.Spec.Version = "c1", "v1.36.0"
	for name, ref := range map[string]clusterv1.ContractVersionedObjectReference{
		"another bootstrap provider": {APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "RKE2Config", Name: "m"},
		"another group":              {APIGroup: "bootstrap.example.org", Kind: "KubeadmConfig", Name: "m"},
		"a Secret of somebody's":     {},
	} {
		t.Run(name, func(t *testing.T) {
			m.Spec.Bootstrap.ConfigRef = ref
			require.ErrorContains(t, judgesOf(t, kubernetesSource("a")).InPlace(t.Context(), m, "v1.36.1"), "has no KubeadmConfig")
		})
	}
}

func TestExplainWithSources(t *testing.T) {
	const head = "apiVersion: capi-refit.dev/v1alpha1\nkind: KubernetesSource\nmetadata: {name: "
	for name, tc := range map[string]struct {
		sources string
		says    []string
		err     string
	}{
		"none":     {"", []string{"Verdict: Replace", "no KubernetesSource selects the machine"}, ""},
		"one":      {head + "a, namespace: lab}\nspec: {packages: {manager: apt}}\n", []string{"Verdict: InPlace\nOn the node: Drain\nDisruption: Drain\nBy the source: a\n"}, ""},
		"of other": {head + "a, namespace: lab}\nspec: {selector: {roles: [Worker]}, packages: {manager: apt}}\n", []string{"Verdict: Replace", "Note: source a does not count: it does not select the machine, a ControlPlane"}, ""},
		"two":      {head + "a}\nspec: {packages: {manager: apt}}\n---\n" + head + "b}\nspec: {packages: {manager: dnf}}\n", nil, "the KubernetesSources a, b select the same machine"},
		"wrong":    {head + "a}\nspec: {packages: {manager: zypper}}\n", nil, `source a: packages.manager: "zypper" is not known`},
		"a typo":   {head + "a}\nspec: {package: {manager: apt}}\n", nil, `unknown field "spec.package"`},
		"a policy": {"{kind: NodeDisruptionPolicy}", nil, `"NodeDisruptionPolicy" is not a KubernetesSource`},
	} {
		t.Run(name, func(t *testing.T) {
			requireExplained(t, upgradedMachine, "--source", tc.sources, tc.says, tc.err)
		})
	}
}

// TestExamplesOfKubernetesSources reads those of the pages as the server does.
func TestExamplesOfKubernetesSources(t *testing.T) {
	examples, err := filepath.Glob(filepath.Join(examplesDir, "kubernetes-source-*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, examples)
	for _, name := range examples {
		d, err := readDisruptions(nil, explainFiles{sources: []string{name}}, disruption.BuiltinRules())
		require.NoError(t, err)
		require.NotEmpty(t, d.sources, name)
	}
}

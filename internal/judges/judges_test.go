package judges

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/bootimage"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/kubernetessource"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/nodedisruption"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/ntp"
	"github.com/capi-refit/refit/updaters/updatertest"
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
func judgesOf(t *testing.T, objects ...client.Object) ByPolicy {
	c := managementtest.New(append(objects, managementtest.Cluster("lab", "c1", nil))...)
	j := ByPolicy{nodedisruption.NewPolicies(c, disruption.BuiltinRules(), List()), kubernetessource.New(c), bootimage.NewPolicies(c)}
	require.NoError(t, j.Images.Prime(t.Context()))
	require.NoError(t, j.Disruptions.Prime(t.Context()))
	require.NoError(t, j.Sources.Prime(t.Context()))
	return j
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
	request, err := os.ReadFile(filepath.Join("..", "..", "handlers", "testdata", "canupdatemachineset-file-removed.json"))
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
			_, err := judgesOf(t, tc.objects...).InPlace(t.Context(), m, tc.to)
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
			_, err := judgesOf(t, kubernetesSource("a")).InPlace(t.Context(), m, "v1.36.1")
			require.ErrorContains(t, err, "has no KubeadmConfig")
		})
	}
}

// TestOthersUpdatersComeBehindRefitsOwn has one of refit's own come once more, as another and as itself.
func TestOthersUpdatersComeBehindRefitsOwn(t *testing.T) {
	e := nodedisruption.Join(disruption.BuiltinRules())
	change := updatertest.Case{
		Object: updaters.BootstrapConfig, APIVersion: "bootstrap.cluster.x-k8s.io/v1beta2", Kind: "KubeadmConfig",
		Current: `{"ntp":{"servers":["a"]}}`, Desired: `{"ntp":{"servers":["b"]}}`,
	}.Change(t)
	registry, err := List(func(rules updaters.Rules) updaters.Updater { return alias{ntp.New(rules)} })(e)
	require.NoError(t, err)
	decision, err := registry.Decide(t.Context(), change)
	require.NoError(t, err)
	require.True(t, decision.InPlace())
	require.Equal(t, "ntp", decision[0].Updater)

	_, err = List(func(rules updaters.Rules) updaters.Updater { return ntp.New(rules) })(e)
	require.ErrorContains(t, err, `updater "ntp" is registered twice`)
	_, err = List(nil)(nodedisruption.Effective{})
	require.ErrorContains(t, err, "updater 1 of those that refit.Main is called with is nil")
	_, err = List(func(updaters.Rules) updaters.Updater { return nil })(nodedisruption.Effective{})
	require.ErrorContains(t, err, "is nil: its constructor has returned none")
}

type alias struct{ updaters.Updater }

func (alias) Name() string { return "acme-ntp" }

// TestWhatAVerdictRestsOn demands that a policy or a source that selects the machine, and another generation of it, is another basis, and what is
// for other machines is not.
func TestWhatAVerdictRestsOn(t *testing.T) {
	subject := inplace.Subject{Namespace: "lab", Cluster: "c1"}
	basis := func(objects ...client.Object) string {
		out, err := judgesOf(t, objects...).Basis(t.Context(), subject)
		require.NoError(t, err)
		return out
	}
	policy := func(generation int64, edit func(*refitv1.NodeDisruptionPolicy)) *refitv1.NodeDisruptionPolicy {
		p := &refitv1.NodeDisruptionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "p", UID: "uid-p", Generation: generation}}
		edit(p)
		return p
	}
	same := func(*refitv1.NodeDisruptionPolicy) {}
	source, image := kubernetesSource("s", "v1.36.1"), &refitv1.BootImagePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "i", UID: "uid-i"}}
	source.UID = "uid-s"
	seen := map[string]bool{}
	for _, objects := range [][]client.Object{{}, {policy(1, same)}, {policy(2, same)}, {policy(1, same), source}, {image}} {
		b := basis(objects...)
		require.False(t, seen[b], b)
		seen[b] = true
	}
	require.Equal(t, basis(), basis(policy(1, func(p *refitv1.NodeDisruptionPolicy) {
		p.Spec.Selector.Clusters.MatchLabels = map[string]string{"of": "others"}
	})))
}

// TestMachinesOfWhichOneKeepsItsImageRestOnOtherThings: a policy selects both, and lets the image of one of them change.
func TestMachinesOfWhichOneKeepsItsImageRestOnOtherThings(t *testing.T) {
	policy := &refitv1.BootImagePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "i", UID: "uid-i"}}
	policy.Spec.Selection = refitv1.BootImageSelection{Mode: refitv1.PartialBootImages, Machines: &metav1.LabelSelector{MatchLabels: map[string]string{"image": "moves"}}}
	j := judgesOf(t, policy)
	basis := func(labels map[string]string) string {
		out, err := j.Basis(t.Context(), inplace.Subject{Namespace: "lab", Cluster: "c1", Labels: labels})
		require.NoError(t, err)
		return out
	}
	require.NotEqual(t, basis(map[string]string{"image": "moves"}), basis(nil))
	require.Equal(t, basis(map[string]string{"image": "moves"}), basis(map[string]string{"image": "moves", "rack": "b"}))
}

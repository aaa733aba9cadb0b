package explain

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capi-refit/refit/internal/disruption"
)

const workers = "MachineDeployment/workers"

// moved is what a change of the workers' bootstrap config takes: another template, and a reference to it.
var moved = []string{"name: config-1", "name: config-2"}

func TestWorkers(t *testing.T) {
	for name, c := range map[string]struct {
		from, to []string // words of both sides
		verdict  Verdict
		counts   Counts
		says     string // among what Cluster API does, and the notes
	}{
		"nothing differs":            {nil, nil, None, Counts{Total: 4}, ""},
		"labels differ":              {nil, []string{"pool: a", "pool: b"}, None, Counts{Total: 4}, ""},
		"in place":                   {nil, append(moved, "secret-one", "secret-two"), InPlace, Counts{Total: 4, InPlace: 4}, ""},
		"another name of the same":   {nil, moved, InPlace, Counts{Total: 4, InPlace: 4}, ""},
		"replaced":                   {nil, append(moved, "path: /etc/a", "path: /etc/bad"), Replace, Counts{Total: 4, Replaced: 4}, ""},
		"edited under its own name":  {nil, []string{"secret-one", "secret-two"}, None, Counts{Total: 4}, "is edited under its own name"},
		"version":                    {nil, []string{"version: v1.36.1\n      boot", "version: v1.36.2\n      boot"}, InPlace, Counts{Total: 4, InPlace: 4}, ""},
		"a template that is missing": {nil, []string{"name: config-1}}\n      infra", "name: config-9}}\n      infra"}, Unknown, Counts{Total: 4}, "KubeadmConfigTemplate fleet/config-9: it is not among the objects"},
		"more replicas":              {nil, []string{"replicas: 4", "replicas: 6"}, New, Counts{Total: 4, Made: 2}, "it is scaled from 4 to 6 machines"},
		"fewer replicas, and a change": {
			nil, append(moved, "secret-one", "secret-two", "replicas: 4", "replicas: 3"), InPlace, Counts{Total: 4, InPlace: 3, Deleted: 1}, "it is scaled from 4 to 3 machines",
		},
		"no replicas": {[]string{"  replicas: 4\n", ""}, append(moved, "  replicas: 4\n", "", "secret-one", "x"), InPlace, Counts{Total: 1, InPlace: 1}, "its replicas are not set"},
		"no machines": {[]string{"replicas: 4", "replicas: 0"}, append(moved, "replicas: 4", "replicas: 0"), None, Counts{}, "there are no machines"},
		"a surge":     {nil, append(moved, "secret-one", "x", "maxSurge: 0, maxUnavailable: 2", "maxSurge: 1, maxUnavailable: 0"), InPlace, Counts{Total: 4, InPlace: 3, Replaced: 1}, "deletes the last old one"},
		"a surge of one": {
			[]string{"replicas: 4", "replicas: 1"}, append(moved, "replicas: 4", "replicas: 1", "maxSurge: 0, maxUnavailable: 2", "maxSurge: 1, maxUnavailable: 0"),
			Replace, Counts{Total: 1, Replaced: 1}, "nothing is updated in place",
		},
		"replaced with a surge": {
			nil, append(moved, "path: /etc/a", "path: /etc/bad", "maxSurge: 0, maxUnavailable: 2", "maxSurge: 50%"), Replace, Counts{Total: 4, Replaced: 4}, "(maxSurge): at most 2",
		},
		"OnDelete":                 {nil, append(moved, "path: /etc/a", "path: /etc/bad", "type: RollingUpdate", "type: OnDelete"), OnDelete, Counts{Total: 4}, "until somebody deletes it"},
		"paused":                   {nil, append(moved, "secret-one", "x", "replicas: 4", "replicas: 4\n  paused: true"), InPlace, Counts{Total: 4, InPlace: 4}, "it is paused"},
		"rollout.after has passed": {nil, []string{"rollout: {strategy: {type", "rollout: {after: \"2026-10-01T00:00:00Z\", strategy: {type"}, Replace, Counts{Total: 4, Replaced: 4}, "made before 2026-10-01T00:00:00Z"},
		"rollout.after is to come": {nil, []string{"rollout: {strategy: {type", "rollout: {after: \"2026-10-09T00:00:00Z\", strategy: {type"}, None, Counts{Total: 4}, "from 2026-10-09T00:00:00Z on"},
		"no bootstrap config any more": {
			nil, []string{"bootstrap: {configRef: {apiGroup: bootstrap.cluster.x-k8s.io, kind: KubeadmConfigTemplate, name: config-1}}", "bootstrap: {dataSecretName: x}"},
			Replace, Counts{Total: 4, Replaced: 4}, "asks nobody where machines come to have a bootstrap config",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := of(t, compare(t, set(t, base, c.from...), set(t, base, c.to...)), workers)
			require.Equal(t, c.verdict, o.Verdict)
			require.Equal(t, c.counts, o.Machines)
			said, err := json.Marshal([][]string{o.Adds, o.Notes})
			require.NoError(t, err)
			require.Contains(t, string(said), c.says)
			require.Equal(t, c.verdict != Unknown, o.Disruption != "")
		})
	}
}

// With OnDelete each machine stays, and no other answer is given beside that.
func TestOnDeleteStaysWhateverRolloutAfterSays(t *testing.T) {
	from := strings.Replace(base, "{type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 2}}", "{type: OnDelete}", 1)
	for _, words := range [][]string{nil, append(moved, "secret-one", "secret-two")} {
		o := of(t, compare(t, set(t, from), set(t, from, append(words, "rollout: {strategy: {type", "rollout: {after: \"2020-01-01T00:00:00Z\", strategy: {type")...)), workers)
		require.Equal(t, OnDelete, o.Verdict)
		require.Equal(t, Counts{Total: 4}, o.Machines)
		require.Len(t, o.Adds, 1)
		require.Contains(t, o.Adds[0], "until somebody deletes it")
		require.Contains(t, o.Because, "spec.rollout.after")
	}
	coming := of(t, compare(t, set(t, from), set(t, from, "rollout: {strategy: {type", "rollout: {after: \"2030-01-01T00:00:00Z\", strategy: {type")), workers)
	require.Equal(t, None, coming.Verdict)
	require.Empty(t, coming.Adds)
}

func TestControlPlane(t *testing.T) {
	const cp = "KubeadmControlPlane/cp"
	for name, c := range map[string]struct {
		to      []string
		verdict Verdict
		counts  Counts
		says    string
	}{
		"nothing differs": {nil, None, Counts{Total: 3}, ""},
		"in place":        {[]string{"content: one", "content: two"}, InPlace, Counts{Total: 3, InPlace: 3}, ""},
		"replaced":        {[]string{"/etc/cp", "/etc/bad"}, Replace, Counts{Total: 3, Replaced: 3}, ""},
		"a surge":         {[]string{"content: one", "content: two", "rollout: {strategy: {rollingUpdate: {maxSurge: 0}}}", "rollout: {}"}, InPlace, Counts{Total: 3, InPlace: 2, Replaced: 1}, "with maxSurge 0, which takes three replicas"},
		"certificates":    {[]string{"rollout: {strategy", "rollout: {before: {certificatesExpiryDays: 21}, strategy"}, None, Counts{Total: 3}, "21 days before their certificates end"},
		"the infrastructure is edited under its own name": {[]string{"inMemory: {}", "inMemory: {bad: yes}"}, None, Counts{Total: 3}, "is edited under its own name"},
		// A control plane compares with what the template says now, once something else has it roll out.
		"the infrastructure, and something else": {[]string{"inMemory: {}", "inMemory: {bad: yes}", "content: one", "content: two"}, Replace, Counts{Total: 3, Replaced: 3}, ""},
		"what only the first machine has":        {[]string{"kubeadmConfigSpec: {", "kubeadmConfigSpec: {initConfiguration: {skipPhases: [addon/coredns]}, "}, Unknown, Counts{Total: 3}, "if it is still there"},
		"a field of a newer version":             {[]string{"kubeadmConfigSpec: {", "kubeadmConfigSpec: {ofTheFuture: yes, "}, Unknown, Counts{Total: 3}, "does not know"},
	} {
		t.Run(name, func(t *testing.T) {
			o := of(t, compare(t, set(t, base), set(t, base, c.to...)), cp)
			require.Equal(t, c.verdict, o.Verdict)
			require.Equal(t, c.counts, o.Machines)
			said, err := json.Marshal([][]string{o.Adds, o.Notes})
			require.NoError(t, err)
			require.Contains(t, string(said), c.says)
		})
	}
	single := of(t, compare(t, set(t, base, "replicas: 3", "replicas: 1", "maxSurge: 0}", "maxSurge: 1}"),
		set(t, base, "replicas: 3", "replicas: 1", "maxSurge: 0}", "maxSurge: 1}", "content: one", "content: two")), cp)
	require.Equal(t, Replace, single.Verdict, "a single one is never updated in place")
}

func TestWhoIsAskedAbout(t *testing.T) {
	j := &judge{}
	_, err := (&Explainer{Judge: j, Now: now}).Compare(t.Context(), set(t, base), set(t, base, append(moved, "secret-one", "x", "content: one", "content: two")...))
	require.NoError(t, err)
	require.Len(t, j.asked, 2)
	for _, s := range j.asked {
		require.Equal(t, "fleet", s.Namespace)
		require.Equal(t, "prod", s.Cluster)
		require.Equal(t, "v1.36.1", s.Version)
		require.True(t, s.MadeByKubeadm())
	}
	require.Contains(t, j.asked[0].Labels, "cluster.x-k8s.io/control-plane")
	require.Equal(t, "a", j.asked[1].Labels["pool"])
}

func TestOwnersThatComeAndGo(t *testing.T) {
	f := compare(t, set(t, base), set(t, base, "kind: MachineDeployment\nmetadata: {name: workers", "kind: MachineDeployment\nmetadata: {name: others"))
	gone, come := of(t, f, workers), of(t, f, "MachineDeployment/others")
	require.Equal(t, Deleted, gone.Verdict)
	require.Equal(t, Counts{Total: 4, Deleted: 4}, gone.Machines)
	require.Equal(t, New, come.Verdict)
	require.Equal(t, Counts{Made: 4}, come.Machines)
	require.Equal(t, Deleted, f.Verdict)
	require.Equal(t, disruption.Replace, f.Disruption)
	require.Equal(t, []*Owner{gone}, f.Reaches(disruption.Replace))

	empty, err := NewSet()
	require.NoError(t, err)
	f = compare(t, empty, set(t, base))
	require.Equal(t, New, f.Verdict)
	require.Empty(t, f.Reaches(disruption.DaemonReload))
	require.Empty(t, compare(t, empty, empty).Owners)
}

// Two owners of one name are two, if they are in two namespaces, and so are their templates.
func TestNamespacesAreKeptApart(t *testing.T) {
	both := func(words ...string) *Set {
		other := set(t, base, "namespace: fleet", "namespace: other")
		s := set(t, base, words...)
		for _, key := range other.Keys() {
			require.NoError(t, s.Add(other.Get(key)))
		}
		return s
	}
	f := compare(t, both(), both(append(moved, "path: /etc/a", "path: /etc/bad")...))
	verdicts := map[string]Verdict{}
	for _, o := range f.Owners {
		if o.Title() == workers {
			verdicts[o.Namespace] = o.Verdict
		}
	}
	require.Equal(t, map[string]Verdict{"fleet": Replace, "other": None}, verdicts)
}

func TestWhatCannotBeJudgedIsUnknown(t *testing.T) {
	f, err := (&Explainer{Judge: &judge{err: errors.New("no idea")}, Now: now}).Compare(t.Context(), set(t, base), set(t, base, append(moved, "secret-one", "x")...))
	require.NoError(t, err)
	o := of(t, f, workers)
	require.Equal(t, Unknown, o.Verdict)
	require.Contains(t, o.Notes, "no idea")
	require.Equal(t, []*Owner{o}, f.Reaches(disruption.Replace), "what can't be told counts")
	require.Empty(t, f.Disruption)
}

func TestReaches(t *testing.T) {
	restarts := compare(t, set(t, base), set(t, base, append(moved, "secret-one", "x")...))
	require.Len(t, restarts.Reaches(disruption.Reload), 1)
	require.Len(t, restarts.Reaches(disruption.Restart), 1)
	require.Empty(t, restarts.Reaches(disruption.Drain))
	surges := compare(t, set(t, base), set(t, base, append(moved, "secret-one", "x", "maxSurge: 0, maxUnavailable: 2", "maxSurge: 1")...))
	require.Len(t, surges.Reaches(disruption.Replace), 1, "the last old machine is deleted")
	require.Equal(t, disruption.Replace, surges.Disruption)
}

func TestTemplatesThatNobodyNames(t *testing.T) {
	const config = `
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
kind: KubeadmConfigTemplate
metadata: {name: config-1}
spec: {template: {spec: {files: [{path: /etc/a, content: one}]}}}
`
	same := of(t, compare(t, set(t, config), set(t, config, "content: one", "content: two")), "KubeadmConfigTemplate/config-1")
	require.Equal(t, InPlace, same.Verdict)
	require.Len(t, same.Notes, 2)

	renamed := of(t, compare(t, set(t, config), set(t, config, "config-1", "config-2", "/etc/a", "/etc/bad")), "KubeadmConfigTemplate/config-2")
	require.Equal(t, Replace, renamed.Verdict)

	first := "\n---" + strings.SplitN(class, "---", 4)[2]
	require.Equal(t, Unknown, of(t, compare(t, set(t, first), set(t, first, "name: first", "name: other")), "KubeadmControlPlaneTemplate/cp").Verdict)

	more := set(t, config)
	require.NoError(t, more.Add(objectOf(t, strings.ReplaceAll(config, "config-1", "config-2"))))
	f := compare(t, set(t, config), more)
	require.Empty(t, f.Owners)
	require.Contains(t, f.Notes, "KubeadmConfigTemplate config-2 is new, and no owner that is given names it: no machine changes for it")
}

// Of several templates that change their names nobody tells which one follows which.
func TestTemplatesThatCannotBePaired(t *testing.T) {
	text := func(names ...string) (all string) {
		for _, name := range names {
			all += "---\napiVersion: bootstrap.cluster.x-k8s.io/v1beta2\nkind: KubeadmConfigTemplate\nmetadata: {name: " + name + "}\nspec: {template: {spec: {files: [{path: /etc/bad, content: " + name + "}]}}}\n"
		}
		return all
	}
	for _, c := range []struct {
		from, to []string
		unknown  int
	}{
		{[]string{"a-1", "b-1"}, []string{"a-2", "b-2"}, 2},
		{[]string{"a-1", "b-1"}, []string{"a-2"}, 1},
		{[]string{"a-1"}, []string{"a-2", "b-2"}, 2},
		{[]string{"a-1", "b-1"}, []string{"a-1", "b-1", "c-1", "d-1"}, 0},
		{[]string{"a-1", "b-1"}, []string{"a-1"}, 0},
	} {
		f := compare(t, set(t, text(c.from...)), set(t, text(c.to...)))
		require.Len(t, f.Owners, c.unknown)
		require.Len(t, f.Reaches(disruption.DaemonReload), c.unknown, "what can't be told counts")
		for _, o := range f.Owners {
			require.Equal(t, Unknown, o.Verdict)
		}
	}
}

// No value of a field is told: it may be secret.
func TestValuesAreNotTold(t *testing.T) {
	for _, words := range [][]string{append(moved, "secret-one", "secret-two"), append(moved, "secret-one", "secret-two", "path: /etc/a", "path: /etc/bad"), {"secret-one", "secret-two"}} {
		told, err := json.Marshal(compare(t, set(t, base), set(t, base, words...)))
		require.NoError(t, err)
		require.NotContains(t, string(told), "secret")
	}
}

// TestWhatBootstraps has the judge be told what the machines come up with, which decides about versions.
func TestWhatBootstraps(t *testing.T) {
	ask := func(from, to *Set) schema.GroupKind {
		t.Helper()
		j := &judge{}
		_, err := (&Explainer{Judge: j, Now: now}).Compare(t.Context(), from, to)
		require.NoError(t, err)
		require.NotEmpty(t, j.asked)
		return j.asked[len(j.asked)-1].Bootstrap
	}
	_, workers, _ := strings.Cut(base, "---\n")
	const ref = "configRef: {apiGroup: bootstrap.cluster.x-k8s.io, kind: KubeadmConfigTemplate, name: config-1}"
	upgrade := []string{"v1.36.1", "v1.36.2"}
	require.Equal(t, kubeadm, ask(set(t, workers), set(t, workers, upgrade...)))
	require.Equal(t, kubeadm, ask(set(t, base), set(t, base, "v1.36.1\n  rollout", "v1.36.2\n  rollout")), "of a control plane")
	secret := strings.Replace(workers, ref, "dataSecretName: a", 1)
	require.Empty(t, ask(set(t, secret), set(t, secret, upgrade...)))

	rke2 := schema.GroupKind{Group: "bootstrap.cluster.x-k8s.io", Kind: "RKE2Config"}
	other := strings.NewReplacer("kind: KubeadmConfigTemplate", "kind: RKE2ConfigTemplate", "bootstrap.cluster.x-k8s.io/v1beta2", "bootstrap.cluster.x-k8s.io/v1beta1").Replace(workers)
	require.Equal(t, rke2, ask(set(t, other), set(t, other, upgrade...)))

	require.Equal(t, kubeadm, ask(set(t, topology+class), set(t, topology+class, upgrade...)))
	ofClass := strings.ReplaceAll(topology+class, "kind: KubeadmConfigTemplate", "kind: RKE2ConfigTemplate")
	require.Equal(t, rke2, ask(set(t, ofClass), set(t, ofClass, upgrade...)))

	const template = "apiVersion: bootstrap.cluster.x-k8s.io/v1beta1\nkind: RKE2ConfigTemplate\nmetadata: {name: a, namespace: fleet}\nspec: {template: {spec: {files: [one]}}}"
	require.Equal(t, rke2, ask(set(t, template), set(t, template, "one", "two")))
}

// What can't be read is named without its value, which may be secret.
func TestWhatCannotBeReadIsNotTold(t *testing.T) {
	const files = "files: [{path: /etc/cp, content: one}]"
	for field, words := range map[string][]string{
		"spec.kubeadmConfigSpec.files":                             {files, "files: secret"},
		"spec.kubeadmConfigSpec.initConfiguration.bootstrapTokens": {files, "initConfiguration: {bootstrapTokens: [{token: secret}]}"},
		"spec.kubeadmConfigSpec.ntp.enabled":                       {files, "ntp: {enabled: secret}"},
		"spec.rollout.after":                                       {"rollout: {strategy: {rollingUpdate: {maxSurge: 0}}}", "rollout: {after: secret}"},
		"spec.template.metadata.labels":                            {"labels: {pool: a}", "labels: [secret]"},
	} {
		t.Run(field, func(t *testing.T) {
			_, err := (&Explainer{Judge: &judge{}, Now: now}).Compare(t.Context(), set(t, base), set(t, base, words...))
			require.ErrorContains(t, err, " can't be read: "+field+" is not")
			require.NotContains(t, err.Error(), "secret")
		})
	}
}

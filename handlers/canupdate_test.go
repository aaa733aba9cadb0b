package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	smdvalue "sigs.k8s.io/structured-merge-diff/v6/value"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/files"
)

func engine(t testing.TB, allowed ...string) *Engine {
	rules, err := disruption.AllowPaths(allowed)
	require.NoError(t, err)
	reg, err := updaters.NewRegistry(files.New(disruption.Rules{Files: append(disruption.Builtin(), rules...)}))
	require.NoError(t, err)
	return NewEngine(inplace.Always(reg))
}

func recorded(t testing.TB, name string) []byte {
	data, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	require.NoError(t, err)
	return data
}

// TestRecordedRequests gives requests that real managers sent, and then does with the answer what Cluster API does.
func TestRecordedRequests(t *testing.T) {
	for name, tc := range map[string]struct {
		allowed []string
		verdict string
		left    []string
	}{
		"canupdatemachine-file-content": {[]string{"/etc/demo.conf"}, VerdictInPlace, nil},
		"canupdatemachine-mixed": {[]string{"/etc/demo.conf"}, VerdictReplace, []string{
			"spec.backend.inMemory.vm.provisioning.startupDuration",
			`spec.clusterConfiguration.apiServer.extraArgs[name="audit-log-maxage"]`,
			`spec.clusterConfiguration.apiServer.extraArgs[name="profiling"]`,
			`spec.clusterConfiguration.etcd.local.extraArgs[name="quota-backend-bytes"]`,
			"spec.diskSetup.filesystems",
			`spec.joinConfiguration.nodeRegistration.kubeletExtraArgs[name="max-pods"]`,
			`spec.joinConfiguration.nodeRegistration.kubeletExtraArgs[name="eviction-hard"]`,
			"spec.mounts",
			"spec.postKubeadmCommands",
		}},
		"canupdatemachine-users":           {nil, VerdictReplace, []string{`spec.users[name="ops"]`}},
		"canupdatemachine-version":         {nil, VerdictReplace, []string{"spec.version"}},
		"canupdatemachineset-file-removed": {[]string{"/etc/demo.conf"}, VerdictInPlace, nil},
		"canupdatemachineset-files-ntp-users": {nil, VerdictReplace, []string{
			"spec.ntp.enabled", "spec.ntp.servers", `spec.users[name="ops"]`,
		}},
		"canupdatemachineset-version": {nil, VerdictReplace, []string{"spec.version"}},
	} {
		t.Run(name, func(t *testing.T) {
			body := recorded(t, name)
			x, err := engine(t, tc.allowed...).Explain(t.Context(), body)
			require.NoError(t, err)
			require.Equal(t, tc.verdict, x.Verdict)
			var left []string
			for _, f := range x.Fields {
				if !f.Covered {
					left = append(left, f.Path)
					require.NotEmpty(t, f.Reason)
				}
			}
			require.Equal(t, tc.left, left)
			response, err := json.Marshal(x.Response)
			require.NoError(t, err)
			require.Equal(t, tc.verdict == VerdictInPlace, clusterAPIAgrees(t, body, response))
		})
	}
}

func TestPathThatNoRuleNames(t *testing.T) {
	x, err := engine(t).Explain(t.Context(), recorded(t, "canupdatemachine-file-content"))
	require.NoError(t, err)
	require.Equal(t, VerdictReplace, x.Verdict)
	require.Contains(t, x.Fields[0].Reason, "--allow-paths")
}

// clusterAPIAgrees applies the patches of a response and compares, as Cluster API v1.14.2 does in canUpdateMachine and
// canUpdateMachineSet: the patches with its library, Machines by their Go types, the rest as unstructured JSON.
func clusterAPIAgrees(t testing.TB, request, response []byte) bool {
	var req struct {
		Current map[string]json.RawMessage `json:"current"`
		Desired map[string]json.RawMessage `json:"desired"`
	}
	require.NoError(t, json.Unmarshal(request, &req))
	var patches map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(response, &patches))
	for name, current := range req.Current {
		var p runtimehooksv1.Patch
		if raw, ok := patches[name+"Patch"]; ok {
			require.NoError(t, json.Unmarshal(raw, &p))
			require.Equal(t, runtimehooksv1.JSONPatchType, p.PatchType)
			decoded, err := jsonpatch.DecodePatch(p.Patch)
			require.NoError(t, err)
			current, err = decoded.Apply(current)
			require.NoError(t, err)
		}
		if !sameSpec(t, name, current, req.Desired[name]) {
			return false
		}
	}
	return true
}

func sameSpec(t testing.TB, name string, a, b []byte) bool {
	switch name {
	case "machine":
		var x, y clusterv1.Machine
		require.NoError(t, json.Unmarshal(a, &x))
		require.NoError(t, json.Unmarshal(b, &y))
		return x.Spec.Version == y.Spec.Version && x.Spec.FailureDomain == y.Spec.FailureDomain
	case "machineSet":
		var x, y clusterv1.MachineSet
		require.NoError(t, json.Unmarshal(a, &x))
		require.NoError(t, json.Unmarshal(b, &y))
		return x.Spec.Template.Spec.Version == y.Spec.Template.Spec.Version
	default:
		x, err := fieldset.Decode(a)
		require.NoError(t, err)
		y, err := fieldset.Decode(b)
		require.NoError(t, err)
		return cmp.Equal(x.(map[string]any)["spec"], y.(map[string]any)["spec"])
	}
}

// edit changes a recorded request.
func edit(t testing.TB, name string, change func(map[string]any)) []byte {
	var m map[string]any
	require.NoError(t, json.Unmarshal(recorded(t, name), &m))
	change(m)
	out, err := json.Marshal(m)
	require.NoError(t, err)
	return out
}

func side(m map[string]any, name string) map[string]any { return m[name].(map[string]any) }

func TestFailures(t *testing.T) {
	const name = "canupdatemachine-file-content"
	for title, tc := range map[string]struct {
		body []byte
		want string
	}{
		"nothing":                {nil, "is not valid JSON"},
		"no JSON":                {[]byte("{"), "is not valid JSON: unexpected end"},
		"no UTF-8":               {[]byte("{\"kind\":\"\xff\"}"), "is not valid JSON: it is not UTF-8"},
		"another JSON type":      {[]byte(`[]`), "the request is not a JSON object"},
		"a field of another":     {[]byte(`{"kind":1}`), `field kind is "1"`},
		"no kind":                {[]byte(`{}`), "field kind"},
		"another kind":           {edit(t, name, func(m map[string]any) { m["kind"] = "UpdateMachineRequest" }), "field kind"},
		"another version":        {edit(t, name, func(m map[string]any) { m["apiVersion"] = "hooks.runtime.cluster.x-k8s.io/v9" }), "field apiVersion"},
		"no current":             {edit(t, name, func(m map[string]any) { delete(m, "current") }), "field current.machine is required"},
		"no desired machine":     {edit(t, name, func(m map[string]any) { delete(side(m, "desired"), "machine") }), "field desired.machine is required"},
		"no infra machine":       {edit(t, name, func(m map[string]any) { side(m, "current")["infrastructureMachine"] = nil }), "field current.infrastructureMachine is required"},
		"a machine that is none": {edit(t, name, func(m map[string]any) { side(m, "current")["machine"] = "x" }), "field current.machine is not a JSON object"},
		"a machine of a kind": {
			edit(t, name, func(m map[string]any) { side(side(m, "current"), "machine")["kind"] = "Pod" }), `field current.machine.kind is "Pod"`,
		},
		"an object without kind": {
			edit(t, name, func(m map[string]any) { delete(side(side(m, "desired"), "bootstrapConfig"), "kind") }), "field desired.bootstrapConfig has no kind",
		},
		"a bootstrap config on one side": {
			edit(t, name, func(m map[string]any) { delete(side(m, "desired"), "bootstrapConfig") }), "field bootstrapConfig is in one of current and desired only",
		},
	} {
		t.Run(title, func(t *testing.T) {
			h := NewCanUpdate(engine(t), NoPolicies{}, NewMetrics(prometheus.NewRegistry()), "")
			r := h.Machine(t.Context(), tc.body)
			require.Equal(t, runtimehooksv1.ResponseStatusFailure, r.GetStatus())
			require.Contains(t, r.GetMessage(), tc.want)
		})
	}
}

func TestWithoutBootstrapConfig(t *testing.T) {
	body := edit(t, "canupdatemachine-file-content", func(m map[string]any) {
		delete(side(m, "current"), "bootstrapConfig")
		delete(side(m, "desired"), "bootstrapConfig")
	})
	x, err := engine(t).Explain(t.Context(), body)
	require.NoError(t, err)
	require.Equal(t, VerdictInPlace, x.Verdict)
	require.Empty(t, x.Fields)
}

// TestExplainReadsNoDeeperThanHooks: a file that would overflow the stack is an error.
func TestExplainReadsNoDeeperThanHooks(t *testing.T) {
	for name, request := range map[string]string{
		"JSON, deep":    `{"kind":"CanUpdateMachineRequest","current":` + strings.Repeat("[", 101) + strings.Repeat("]", 101) + "}",
		"JSON, deeper":  strings.Repeat("[", 1<<20),
		"YAML, deeper":  strings.Repeat("- ", 1<<16) + "a",
		"YAML, aliases": "a: &a [x,x]\nb: &b [*a,*a]\nc: " + strings.Repeat("[*b,", 200) + "x" + strings.Repeat("]", 200),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := engine(t).Explain(t.Context(), []byte(request))
			require.Error(t, err)
		})
	}
}

func TestFieldOfANewerAPI(t *testing.T) {
	body := edit(t, "canupdatemachine-file-content", func(m map[string]any) {
		side(side(side(m, "desired"), "machine"), "spec")["addedLater"] = map[string]any{"x": 1}
	})
	x, err := engine(t, "/etc/demo.conf").Explain(t.Context(), body)
	require.NoError(t, err)
	require.Equal(t, VerdictReplace, x.Verdict, "a field that this program does not know is a difference all the same")
	require.Equal(t, "spec.addedLater.x", x.Fields[0].Path)
}

func TestFieldsThatAreNotCompared(t *testing.T) {
	body := edit(t, "canupdatemachine-file-content", func(m map[string]any) {
		spec := side(side(side(m, "desired"), "machine"), "spec")
		spec["providerID"], spec["minReadySeconds"] = "other", 5
		spec["deletion"] = map[string]any{"nodeDrainTimeoutSeconds": 1}
	})
	x, err := engine(t, "/etc/demo.conf").Explain(t.Context(), body)
	require.NoError(t, err)
	require.Equal(t, VerdictInPlace, x.Verdict)
}

// broken is an updater that does not do what it promises.
type broken struct {
	claim updaters.Claim
	err   error
}

func (broken) Name() string { return "broken" }

func (b broken) Claim(context.Context, fieldset.Change) (updaters.Claim, error) {
	return b.claim, b.err
}

func TestUpdaterThatCanNotJudgeReplacesNothing(t *testing.T) {
	for name, u := range map[string]broken{
		"an error":                    {err: errors.New("no idea")},
		"a field that did not change": {claim: updaters.Claim{Covered: []updaters.Covered{{Field: fieldset.Field{Object: fieldset.Machine}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			reg, err := updaters.NewRegistry(u)
			require.NoError(t, err)
			r := NewCanUpdate(NewEngine(inplace.Always(reg)), NoPolicies{}, NewMetrics(prometheus.NewRegistry()), "").Machine(t.Context(), recorded(t, "canupdatemachine-file-content"))
			require.Equal(t, runtimehooksv1.ResponseStatusFailure, r.GetStatus())
			require.Contains(t, r.GetMessage(), "broken")
		})
	}
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	h := NewCanUpdate(engine(t, "/etc/demo.conf"), NoPolicies{}, NewMetrics(reg), "")
	h.Machine(t.Context(), recorded(t, "canupdatemachine-file-content"))
	h.Machine(t.Context(), recorded(t, "canupdatemachine-users"))
	h.MachineSet(t.Context(), recorded(t, "canupdatemachineset-version"))
	h.MachineSet(t.Context(), nil)
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP refit_can_update_decisions_total CanUpdate hooks answered, by hook and by what Cluster API does then: InPlace, Replace, Withheld (by a policy; it asks again), or Error (it asks again).
# TYPE refit_can_update_decisions_total counter
refit_can_update_decisions_total{hook="CanUpdateMachine",outcome="Error"} 0
refit_can_update_decisions_total{hook="CanUpdateMachine",outcome="InPlace"} 1
refit_can_update_decisions_total{hook="CanUpdateMachine",outcome="Replace"} 1
refit_can_update_decisions_total{hook="CanUpdateMachineSet",outcome="Error"} 1
refit_can_update_decisions_total{hook="CanUpdateMachineSet",outcome="Replace"} 1
# HELP refit_can_update_fields_left_total Changed fields that could not be updated in place, by hook, object and field. List items are left out of the field. A field that refit does not know is other, and what is below one that it knows is shown as that one with .….
# TYPE refit_can_update_fields_left_total counter
refit_can_update_fields_left_total{field="spec.users[]",hook="CanUpdateMachine",object="bootstrapConfig"} 1
refit_can_update_fields_left_total{field="spec.version",hook="CanUpdateMachineSet",object="machine"} 1
`)))
}

// TestLabelsOfFields: only what refit knows is a value of a label, since anybody can make names up.
func TestLabelsOfFields(t *testing.T) {
	field := func(object fieldset.Object, names ...string) fieldset.Field {
		f := fieldset.Field{Object: object}
		for _, name := range names {
			e := fieldpath.PathElement{FieldName: &name}
			if name == "[]" {
				e = fieldpath.PathElement{Key: &smdvalue.FieldList{{Name: "name", Value: smdvalue.NewValueInterface("x")}}}
			}
			f.Path = append(f.Path, e)
		}
		return f
	}
	byKubeadm := inplace.Subject{Bootstrap: bootstrapv1.GroupVersion.WithKind("KubeadmConfig").GroupKind()}.MadeByKubeadm()
	for want, all := range map[string][]fieldset.Field{
		"spec": {field(fieldset.InfrastructureMachine), field(fieldset.BootstrapConfig)},
		"other": {
			field(fieldset.InfrastructureMachine, "instanceType"), field(fieldset.InfrastructureMachine, "additionalTags", "build-4711"),
			field(fieldset.BootstrapConfig, "a", "b"), field(fieldset.Machine, "addedLater"), field(fieldset.BootstrapConfig, ""),
			field(fieldset.BootstrapConfig, "*"),
		},
		"spec.version":               {field(fieldset.Machine, "version")},
		"spec.ami":                   {field(fieldset.InfrastructureMachine, "ami")},
		"spec.ami.…":                 {field(fieldset.InfrastructureMachine, "ami", "id")},
		"spec.files[].content":       {field(fieldset.BootstrapConfig, "files", "[]", "content")},
		"spec.files[].contentFrom.…": {field(fieldset.BootstrapConfig, "files", "[]", "contentFrom", "vault")},
		"spec.files[].…":             {field(fieldset.BootstrapConfig, "files", "[]", "k1"), field(fieldset.BootstrapConfig, "files", "[]", "[]")},
		"spec.clusterConfiguration.featureGates.…": {field(fieldset.BootstrapConfig, "clusterConfiguration", "featureGates", "Any")},
	} {
		for _, f := range all {
			require.Equal(t, want, labelOf(f, byKubeadm), "%s of the %s", f, f.Object)
		}
	}
	labelled := field(fieldset.BootstrapConfig, "files")
	require.Equal(t, "other", labelOf(labelled, inplace.Subject{Bootstrap: schema.GroupKind{Group: bootstrapv1.GroupVersion.Group, Kind: "RKE2Config"}}.MadeByKubeadm()))
}

// TestMadeUpFieldsAddNoSeries asks with fields that nobody knows, others each time.
func TestMadeUpFieldsAddNoSeries(t *testing.T) {
	reg := prometheus.NewRegistry()
	h := NewCanUpdate(engine(t), NoPolicies{}, NewMetrics(reg), "")
	for round := range 3 {
		body := edit(t, "canupdatemachine-file-content", func(m map[string]any) {
			for _, object := range []string{"machine", "infrastructureMachine", "bootstrapConfig"} {
				spec := side(side(side(m, "desired"), object), "spec")
				for i := range 80 {
					spec[fmt.Sprintf("made-up-%d-%d", round, i)] = 1
				}
				spec["files"] = []any{map[string]any{"path": "/etc/a", fmt.Sprint("made-up-", round): 1}}
			}
		})
		require.Equal(t, runtimehooksv1.ResponseStatusSuccess, h.Machine(t.Context(), body).GetStatus())
		n, err := testutil.GatherAndCount(reg, "refit_can_update_fields_left_total")
		require.NoError(t, err)
		require.LessOrEqual(t, n, 5)
	}
}

// FuzzRequest takes any body: the answer has a status, and a Success is one that Cluster API can apply.
func FuzzRequest(f *testing.F) {
	for _, name := range []string{"canupdatemachine-file-content", "canupdatemachine-mixed", "canupdatemachineset-file-removed", "updatemachine-worker"} {
		f.Add(recorded(f, name))
	}
	f.Add([]byte(`{"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1","kind":"CanUpdateMachineRequest","current":{},"desired":{}}`))
	e := engine(f, "/etc")
	metrics := NewMetrics(prometheus.NewRegistry())
	update := NewUpdate(updatesFunc(func(string, string, string) (inplace.Progress, error) { return inplace.Progress{}, nil }), "")
	f.Fuzz(func(t *testing.T, body []byte) {
		h := NewCanUpdate(e, NoPolicies{}, metrics, "")
		for _, handle := range []func(context.Context, []byte) runtimehooksv1.ResponseObject{h.Machine, h.MachineSet, update.Machine} {
			r := handle(t.Context(), body)
			require.Contains(t, []runtimehooksv1.ResponseStatus{runtimehooksv1.ResponseStatusSuccess, runtimehooksv1.ResponseStatusFailure}, r.GetStatus())
			require.NotContains(t, r.GetMessage(), "please report this")
		}
	})
}

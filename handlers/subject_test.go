package handlers

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/files"
)

// asked keeps for which machines updaters were asked.
type asked struct {
	subjects []inplace.Subject
	registry *updaters.Registry
	err      error
}

func (a *asked) For(_ context.Context, s inplace.Subject) (*updaters.Registry, error) {
	a.subjects = append(a.subjects, s)
	return a.registry, a.err
}

func TestUpdatersAreAskedForTheMachine(t *testing.T) {
	registry, err := updaters.NewRegistry()
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		body []byte
		want inplace.Subject
	}{
		"a Machine": {
			edit(t, "canupdatemachine-file-content", func(m map[string]any) {
				side(side(side(m, "current"), "machine"), "metadata")["labels"] = map[string]any{clusterv1.MachineControlPlaneLabel: "", "pool": "a"}
				side(side(side(m, "current"), "machine"), "spec")["clusterName"] = "c9"
				side(side(side(m, "desired"), "machine"), "metadata")["labels"] = map[string]any{"pool": "b"}
			}),
			inplace.Subject{Namespace: "lab", Cluster: "c9", Labels: map[string]string{clusterv1.MachineControlPlaneLabel: "", "pool": "a"}},
		},
		"a Machine whose cluster only its labels tell": {
			edit(t, "canupdatemachine-file-content", func(m map[string]any) {
				side(side(side(m, "current"), "machine"), "metadata")["labels"] = map[string]any{clusterv1.ClusterNameLabel: "c8"}
				delete(side(side(side(m, "current"), "machine"), "spec"), "clusterName")
			}),
			inplace.Subject{Namespace: "lab", Cluster: "c8", Labels: map[string]string{clusterv1.ClusterNameLabel: "c8"}},
		},
		"a MachineSet, by what its Machines get": {
			edit(t, "canupdatemachineset-file-removed", func(m map[string]any) {
				set := side(side(m, "current"), "machineSet")
				side(set, "metadata")["labels"] = map[string]any{"of": "the set"}
				template := side(side(set, "spec"), "template")
				template["metadata"] = map[string]any{"labels": map[string]any{"of": "its machines"}}
				side(template, "spec")["clusterName"] = "c7"
			}),
			inplace.Subject{Namespace: "lab", Cluster: "c7", Labels: map[string]string{"of": "its machines"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := &asked{registry: registry}
			_, err := NewEngine(a).Explain(t.Context(), tc.body)
			require.NoError(t, err)
			tc.want.Version = "v1.36.0"
			tc.want.Bootstrap = schema.GroupKind{Group: "bootstrap.cluster.x-k8s.io", Kind: "KubeadmConfig"}
			require.Equal(t, []inplace.Subject{tc.want}, a.subjects)
		})
	}
}

func TestWhatBootstrapsAMachine(t *testing.T) {
	for name, tc := range map[string]struct {
		config object
		want   schema.GroupKind
	}{
		"a KubeadmConfig": {object{raw: "{}", apiVersion: "bootstrap.cluster.x-k8s.io/v1beta1", kind: "KubeadmConfig"}, schema.GroupKind{Group: "bootstrap.cluster.x-k8s.io", Kind: "KubeadmConfig"}},
		"a template":      {object{raw: "{}", apiVersion: "bootstrap.cluster.x-k8s.io/v1beta2", kind: "RKE2ConfigTemplate"}, schema.GroupKind{Group: "bootstrap.cluster.x-k8s.io", Kind: "RKE2Config"}},
		"nothing":         {object{}, schema.GroupKind{}},
		"one of the core": {object{raw: "{}", apiVersion: "v1", kind: "Secret"}, schema.GroupKind{Kind: "Secret"}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, bootstrapOf(tc.config)) })
	}
}

func TestUpdatersThatCanNotBeToldReplaceNothing(t *testing.T) {
	h := NewCanUpdate(NewEngine(&asked{err: errors.New("policies are not read yet")}), NoPolicies{}, NewMetrics(prometheus.NewRegistry()), "")
	for _, r := range []runtimehooksv1.ResponseObject{
		h.Machine(t.Context(), recorded(t, "canupdatemachine-file-content")), h.MachineSet(t.Context(), recorded(t, "canupdatemachineset-file-removed")),
	} {
		require.Equal(t, runtimehooksv1.ResponseStatusFailure, r.GetStatus())
		require.Contains(t, r.GetMessage(), "not read yet")
	}
}

func TestNobodyIsAskedAboutNothing(t *testing.T) {
	body := edit(t, "canupdatemachine-file-content", func(m map[string]any) { m["desired"] = m["current"] })
	a := &asked{err: errors.New("asked")}
	x, err := NewEngine(a).Explain(t.Context(), body)
	require.NoError(t, err)
	require.Empty(t, a.subjects)
	require.Equal(t, VerdictInPlace, x.Verdict)
	require.Equal(t, disruption.None, x.Disruption)
	require.Empty(t, x.Actions)
}

func TestLabelsThatCanNotBeRead(t *testing.T) {
	for name, labels := range map[string]any{"a list": []any{"a"}, "a number": map[string]any{"a": 1}} {
		t.Run(name, func(t *testing.T) {
			body := edit(t, "canupdatemachine-file-content", func(m map[string]any) {
				side(side(side(m, "current"), "machine"), "metadata")["labels"] = labels
			})
			_, err := NewEngine(&asked{}).Explain(t.Context(), body)
			require.EqualError(t, err, "the request's field the machine's labels can't be read")
		})
	}
}

func TestExplainedDisruption(t *testing.T) {
	path := func(p string) func(map[string]any) {
		return func(m map[string]any) {
			for _, s := range []string{"current", "desired"} {
				files, _ := side(side(side(m, s), "bootstrapConfig"), "spec")["files"].([]any)
				files[0].(map[string]any)["path"] = p
			}
		}
	}
	rules := disruption.Rules{Files: disruption.Table{
		{Path: "/etc/none", Actions: []disruption.Action{{Type: disruption.None}}},
		{Path: "/etc/two", Actions: []disruption.Action{{Type: disruption.Restart, Unit: "a.service"}, {Type: disruption.Drain}}},
	}}
	registry, err := updaters.NewRegistry(files.New(rules))
	require.NoError(t, err)
	for p, want := range map[string]struct {
		class   disruption.ActionType
		actions []string
		verdict string
	}{
		"/etc/none":  {disruption.None, []string{"None"}, VerdictInPlace},
		"/etc/two":   {disruption.Drain, []string{"Drain", "Restart a.service"}, VerdictInPlace},
		"/etc/other": {disruption.Replace, []string{}, VerdictReplace},
	} {
		t.Run(p, func(t *testing.T) {
			x, err := NewEngine(inplace.Always(registry)).Explain(t.Context(), edit(t, "canupdatemachine-file-content", path(p)))
			require.NoError(t, err)
			require.Equal(t, want.verdict, x.Verdict)
			require.Equal(t, want.class, x.Disruption)
			require.Equal(t, want.class, x.Fields[0].Disruption)
			require.Equal(t, want.actions, x.Actions)
		})
	}
}

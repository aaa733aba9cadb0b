package handlers

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/controlplane"
	"github.com/capi-refit/refit/updaters/files"
	"github.com/capi-refit/refit/updaters/kubelet"
	"github.com/capi-refit/refit/updaters/ntp"
	"github.com/capi-refit/refit/updaters/users"
	"github.com/capi-refit/refit/updaters/version"
)

// everyVersion is a source that has all.
type everyVersion struct{}

func (everyVersion) For(string) (*node.Source, error) { return &node.Source{}, nil }

// noneForAll is an engine by whose rules nothing takes anything.
func noneForAll(t *testing.T) *Engine {
	none := []disruption.Action{{Type: disruption.None}}
	rules := disruption.Rules{Files: disruption.Table{{Path: "/etc", Actions: none}}, Domains: map[disruption.Domain][]disruption.Action{}}
	for d := range disruption.BuiltinRules().Domains {
		rules.Domains[d] = none
	}
	find := func(context.Context) (version.Source, error) { return everyVersion{}, nil }
	reg, err := updaters.NewRegistry(files.New(rules), users.New(rules), ntp.New(rules), kubelet.New(rules),
		controlplane.New(rules).Of("v1.36.3"), version.New(rules, find))
	require.NoError(t, err)
	return NewEngine(inplace.Always(reg))
}

// TestNoneDoesNotMakeAChangeQuiet: the hooks and explain know, before a node is asked, what disturbs it whatever a policy says.
func TestNoneDoesNotMakeAChangeQuiet(t *testing.T) {
	spec := func(m map[string]any) map[string]any {
		return side(side(side(m, "desired"), "bootstrapConfig"), "spec")
	}
	file := func(path string) func(map[string]any) {
		return func(m map[string]any) {
			spec(m)["files"] = append(spec(m)["files"].([]any), map[string]any{"path": path, "content": "new", "owner": "root:root", "permissions": "0644"})
		}
	}
	arguments := []any{map[string]any{"name": "v", "value": "2"}}
	for name, test := range map[string]struct {
		change   func(m map[string]any)
		disturbs bool
	}{
		"a file":                    {file("/etc/app.conf"), false},
		"the manifest of a pod":     {file("/etc/kubernetes/manifests/app.yaml"), true},
		"a user":                    {func(m map[string]any) { spec(m)["users"] = []any{map[string]any{"name": "a"}} }, false},
		"time servers":              {func(m map[string]any) { spec(m)["ntp"] = map[string]any{"servers": []any{"a.example"}} }, false},
		"time switched on":          {func(m map[string]any) { spec(m)["ntp"] = map[string]any{"enabled": true} }, true},
		"the kubelet's arguments":   {func(m map[string]any) { kubeletArguments(spec(m), arguments) }, false},
		"the control plane":         {func(m map[string]any) { apiServerArguments(spec(m), arguments) }, true},
		"the version of Kubernetes": {func(m map[string]any) { bump(m) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			e := noneForAll(t)
			request := edit(t, "canupdatemachine-version", func(m map[string]any) {
				keep(m)
				test.change(m)
			})
			raw, err := decodeRequest(request, canUpdateMachineKind)
			require.NoError(t, err)
			v, err := e.judge(t.Context(), raw, machineLayout)
			require.NoError(t, err)
			require.NotEmpty(t, v.decision)
			require.True(t, v.decision.InPlace(), v.told.left)
			p, err := v.proposal()
			require.NoError(t, err)
			require.Equal(t, test.disturbs, p.Material)

			x, err := e.Explain(t.Context(), request)
			require.NoError(t, err)
			require.Equal(t, []string{"None"}, x.Actions)
			want := disruption.None
			if test.disturbs {
				want = disruption.Restart
			}
			require.Equal(t, want, x.Disruption)
		})
	}
}

// keep takes the change of the version out of a request.
func keep(m map[string]any) {
	side(side(side(m, "desired"), "machine"), "spec")["version"] = side(side(side(m, "current"), "machine"), "spec")["version"]
}

func bump(m map[string]any) {
	side(side(side(m, "current"), "machine"), "spec")["version"] = "v1.36.2"
	side(side(side(m, "desired"), "machine"), "spec")["version"] = "v1.36.3"
}

func kubeletArguments(spec map[string]any, arguments []any) {
	side(side(spec, "joinConfiguration"), "nodeRegistration")["kubeletExtraArgs"] = arguments
}

func apiServerArguments(spec map[string]any, arguments []any) {
	spec["clusterConfiguration"] = map[string]any{"apiServer": map[string]any{"extraArgs": arguments}}
}

package handlers

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/schedule"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/files"
	"github.com/capi-refit/refit/updaters/image"
)

// TestClassOfAProposal: policies may be open for some changes only, and the hooks tell them which this is.
func TestClassOfAProposal(t *testing.T) {
	restart := disruption.Rules{Files: disruption.Table{{Path: "/etc/app", Actions: []disruption.Action{{Type: disruption.Restart, Unit: "app.service"}}}}}
	reg, err := updaters.NewRegistry(files.New(restart), image.New(nil))
	require.NoError(t, err)
	machine := func(m map[string]any, of string) map[string]any {
		return side(side(side(m, of), "machine"), "spec")
	}
	infra := func(m map[string]any, of string) map[string]any {
		return side(side(side(m, of), "infrastructureMachine"), "spec")
	}
	file := func(m map[string]any) {
		spec := side(side(side(m, "desired"), "bootstrapConfig"), "spec")
		spec["files"] = append(spec["files"].([]any), map[string]any{"path": "/etc/app/a", "content": "new", "owner": "root:root", "permissions": "0644"})
	}
	boot := func(m map[string]any) {
		for at, name := range map[string]string{"current": "a", "desired": "b"} {
			infra(m, at)["backend"] = map[string]any{"docker": map[string]any{"customImage": name}}
		}
	}
	// acme is a provider of which nobody knows what its machines boot from.
	acme := func(m map[string]any) {
		for at, name := range map[string]string{"current": "a", "desired": "b"} {
			side(side(m, at), "infrastructureMachine")["kind"] = "AcmeMachine"
			infra(m, at)["rootDisk"] = name
		}
	}
	config, patch, minor, images := schedule.ConfigurationKind, schedule.PatchVersionKind, schedule.MinorVersionKind, schedule.ImageKind
	for name, tc := range map[string]struct {
		change func(m map[string]any)
		want   schedule.Class
	}{
		"a file":                {func(m map[string]any) { keep(m); file(m) }, schedule.Class{Kinds: []schedule.Kind{config}, Disruption: "Restart"}},
		"a patch, not in place": {func(map[string]any) {}, schedule.Class{Kinds: []schedule.Kind{patch}, Disruption: "Replace"}},
		"a minor": {func(m map[string]any) {
			machine(m, "current")["version"], machine(m, "desired")["version"] = "v1.35.4", "v1.36.0"
		}, schedule.Class{Kinds: []schedule.Kind{minor}, Disruption: "Replace"}},
		"a version that is no longer": {func(m map[string]any) { delete(machine(m, "desired"), "version") }, schedule.Class{Kinds: []schedule.Kind{patch, minor}, Disruption: "Replace"}},
		"an image":                    {func(m map[string]any) { keep(m); boot(m) }, schedule.Class{Kinds: []schedule.Kind{images}, Disruption: "Replace"}},
		"what may be an image":        {func(m map[string]any) { keep(m); acme(m) }, schedule.Class{Kinds: []schedule.Kind{images, config}, Disruption: "Replace"}},
		"all at once":                 {func(m map[string]any) { file(m); boot(m) }, schedule.Class{Kinds: []schedule.Kind{patch, images, config}, Disruption: "Replace"}},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := decodeRequest(edit(t, "canupdatemachine-version", tc.change), canUpdateMachineKind)
			require.NoError(t, err)
			v, err := NewEngine(inplace.Always(reg)).judge(t.Context(), raw, machineLayout)
			require.NoError(t, err)
			p, err := v.proposal()
			require.NoError(t, err)
			require.ElementsMatch(t, tc.want.Kinds, p.Class.Kinds)
			require.Equal(t, tc.want.Disruption, p.Class.Disruption)
		})
	}
}

// TestAnnotationsOfAProposal: a change may say itself when it is wanted, in what Machines are to have.
func TestAnnotationsOfAProposal(t *testing.T) {
	reg, err := updaters.NewRegistry(image.New(nil))
	require.NoError(t, err)
	later := map[string]any{"capi-refit.dev/not-before": "2026-12-01T06:00:00Z"}
	annotated := func(of map[string]any) {
		if of["metadata"] == nil {
			of["metadata"] = map[string]any{}
		}
		side(of, "metadata")["annotations"] = later
	}
	for name, tc := range map[string]struct {
		kind   string
		layout layout
		change func(map[string]any)
	}{
		"canupdatemachine-version": {canUpdateMachineKind, machineLayout, func(m map[string]any) { annotated(side(side(m, "desired"), "machine")) }},
		"canupdatemachineset-version": {canUpdateMachineSetKind, machineSetLayout, func(m map[string]any) {
			annotated(side(side(side(side(m, "desired"), "machineSet"), "spec"), "template"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := decodeRequest(edit(t, name, tc.change), tc.kind)
			require.NoError(t, err)
			v, err := NewEngine(inplace.Always(reg)).judge(t.Context(), raw, tc.layout)
			require.NoError(t, err)
			p, err := v.proposal()
			require.NoError(t, err)
			require.Equal(t, map[string]string{"capi-refit.dev/not-before": "2026-12-01T06:00:00Z"}, p.Annotations)
		})
	}
}

package v1alpha1

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/capi-refit/refit/internal/disruption"
)

const ndpFile = "../../config/crd/bases/capi-refit.dev_nodedisruptionpolicies.yaml"

// many returns a flow list of n entries.
func many(n int, format string) string {
	entries := make([]string, n)
	for i := range entries {
		entries[i] = fmt.Sprintf(format, i)
	}
	return "[" + strings.Join(entries, ", ") + "]"
}

func TestNodeDisruptionPolicyIsValidated(t *testing.T) {
	definition := crd(t, ndpFile)
	file := func(rest string) string { return `{files: [{path: /etc/app, ` + rest + `}]}` }
	actions := func(list string) string { return file(`actions: ` + list) }
	path := func(p string) string { return `{files: [{path: ` + p + `, actions: [{type: None}]}]}` }
	const inert = `group: infrastructure.cluster.x-k8s.io, kind: AWSMachine`
	for name, test := range map[string]struct{ spec, want string }{
		"nothing":              {`{}`, ""},
		"every domain":         {`{sshKeys: {actions: [{type: None}]}, users: {actions: [{type: None}]}, ntp: {actions: [{type: Reload, unit: chrony.service}]}, kubeletArguments: {actions: [{type: Drain}, {type: Restart, unit: kubelet.service}]}, controlPlane: {actions: [{type: StaticPodRefresh, timeout: 10m}]}, taints: {actions: [{type: Replace}]}, kubernetesVersion: {actions: [{type: Reboot}]}}`, ""},
		"every word":           {`{onFailure: Reboot, drift: Repair, futureOnlyFields: Allow}`, ""},
		"a drain and more":     {actions(`[{type: DaemonReload}, {type: TrustStoreUpdate}, {type: Reload, unit: a.service}, {type: Restart, unit: "b:c.socket"}, {type: Drain, timeout: 1h}]`), ""},
		"rebuilt, then booted": {actions(`[{type: RebuildInitramfs, timeout: 20m}, {type: RebuildBootloader}, {type: Reboot}]`), ""},
		"a new network":        {actions(`[{type: Drain}, {type: NetworkReload, timeout: 3m}]`), ""},
		"50 of 10":             {`{files: ` + many(50, `{path: /etc/f%d, actions: `+many(10, `{type: Restart, unit: u%d.service}`)+`}`) + `, units: ` + many(50, `{name: u%d.service, actions: [{type: None}]}`) + `}`, ""},
		"a file of dots":       {path(`/etc/..data/...`), ""},
		"tags":                 {`{inertFields: [{` + inert + `, paths: [additionalTags, backend.docker.customImage]}]}`, ""},
		"two kinds":            {`{inertFields: [{` + inert + `, paths: [a]}, {group: infrastructure.cluster.x-k8s.io, kind: GCPMachine, paths: [a]}]}`, ""},
		"a timeout for all":    {file(`timeout: 90s, actions: [{type: Drain}]`), ""},

		"a duplicate path":                       {`{files: [{path: /etc/app, actions: [{type: None}]}, {path: /etc/app, actions: [{type: Drain}]}]}`, "Duplicate value"},
		"a duplicate unit":                       {`{units: [{name: a.service, actions: [{type: None}]}, {name: a.service, actions: [{type: Drain}]}]}`, "Duplicate value"},
		"Reload without unit":                    {actions(`[{type: Reload}]`), "unit is needed"},
		"Restart without unit":                   {actions(`[{type: Restart}]`), "unit is needed"},
		"Drain of a unit":                        {actions(`[{type: Drain, unit: a.service}]`), "not possible for other actions"},
		"Reboot beside another":                  {actions(`[{type: Reboot}, {type: Drain}]`), "stand alone"},
		"None beside another":                    {actions(`[{type: Drain}, {type: None}]`), "stand alone"},
		"Replace beside another":                 {actions(`[{type: Restart, unit: a.service}, {type: Replace}]`), "stand alone"},
		"two Reboots and more":                   {actions(`[{type: Reboot}, {type: RebuildBootloader}, {type: Reboot}]`), "stand alone"},
		"a network of a unit":                    {actions(`[{type: NetworkReload, unit: a.service}]`), "not possible for other actions"},
		"two Reboots":                            {actions(`[{type: Reboot}, {type: Reboot}]`), "stand alone"},
		"stand alone in a domain":                {`{taints: {actions: [{type: Reboot}, {type: Drain}]}}`, "stand alone"},
		"a unit .service":                        {actions(`[{type: Reload, unit: .service}]`), "unit"},
		"an unknown suffix":                      {actions(`[{type: Reload, unit: a.unknown}]`), "unit"},
		"no suffix":                              {actions(`[{type: Reload, unit: a}]`), "unit"},
		"a unit with a space":                    {actions(`[{type: Reload, unit: "a b.service"}]`), "unit"},
		"a template":                             {actions(`[{type: Reload, unit: "a@.service"}]`), "unit"},
		"a long unit":                            {actions(`[{type: Reload, unit: ` + strings.Repeat("a", 248) + `.service}]`), "unit: Too long"},
		"a unit by .service":                     {`{units: [{name: .service, actions: [{type: None}]}]}`, "units[0].name"},
		"a unit by unknown suffix":               {`{units: [{name: a.unknown, actions: [{type: None}]}]}`, "units[0].name"},
		"an unknown action":                      {actions(`[{type: Explode}]`), "Unsupported value"},
		"no actions":                             {actions(`[]`), "should have at least 1"},
		"no word of actions":                     {`{files: [{path: /etc/app}]}`, "actions: Required value"},
		"eleven actions":                         {actions(many(11, `{type: Restart, unit: u%d.service}`)), "Too many"},
		"51 files":                               {`{files: ` + many(51, `{path: /etc/f%d, actions: [{type: None}]}`) + `}`, "Too many"},
		"51 units":                               {`{units: ` + many(51, `{name: u%d.service, actions: [{type: None}]}`) + `}`, "Too many"},
		"a relative path":                        {path(`etc/app`), "path"},
		"the root":                               {path(`/`), "path"},
		"a slash at the end":                     {path(`/etc/app/`), "neither // nor"},
		"two slashes":                            {path(`/etc//app`), "neither // nor"},
		"a dot":                                  {path(`/etc/./app`), "neither . nor"},
		"the directory above":                    {path(`/etc/app/..`), "neither . nor"},
		"a path with a NUL":                      {path(`"/etc/a\0"`), "path"},
		"no time at all":                         {actions(`[{type: Drain, timeout: 0s}]`), "longer than nothing"},
		"more than an hour":                      {actions(`[{type: Drain, timeout: 61m}]`), "at most 1h"},
		"a timeout out of range":                 {actions(`[{type: Drain, timeout: 99999999999999999h}]`), "timeout"},
		"a timeout without unit":                 {actions(`[{type: Drain, timeout: "10"}]`), "timeout"},
		"a timeout of None":                      {actions(`[{type: None, timeout: 1s}]`), "takes no time"},
		"an hour more for all":                   {file(`timeout: 2h, actions: [{type: Drain}]`), "at most 1h"},
		"a Restart of a socket, a timer, a path": {actions(`[{type: Restart, unit: a.socket}, {type: Restart, unit: a.timer}, {type: Restart, unit: a.path}]`), ""},
		"a Reload of a mount":                    {actions(`[{type: Reload, unit: var.mount}]`), ""},
		"a Reload of the root":                   {actions(`[{type: Reload, unit: "-.mount"}]`), "whole system"},
		"a Restart of a target of one's own":     {actions(`[{type: Restart, unit: app.target}]`), "what uses others is stopped with them"},
		"a Restart of the data of etcd":          {actions(`[{type: Restart, unit: var-lib-etcd.mount}]`), "what uses others is stopped with them"},
		"a Reload of a slice":                    {actions(`[{type: Reload, unit: user-0.slice}]`), "what uses others is stopped with them"},
		"a Reload of the message bus":            {actions(`[{type: Reload, unit: dbus.service}]`), ""},
		"a unit that is matched, and not hit":    {`{units: [{name: system.slice, actions: [{type: DaemonReload}]}]}`, ""},
		"a Restart of the message bus":           {actions(`[{type: Restart, unit: dbus.service}]`), "Reload or Reboot"},
		"a Restart of reboot.target":             {actions(`[{type: Restart, unit: reboot.target}]`), "use type: Reboot"},
		"a Reload of it, in capitals":            {actions(`[{type: Reload, unit: Reboot.target}]`), "use type: Reboot"},
		"the same for a unit":                    {`{units: [{name: a.service, actions: [{type: Restart, unit: systemd-poweroff.service}]}]}`, "use type: Reboot"},
		"the same for a domain":                  {`{ntp: {actions: [{type: Restart, unit: rescue.target}]}}`, "use type: Reboot"},
		"a Restart of a run of refit's":          {actions(`[{type: Restart, unit: refit-0a1b-7.service}]`), "refit's own"},
		"another end":                            {`{onFailure: Ignore}`, "spec.onFailure"},
		"another drift":                          {`{drift: Ignore}`, "spec.drift"},
		"future fields by yes":                   {`{futureOnlyFields: "Yes"}`, "spec.futureOnlyFields"},
		"a role that is none":                    {`{selector: {roles: [Master]}}`, "spec.selector.roles"},
		"a kind twice":                           {`{inertFields: [{` + inert + `, paths: [a]}, {` + inert + `, paths: [b]}]}`, "Duplicate value"},
		"a path twice":                           {`{inertFields: [{` + inert + `, paths: [a, a]}]}`, "Duplicate value"},
		"the kind of templates":                  {`{inertFields: [{group: infrastructure.cluster.x-k8s.io, kind: AWSMachineTemplate, paths: [a]}]}`, "not of their templates"},
		"a path with an index":                   {`{inertFields: [{` + inert + `, paths: ["a[0].b"]}]}`, "paths"},
		"a path from spec":                       {`{inertFields: [{` + inert + `, paths: [.spec.a]}]}`, "paths"},
		"no path":                                {`{inertFields: [{` + inert + `, paths: []}]}`, "should have at least 1"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := admit(t, definition, "{apiVersion: capi-refit.dev/v1alpha1, kind: NodeDisruptionPolicy, metadata: {name: p}, spec: "+test.spec+"}")
			if test.want == "" {
				require.Empty(t, errs)
				return
			}
			require.ErrorContains(t, errs.ToAggregate(), test.want)
		})
	}
}

// TestReservedUnitsAreThoseOfTheAgent holds the rules of the CRD to the list that the agent goes by.
func TestReservedUnitsAreThoseOfTheAgent(t *testing.T) {
	list := func(units []string) string { return "in ['" + strings.Join(units, "', '") + "']" }
	every := disruption.ReservedUnits(disruption.Reload)
	bus := slices.DeleteFunc(disruption.ReservedUnits(disruption.Restart), func(unit string) bool { return slices.Contains(every, unit) })
	types, err := os.ReadFile("nodedisruptionpolicy_types.go")
	require.NoError(t, err)
	require.Contains(t, string(types), list(every))
	require.Contains(t, string(types), list(bus))
	definition := crd(t, ndpFile)
	for _, unit := range disruption.ReservedUnits(disruption.Restart) {
		errs := admit(t, definition, `{apiVersion: capi-refit.dev/v1alpha1, kind: NodeDisruptionPolicy, metadata: {name: p}, spec: {taints: {actions: [{type: Restart, unit: `+unit+`}]}}}`)
		require.NotEmpty(t, errs, unit)
	}
}

// TestDocumentedNodeDisruptionPolicies holds the examples of the page to what an API server takes.
func TestDocumentedNodeDisruptionPolicies(t *testing.T) {
	definition := crd(t, ndpFile)
	page, err := os.ReadFile("../../docs/node-disruption.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?ms)^```yaml\n(# docs/examples/(\\S+)\n.*?)^```$").FindAllStringSubmatch(string(page), -1)
	files, err := filepath.Glob("../../docs/examples/node-disruption*.yaml")
	require.NoError(t, err)
	require.Len(t, blocks, len(files), "each file is on the page, and each example has a file")
	for _, block := range blocks {
		t.Run(block[2], func(t *testing.T) {
			file, err := os.ReadFile(filepath.Join("../../docs/examples", block[2]))
			require.NoError(t, err)
			require.Equal(t, string(file), block[1], "the page and the file differ")
			require.Empty(t, admit(t, definition, block[1]))
			var policy NodeDisruptionPolicy
			require.NoError(t, yaml.UnmarshalStrict(file, &policy))
			require.Equal(t, "NodeDisruptionPolicy", policy.Kind)
		})
	}
}

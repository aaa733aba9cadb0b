package declared

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/updaters/updatertest"
)

func machine(kind, current, desired string) updatertest.Case {
	return updatertest.Case{
		Current: current, Desired: desired, Object: fieldset.InfrastructureMachine,
		APIVersion: infrastructure + "/v1beta2", Kind: kind,
	}
}

func declare(kind string, paths ...string) []Field {
	return []Field{{Group: infrastructure, Kind: kind, Paths: paths}}
}

type row struct {
	updatertest.Case
	declared []Field
	// covered and left are fields in the change's order; left is the field and a part of the reason.
	covered []string
	left    [][2]string
}

func rows() map[string]row {
	return map[string]row{
		"a tag that changes is covered": {
			Case:     machine("AWSMachine", `{"additionalTags":{"team":"a"}}`, `{"additionalTags":{"team":"b"}}`),
			declared: declare("AWSMachine", "additionalTags"), covered: []string{"spec.additionalTags.team"},
		},
		"tags that come for the first time are covered": {
			Case:     machine("AWSMachine", `{}`, `{"additionalTags":{"a":"1","example.com/b":"2"}}`),
			declared: declare("AWSMachine", "additionalTags"), covered: []string{"spec.additionalTags.a", "spec.additionalTags.example.com/b"},
		},
		"what nobody has declared is nobody's": {
			Case:     machine("AWSMachine", `{"additionalTags":{"a":"1"},"instanceType":"x"}`, `{"additionalTags":{"a":"2"},"instanceType":"y"}`),
			declared: declare("AWSMachine", "additionalTags"), covered: []string{"spec.additionalTags.a"},
		},
		"a name that only begins like a declared one is another field": {
			Case:     machine("FooMachine", `{"tagsOfDisk":"a"}`, `{"tagsOfDisk":"b"}`),
			declared: declare("FooMachine", "tags"),
		},
		"a declaration of another kind does not count": {
			Case:     machine("GCPMachine", `{"additionalTags":{"a":"1"}}`, `{"additionalTags":{"a":"2"}}`),
			declared: declare("AWSMachine", "additionalTags"),
		},
		"a declaration of another group does not count": {
			Case:     machine("FooMachine", `{"tags":"a"}`, `{"tags":"b"}`),
			declared: []Field{{Group: "example.com", Kind: "FooMachine", Paths: []string{"tags"}}},
		},
		"several declarations of a kind add up": {
			Case:     machine("FooMachine", `{"a":1,"b":1}`, `{"a":2,"b":2}`),
			declared: append(declare("FooMachine", "a"), declare("FooMachine", "b")...), covered: []string{"spec.a", "spec.b"},
		},
		"a list that is declared may change in length": {
			Case:     machine("AWSMachine", `{"additionalSecurityGroups":[{"id":"a"}]}`, `{"additionalSecurityGroups":[{"id":"a"},{"id":"b"}]}`),
			declared: declare("AWSMachine", "additionalSecurityGroups"), covered: []string{"spec.additionalSecurityGroups"},
		},
		"the items of a list are looked into": {
			Case: machine("VSphereMachine", `{"network":{"devices":[{"name":"a","mtu":1400},{"name":"b","mtu":1400}]}}`,
				`{"network":{"devices":[{"name":"a","mtu":1400},{"name":"b","mtu":1500}]}}`),
			declared: declare("VSphereMachine", "network.devices.mtu"), covered: []string{"spec.network.devices"},
		},
		"an item of which more has changed is left": {
			Case: machine("VSphereMachine", `{"network":{"devices":[{"name":"a","mtu":1400}]}}`,
				`{"network":{"devices":[{"name":"b","mtu":1500}]}}`),
			declared: declare("VSphereMachine", "network.devices.mtu"),
			left:     [][2]string{{"spec.network.devices", "spec.inertFields does not name network.devices.name of VSphereMachine"}},
		},
		"a list of which only parts are declared may not change in length": {
			Case:     machine("FooMachine", `{"disks":[{"tag":"a"}]}`, `{"disks":[{"tag":"a"},{"tag":"b"}]}`),
			declared: declare("FooMachine", "disks.tag"),
		},
		"what the provider's webhook forbids is left": {
			Case:     machine("AWSMachine", `{"instanceType":"x"}`, `{"instanceType":"y"}`),
			declared: declare("AWSMachine", "instanceType"),
			left:     [][2]string{{"spec.instanceType", "the provider's webhook does not let instanceType of a running AWSMachine change"}},
		},
		"what a webhook forbids by name is left": {
			Case:     machine("AzureMachine", `{"image":{"id":"a"},"additionalTags":{"a":"1"}}`, `{"image":{"id":"b"},"additionalTags":{"a":"2"}}`),
			declared: declare("AzureMachine", "image", "additionalTags"), covered: []string{"spec.additionalTags.a"},
			left: [][2]string{{"spec.image.id", "does not let image.id of a running AzureMachine change"}},
		},
		"what has a forbidden field in it is left": {
			Case:     machine("DevMachine", `{"backend":"docker"}`, `{"backend":{"docker":{"customImage":"a"}}}`),
			declared: declare("DevMachine", "backend"),
			left:     [][2]string{{"spec.backend", "does not let backend of a running DevMachine change"}},
		},
		"null that goes is a change": {
			Case:     machine("FooMachine", `{"a":null}`, `{}`),
			declared: declare("FooMachine", "a"), covered: []string{"spec.a"},
		},
		"paths that are none stand for nothing": {
			Case:     machine("FooMachine", `{"a":{"":1}}`, `{"a":{"":2}}`),
			declared: declare("FooMachine", "", "a.", ".a", "."),
		},
		"a bootstrap config is no infrastructure machine": {
			Case: updatertest.Case{
				Current: `{"tags":"a"}`, Desired: `{"tags":"b"}`, Object: fieldset.BootstrapConfig, APIVersion: infrastructure + "/v1", Kind: "FooMachine",
			},
			declared: declare("FooMachine", "tags"),
		},
	}
}

func TestClaim(t *testing.T) {
	for name, tc := range rows() {
		t.Run(name, func(t *testing.T) {
			claim, err := New(tc.declared).Claim(t.Context(), tc.Change(t))
			require.NoError(t, err)
			var covered []string
			for _, c := range claim.Covered {
				covered = append(covered, c.Field.String())
				require.Equal(t, []disruption.Action{{Type: disruption.None}}, c.Actions)
			}
			require.Equal(t, tc.covered, covered)
			require.Len(t, claim.Left, len(tc.left))
			for i, l := range claim.Left {
				require.Equal(t, tc.left[i][0], l.Field.String())
				require.Contains(t, l.Reason, tc.left[i][1])
			}
		})
	}
}

func TestUpdaterConforms(t *testing.T) {
	for name, tc := range rows() {
		t.Run(name, func(t *testing.T) {
			updatertest.Conform(t, New(tc.declared), map[string]updatertest.Case{"promises": tc.Case})
		})
	}
}

func TestAnotherKindIsNoChangeOfFields(t *testing.T) {
	spec := func(kind, tag string) fieldset.Spec {
		return fieldset.Spec{APIVersion: infrastructure + "/v1", Kind: kind, Value: map[string]any{"tag": tag}}
	}
	oc, _ := fieldset.NewObjectChange(fieldset.InfrastructureMachine, spec("BarMachine", "a"), spec("FooMachine", "b"))
	claim, err := New(declare("FooMachine", "tag")).Claim(t.Context(), fieldset.Change{oc})
	require.NoError(t, err)
	require.Empty(t, claim)
}

func TestForbidden(t *testing.T) {
	for name, tc := range map[string]struct {
		kind, path string
		want       bool
	}{
		"AWS lets tags change":                             {"AWSMachine", "additionalTags", false},
		"AWS lets a tag change":                            {"AWSMachine", "additionalTags.team", false},
		"AWS forbids its image":                            {"AWSMachine", "ami.id", true},
		"AWS lets a part of cloudInit change":              {"AWSMachine", "cloudInit.secretPrefix", false},
		"AWS forbids another part of cloudInit":            {"AWSMachine", "cloudInit.insecureSkipSecretsManager", true},
		"AWS forbids cloudInit as a whole":                 {"AWSMachine", "cloudInit", true},
		"Azure lets tags change":                           {"AzureMachine", "additionalTags", false},
		"Azure forbids a part of what it forbids":          {"AzureMachine", "osDisk.diskSizeGB", true},
		"GCP lets labels change":                           {"GCPMachine", "additionalLabels.team", false},
		"GCP forbids its image":                            {"GCPMachine", "image", true},
		"vSphere lets devices change":                      {"VSphereMachine", "network.devices", false},
		"vSphere forbids the rest of the network":          {"VSphereMachine", "network.preferredAPIServerCidr", true},
		"vSphere forbids its template":                     {"VSphereMachine", "template", true},
		"OpenStack forbids tags":                           {"OpenStackMachine", "tags", true},
		"OpenStack lets the identity change":               {"OpenStackMachine", "identityRef.name", false},
		"Hetzner's cloud forbids its image":                {"HCloudMachine", "imageName", true},
		"Hetzner's cloud lets public networks change":      {"HCloudMachine", "publicNetwork", false},
		"Hetzner's bare metal forbids its image":           {"HetznerBareMetalMachine", "installImage.image", true},
		"Docker forbids its image":                         {"DockerMachine", "customImage", true},
		"Docker lets mounts change":                        {"DockerMachine", "extraMounts", false},
		"the backend of a DevMachine has the image in it":  {"DevMachine", "backend", true},
		"the image of a DevMachine's backend is forbidden": {"DevMachine", "backend.docker.customImage", true},
		"an in-memory DevMachine is free":                  {"DevMachine", "backend.inMemory.vm", false},
		"Metal3 forbids nothing":                           {"Metal3Machine", "image.url", false},
		"of an unknown kind nothing is known to forbid":    {"FooMachine", "image", false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, Forbidden(infrastructure, tc.kind, strings.Split(tc.path, ".")))
			require.False(t, Forbidden("example.com", tc.kind, strings.Split(tc.path, ".")), "the same name in another group is another kind")
		})
	}
}

// TestWebhooksAreOfOneKind holds the table to its own terms.
func TestWebhooksAreOfOneKind(t *testing.T) {
	for kind, w := range webhooks {
		require.True(t, (w.allows == nil) != (w.forbids == nil), kind)
		for _, p := range append(w.allows, w.forbids...) {
			require.NotNil(t, split(p), "%s: %q is no path", kind, p)
		}
	}
}

// TestLaws: what is covered is declared as a whole and forbidden nowhere; a further declaration takes no field away.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		kind := rapid.SampledFrom([]string{"FooMachine", "DevMachine", "AWSMachine"}).Draw(rt, "kind")
		paths := rapid.SliceOfN(path(), 0, 4).Draw(rt, "declared")
		change := machine(kind, spec(rt, "current"), spec(rt, "desired")).Change(t)
		covered := coveredBy(t, declare(kind, paths...), change)
		for _, f := range change.Fields() {
			oc, _ := change.Object(f.Object)
			all := true
			for _, location := range locations(oc, f) {
				all = all && below(location, paths) && !Forbidden(infrastructure, kind, location)
			}
			require.Equal(rt, all, covered[f.String()], f.String())
		}
		more := coveredBy(t, declare(kind, append(paths, path().Draw(rt, "another"))...), change)
		for f := range covered {
			require.True(rt, more[f], f)
		}
	})
}

func coveredBy(t *testing.T, declared []Field, change fieldset.Change) map[string]bool {
	claim, err := New(declared).Claim(t.Context(), change)
	require.NoError(t, err)
	out := map[string]bool{}
	for _, c := range claim.Covered {
		out[c.Field.String()] = true
	}
	return out
}

var fieldName = rapid.SampledFrom([]string{"backend", "docker", "customImage", "additionalTags", "a"})

func path() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(fieldName, 1, 3).Draw(t, "names"), ".")
	})
}

func spec(t *rapid.T, label string) string {
	var tree func(depth int) any
	tree = func(depth int) any {
		n := rapid.IntRange(0, 5).Draw(t, label)
		switch {
		case depth == 0 || n <= 1:
			return n
		case n == 2:
			return []any{tree(depth - 1), tree(depth - 1)}
		case n == 3:
			return []any{tree(depth - 1)}
		}
		out := map[string]any{}
		for range n - 2 {
			out[fieldName.Draw(t, label)] = tree(depth - 1)
		}
		return out
	}
	text, err := json.Marshal(map[string]any{"backend": tree(3), "a": tree(2), "additionalTags": tree(1)})
	if err != nil {
		t.Fatal(fmt.Errorf("a spec of maps, lists and numbers: %w", err))
	}
	return string(text)
}

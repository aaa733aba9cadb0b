package image_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/declared"
	"github.com/capi-refit/refit/updaters/image"
	"github.com/capi-refit/refit/updaters/updatertest"
)

const infrastructure = "infrastructure.cluster.x-k8s.io"

func machine(kind, current, desired string) updatertest.Case {
	return updatertest.Case{
		Current: current, Desired: desired, Object: fieldset.InfrastructureMachine,
		APIVersion: infrastructure + "/v1beta1", Kind: kind,
	}
}

// stay is what is selected where the images of machines may change.
func stay(kinds ...image.Kind) *image.Selected {
	return &image.Selected{Policies: []string{"fleet"}, Kinds: kinds}
}

func own(kind string, paths ...string) image.Kind {
	return image.Kind{Group: infrastructure, Kind: kind, Paths: paths}
}

// nested is a spec with one value at a dotted path. A name that ends with [] is a list of one item.
func nested(path, value string) string {
	names := strings.Split(path, ".")
	out := fmt.Sprintf("%q", value)
	for i := len(names) - 1; i >= 0; i-- {
		if name, list := strings.CutSuffix(names[i], "[]"); list {
			out = fmt.Sprintf(`{%q:[%s]}`, name, out)
		} else {
			out = fmt.Sprintf(`{%q:%s}`, name, out)
		}
	}
	return out
}

// TestProviders has an image change in machines of every kind of the table.
func TestProviders(t *testing.T) {
	providers := map[string]struct {
		forbids bool
		paths   []string
	}{
		"AWSMachine":              {true, []string{"ami.id", "ami.eksLookupType", "imageLookupFormat", "imageLookupOrg", "imageLookupBaseOS"}},
		"AzureMachine":            {true, []string{"image.id", "image.marketplace.version", "image.computeGallery.version"}},
		"DevMachine":              {true, []string{"backend.docker.customImage"}},
		"DockerMachine":           {true, []string{"customImage"}},
		"GCPMachine":              {true, []string{"image", "imageFamily"}},
		"HCloudMachine":           {true, []string{"imageName", "imageURL", "imageURLCommand"}},
		"HetznerBareMetalMachine": {true, []string{"installImage.image.url", "installImage.image.name"}},
		"OpenStackMachine":        {true, []string{"image.filter.name", "image.id"}},
		"VSphereMachine":          {true, []string{"template", "snapshot"}},
		"IBMPowerVSMachine":       {false, []string{"image.id", "imageRef.name"}},
		"IBMVPCMachine":           {false, []string{"image.name", "catalogOffering.versionCRN"}},
		"KubevirtMachine": {false, []string{
			"virtualMachineTemplate.spec.template.spec.volumes[].containerDisk.image",
			"virtualMachineTemplate.spec.dataVolumeTemplates[].spec.source.http.url",
		}},
		"Metal3Machine":  {false, []string{"image.url", "image.checksum", "image.checksumType", "image.format", "image.diskFormat", "customDeploy.method"}},
		"NutanixMachine": {false, []string{"image.name", "imageLookup.baseOS"}},
		"ProxmoxMachine": {false, []string{"templateID", "templateSelector.matchTags", "sourceNode"}},
	}
	for _, k := range image.Table() {
		provider, ok := providers[k.Kind]
		require.True(t, ok, "%s is not tried", k.Kind)
		tried := map[string]bool{}
		for _, path := range provider.paths {
			location := strings.Split(strings.ReplaceAll(path, "[]", ""), ".")
			for _, p := range k.Paths {
				if declared.Below(location, []string{p}) {
					tried[p] = true
				}
			}
			t.Run(k.Kind+" "+path, func(t *testing.T) {
				change := machine(k.Kind, nested(path, "a"), nested(path, "b")).Change(t)
				claim, err := image.New(stay()).Claim(t.Context(), change)
				require.NoError(t, err)
				if provider.forbids {
					require.Empty(t, claim.Covered)
					require.Len(t, claim.Left, 1)
					require.Contains(t, claim.Left[0].Reason, "the provider's webhook does not let "+strings.Join(location, ".")+" of a running "+k.Kind+" change")
					require.Contains(t, claim.Left[0].Reason, "would wait for it forever")
					require.Contains(t, claim.Left[0].Reason, "so that it follows from the version")
					return
				}
				require.Empty(t, claim.Left)
				require.Len(t, claim.Covered, 1)
				require.Equal(t, []disruption.Action{{Type: disruption.None}}, claim.Covered[0].Actions)
			})
		}
		require.Len(t, tried, len(k.Paths), "%s: not every path is tried", k.Kind)
	}
	require.Len(t, providers, len(image.Table()))
}

type row struct {
	updatertest.Case
	selected *image.Selected
	// covered and left are fields in the change's order; left is the field and a part of the reason.
	covered []string
	left    [][2]string
}

func rows() map[string]row {
	const url, other = `{"image":{"url":"a","checksum":"1"}}`, `{"image":{"url":"b","checksum":"2"}}`
	both := []string{"spec.image.checksum", "spec.image.url"}
	bothLeft := func(reason string) [][2]string {
		return [][2]string{{"spec.image.checksum", reason}, {"spec.image.url", reason}}
	}
	return map[string]row{
		"an image that changes in all its fields": {Case: machine("Metal3Machine", url, other), selected: stay(), covered: both},
		"an image that comes":                     {Case: machine("Metal3Machine", `{}`, other), selected: stay(), covered: both},
		"an image that goes for another kind of deployment": {
			Case: machine("Metal3Machine", url, `{"customDeploy":{"method":"install_coreos"}}`), selected: stay(),
			covered: append([]string{"spec.customDeploy.method"}, both...),
		},
		"without a policy": {Case: machine("Metal3Machine", url, other), left: bothLeft("no BootImagePolicy selects the machine")},
		"policies that select nothing": {
			Case: machine("Metal3Machine", url, other), selected: &image.Selected{}, left: bothLeft("no BootImagePolicy selects the machine"),
		},
		"a policy that keeps it": {
			Case: machine("Metal3Machine", url, other), selected: &image.Selected{Policies: []string{"a", "b"}, Keep: []string{"b"}},
			left: bothLeft("by selection of BootImagePolicy b the machine is none of those that stay"),
		},
		"something else changes too": {
			Case: machine("Metal3Machine", url, `{"image":{"url":"b","checksum":"2"},"hostSelector":{"matchLabels":{"a":"b"}}}`), selected: stay(),
			left: bothLeft("together with hostSelector.matchLabels.a the machine is replaced"),
		},
		"much else changes too": {
			Case: machine("Metal3Machine", url, `{"image":{"url":"b","checksum":"2"},"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7}`), selected: stay(),
			left: bothLeft("together with a, b, c, d, e and 2 more the machine is replaced"),
		},
		"no image changes":                    {Case: machine("Metal3Machine", `{"a":1}`, `{"a":2}`), selected: stay()},
		"a name that only begins like a path": {Case: machine("NutanixMachine", `{"imageLookupX":1}`, `{"imageLookupX":2}`), selected: stay()},
		"a part of an image field is forbidden": {
			Case:     machine("ProxmoxMachine", `{"templateID":1,"tags":["a"]}`, `{"templateID":2,"tags":["b"]}`),
			selected: stay(own("ProxmoxMachine", "tags")),
			left: [][2]string{
				{"spec.tags", "does not let tags of a running ProxmoxMachine change"}, {"spec.templateID", "together with tags the machine is replaced"},
			},
		},
		"a list of which only a part is the image": {
			Case: machine("KubevirtMachine",
				`{"virtualMachineTemplate":{"spec":{"template":{"spec":{"volumes":[{"name":"a","containerDisk":{"image":"a"}}]}}}}}`,
				`{"virtualMachineTemplate":{"spec":{"template":{"spec":{"volumes":[{"name":"b","containerDisk":{"image":"b"}}]}}}}}`),
			selected: stay(),
			left: [][2]string{{
				"spec.virtualMachineTemplate.spec.template.spec.volumes",
				"virtualMachineTemplate.spec.template.spec.volumes.name of the KubevirtMachine is none of it",
			}},
		},
		"a list that has become longer is no image": {
			Case: machine("KubevirtMachine", `{"virtualMachineTemplate":{"spec":{"dataVolumeTemplates":[]}}}`,
				`{"virtualMachineTemplate":{"spec":{"dataVolumeTemplates":[{"spec":{"source":{"http":{"url":"b"}}}}]}}}`),
			selected: stay(),
		},
		"a kind of the operator's": {
			Case: machine("FooMachine", `{"disk":{"image":"a"}}`, `{"disk":{"image":"b"}}`), selected: stay(own("FooMachine", "disk.image")),
			covered: []string{"spec.disk.image"},
		},
		"a kind that nobody knows": {Case: machine("FooMachine", `{"image":"a"}`, `{"image":"b"}`), selected: stay()},
		"a path of the operator's beside those that are built in": {
			Case:     machine("NutanixMachine", `{"image":"a","bootDisk":"a"}`, `{"image":"b","bootDisk":"b"}`),
			selected: stay(own("NutanixMachine", "bootDisk")), covered: []string{"spec.bootDisk", "spec.image"},
		},
		"a policy does not lift what a provider forbids": {
			Case: machine("AWSMachine", `{"ami":{"id":"a"}}`, `{"ami":{"id":"b"}}`), selected: stay(own("AWSMachine", "ami.id")),
			left: [][2]string{{"spec.ami.id", "the provider's webhook does not let ami.id of a running AWSMachine change"}},
		},
		"nor with another field": {
			Case: machine("AWSMachine", `{"instanceType":"a"}`, `{"instanceType":"b"}`), selected: stay(own("AWSMachine", "instanceType")),
			left: [][2]string{{"spec.instanceType", "does not let instanceType of a running AWSMachine change"}},
		},
		"of two image fields one is forbidden": {
			Case:     machine("DevMachine", `{"backend":{"docker":{"customImage":"a","loader":"a"}}}`, `{"backend":{"docker":{"customImage":"b","loader":"b"}}}`),
			selected: stay(own("DevMachine", "backend.docker.loader")),
			left: [][2]string{
				{"spec.backend.docker.customImage", "the provider's webhook does not let"},
				{"spec.backend.docker.loader", "together with backend.docker.customImage the machine is replaced"},
			},
		},
		"the same kind in another group is another kind": {
			Case: updatertest.Case{
				Current: url, Desired: other, Object: fieldset.InfrastructureMachine, APIVersion: "example.com/v1", Kind: "Metal3Machine",
			},
			selected: stay(),
		},
		"a bootstrap config is no infrastructure machine": {
			Case: updatertest.Case{
				Current: url, Desired: other, Object: fieldset.BootstrapConfig, APIVersion: infrastructure + "/v1", Kind: "Metal3Machine",
			},
			selected: stay(),
		},
	}
}

func TestClaim(t *testing.T) {
	for name, tc := range rows() {
		t.Run(name, func(t *testing.T) {
			claim, err := image.New(tc.selected).Claim(t.Context(), tc.Change(t))
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
				require.False(t, strings.HasSuffix(l.Reason, "."), "a reason is put into a sentence")
			}
		})
	}
}

func TestUpdaterConforms(t *testing.T) {
	for name, tc := range rows() {
		t.Run(name, func(t *testing.T) {
			updatertest.Conform(t, image.New(tc.selected), map[string]updatertest.Case{"promises": tc.Case})
		})
	}
}

func TestAnotherKindIsNoChangeOfAnImage(t *testing.T) {
	spec := func(kind, image string) fieldset.Spec {
		return fieldset.Spec{APIVersion: infrastructure + "/v1", Kind: kind, Value: map[string]any{"image": image}}
	}
	oc, _ := fieldset.NewObjectChange(fieldset.InfrastructureMachine, spec("IBMVPCMachine", "a"), spec("NutanixMachine", "b"))
	claim, err := image.New(stay()).Claim(t.Context(), fieldset.Change{oc})
	require.NoError(t, err)
	require.Empty(t, claim)
}

// What a policy says that can't be read is not known, which matters to changes of images only.
func TestPoliciesThatCanNotBeRead(t *testing.T) {
	wrong := errors.New("BootImagePolicy a can't be read")
	u := image.New(&image.Selected{Policies: []string{"a"}, Err: wrong})
	_, err := u.Claim(t.Context(), machine("Metal3Machine", `{"image":{"url":"a"}}`, `{"image":{"url":"b"}}`).Change(t))
	require.ErrorIs(t, err, wrong)
	claim, err := u.Claim(t.Context(), machine("Metal3Machine", `{"a":1}`, `{"a":2}`).Change(t))
	require.NoError(t, err)
	require.Empty(t, claim)
}

// The image is a part of a change that others judge too: of what nobody covers the machine is replaced.
func TestTogetherWithDeclaredFields(t *testing.T) {
	change := machine("Metal3Machine", `{"image":{"url":"a"},"x":1}`, `{"image":{"url":"b"},"x":2}`).Change(t)
	registry, err := updaters.NewRegistry(declared.New([]declared.Field{{Group: infrastructure, Kind: "Metal3Machine", Paths: []string{"x"}}}), image.New(stay()))
	require.NoError(t, err)
	decision, err := registry.Decide(t.Context(), change)
	require.NoError(t, err)
	require.False(t, decision.InPlace())
	require.Equal(t, "declared", decision[1].Updater)
	require.Contains(t, decision[0].Reason, "change the image alone")
}

func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range image.Table() {
		require.Equal(t, infrastructure, k.Group)
		require.False(t, seen[k.Kind], "%s is there twice", k.Kind)
		seen[k.Kind] = true
		require.False(t, strings.HasSuffix(k.Kind, "Template"), k.Kind)
		require.NotEmpty(t, k.Paths)
		for _, p := range k.Paths {
			require.NotContains(t, strings.Split(p, "."), "", "%s: %q is no path", k.Kind, p)
		}
		require.Equal(t, k.Paths, image.Paths(k.Group, k.Kind))
		require.Empty(t, image.Paths("example.com", k.Kind))
	}
	require.Equal(t, []string{"template", "snapshot", "a"}, image.Paths(infrastructure, "VSphereMachine", own("VSphereMachine", "snapshot", "a"), own("Foo", "b")))
}

// TestTableIsDocumented holds the page to the table.
func TestTableIsDocumented(t *testing.T) {
	data, err := os.ReadFile("../../docs/boot-images.md")
	require.NoError(t, err)
	var rows []string
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "| `") && strings.Contains(line, "Machine` |") {
			rows = append(rows, strings.TrimSpace(line))
		}
	}
	var want []string
	for _, k := range image.Table() {
		verdict := "allows"
		for _, p := range k.Paths {
			if declared.Forbidden(k.Group, k.Kind, strings.Split(p, ".")) {
				verdict = "forbids"
			}
		}
		want = append(want, fmt.Sprintf("| `%s` | `%s` | %s |", k.Kind, strings.Join(k.Paths, "`, `"), verdict))
	}
	require.Equal(t, want, rows)
}

package bootimage

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/updaters/image"
)

func TestNameOf(t *testing.T) {
	for name, tc := range map[string]struct{ kind, spec, want string }{
		"an id":         {"AWSMachine", `{"ami":{"id":"ami-1"},"instanceType":"x"}`, "ami.id=ami-1"},
		"nothing":       {"AWSMachine", `{"instanceType":"x"}`, "implicit: v1.36.1"},
		"nothing in it": {"AWSMachine", `{"ami":{},"imageLookupOrg":null}`, "implicit: v1.36.1"},
		"no spec":       {"AWSMachine", `null`, "implicit: v1.36.1"},
		"a number":      {"ProxmoxMachine", `{"templateID":100,"sourceNode":"pve1"}`, "templateID=100, sourceNode=pve1"},
		"tags":          {"ProxmoxMachine", `{"templateSelector":{"matchTags":["b","a"]}}`, "templateSelector.matchTags=b, templateSelector.matchTags=a"},
		"in the order that counts": {
			"Metal3Machine", `{"image":{"checksum":"1","url":"http://a/x.qcow2","diskFormat":"qcow2"}}`,
			"image.url=http://a/x.qcow2, image.checksum=1, image.diskFormat=qcow2",
		},
		"fields below a field": {"AzureMachine", `{"image":{"marketplace":{"version":"1","offer":"o"}}}`, "image.marketplace.offer=o, image.marketplace.version=1"},
		"items of lists": {
			"KubevirtMachine", `{"virtualMachineTemplate":{"spec":{"template":{"spec":{"volumes":[{"name":"a"},{"containerDisk":{"image":"a"}},{"containerDisk":{"image":"b"}}]}}}}}`,
			"virtualMachineTemplate.spec.template.spec.volumes.containerDisk.image=a, virtualMachineTemplate.spec.template.spec.volumes.containerDisk.image=b",
		},
		"another type than expected": {"Metal3Machine", `{"image":"x"}`, "implicit: v1.36.1"},
		"a secret in an address": {
			"Metal3Machine", `{"image":{"url":"https://me:hunter2@mirror.example.org/x.img?signature=abc#part"}}`, "image.url=https://mirror.example.org/x.img",
		},
		"an address in an address":  {"Metal3Machine", `{"image":{"url":"https://a/https://me:hunter2@b/x.img"}}`, "image.url=(an address that can't be read)"},
		"an address behind another": {"Metal3Machine", `{"image":{"url":"https://a/https://b/x.img"}}`, "image.url=https://a/https://b/x.img"},
		"an address that is none":   {"Metal3Machine", `{"image":{"url":"https://me:hunter2@[x/x.img"}}`, "image.url=(an address that can't be read)"},
		"more lines than one":       {"HCloudMachine", `{"imageName":"a\nb\u0000"}`, "imageName=a?b?"},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := fieldset.Decode([]byte(tc.spec))
			require.NoError(t, err)
			require.Equal(t, tc.want, nameOf(v, image.Paths(infrastructureGroup, tc.kind), "v1.36.1"))
		})
	}
	long := func(end string) string {
		return nameOf(map[string]any{"image": strings.Repeat("ä", maxName) + end}, []string{"image"}, "")
	}
	require.LessOrEqual(t, len(long("a")), maxName)
	require.True(t, utf8.ValidString(long("a")))
	require.NotEqual(t, long("a"), long("b"), "those that differ at the end are two")
}

func TestVersionOf(t *testing.T) {
	for name, tc := range map[string]struct{ pattern, image, want string }{
		"of Kubernetes":              {"", "image.url=http://mirror/UBUNTU_24.04_K8S_v1.36.1.qcow2", "1.36.1"},
		"an address is no version":   {"", "image.url=http://172.22.0.1/images/K8S_v1.36.1.qcow2", "1.36.1"},
		"a registry is none either":  {"", "customImage=10.0.0.1:5000/kindest/node:v1.36.1", "1.36.1"},
		"the last one counts":        {"", "template=flatcar-3510.2.8-kube-v1.27.3", "1.27.3"},
		"the first field counts":     {"", "image.url=http://a/v1.36.1.img, image.checksum=http://a/v1.35.0.sha256", "1.36.1"},
		"that has one":               {"", "image.id=x, image.name=v1.36.1", "1.36.1"},
		"of what is implicit":        {"", "implicit: v1.36.1", "1.36.1"},
		"none":                       {"", "ami.id=ami-0123456789", ""},
		"two numbers":                {"", "template=ubuntu-24.04", ""},
		"nothing is known":           {"", unknownImage, ""},
		"by a pattern":               {`flatcar-(\d+\.\d+\.\d+)`, "template=flatcar-3510.2.8-kube-v1.27.3", "3510.2.8"},
		"a date":                     {`-(\d{8})$`, "image.name=ubuntu-20260105", "20260105"},
		"four numbers":               {`(\d+(?:\.\d+)+)`, "image.url=https://a/fcos/42.20260705.3.0/x86_64.raw", "42.20260705.3.0"},
		"a group that is no version": {`image-(\w+)`, "template=image-latest", ""},
		"a group that is empty":      {`image-(\d*)`, "template=image-", ""},
	} {
		t.Run(name, func(t *testing.T) {
			pattern := defaultPattern
			if tc.pattern != "" {
				var err error
				pattern, err = readPattern(tc.pattern)
				require.NoError(t, err)
			}
			v, ok := versionOf(pattern, tc.image)
			require.Equal(t, tc.want != "", ok)
			require.Equal(t, tc.want, strings.Join(v, "."))
		})
	}
}

func TestVersionsAreCompared(t *testing.T) {
	for name, tc := range map[string]struct {
		a, b string
		want int
	}{
		"the same":            {"1.36.1", "v1.36.1", 0},
		"missing numbers":     {"1.36", "1.36.0", 0},
		"zeros in front":      {"24.04", "24.4", 0},
		"numbers, not text":   {"1.9.0", "1.10.0", -1},
		"the first counts":    {"2.0.0", "1.99.99", 1},
		"one more":            {"1.36.0.1", "1.36.0", 1},
		"more than a machine": {"99999999999999999999999998", "99999999999999999999999999", -1},
	} {
		t.Run(name, func(t *testing.T) {
			a, ok := parseVersion(tc.a)
			require.True(t, ok)
			b, ok := parseVersion(tc.b)
			require.True(t, ok)
			require.Equal(t, tc.want, a.compare(b))
			require.Equal(t, -tc.want, b.compare(a))
		})
	}
	for _, none := range []string{"", "v", "1.", ".1", "1..2", "1.x", "vv1", "1.2-rc1", "١"} {
		_, ok := parseVersion(none)
		require.False(t, ok, none)
	}
}

// FuzzVersionOf uses patterns of people on names out of other people's specs.
func FuzzVersionOf(f *testing.F) {
	f.Add(`v?(\d+\.\d+\.\d+)`, "image.url=http://172.22.0.1/v1.36.1.qcow2, image.checksum=x")
	f.Add(`(\w*)`, "a=1.2.3.4")
	f.Add(`(?:a)(b)?`, "a=, =a")
	f.Add(`(()|.)*`, "implicit: v1.36.1")
	f.Fuzz(func(t *testing.T, expression, name string) {
		pattern, err := readPattern(expression)
		if err != nil {
			_, compiles := regexp.Compile(expression)
			require.True(t, compiles != nil || !strings.Contains(expression, "(") || regexp.MustCompile(expression).NumSubexp() == 0)
			return
		}
		v, ok := versionOf(pattern, name)
		if !ok {
			require.Nil(t, v)
			return
		}
		again, ok := parseVersion(strings.Join(v, "."))
		require.True(t, ok)
		require.Equal(t, v, again)
		require.Zero(t, v.compare(append(slices.Clone(v), "0")), "numbers that are missing are 0")
		require.Equal(t, -1, v.compare(append(slices.Clone(v), "1")))
	})
}

// FuzzNameOf has values of other people's specs named.
func FuzzNameOf(f *testing.F) {
	f.Add("https://me:hunter2@example.org/x.img?token=hunter2#hunter2")
	f.Add("oci://example.org/x:v1.36.1")
	f.Add("a\nb\xff")
	f.Fuzz(func(t *testing.T, value string) {
		name := nameOf(map[string]any{"image": value}, []string{"image"}, "v1.36.1")
		require.LessOrEqual(t, len(name), maxName)
		require.True(t, utf8.ValidString(name))
		for _, r := range name {
			require.True(t, unicode.IsPrint(r), "%q", name)
		}
		require.Equal(t, name, nameOf(map[string]any{"image": value}, []string{"image"}, "v1.36.1"))
		if _, address, found := strings.Cut(name, "://"); found {
			host, _, _ := strings.Cut(address, "/")
			require.NotContains(t, host, "@")
		}
	})
}

func TestForeignController(t *testing.T) {
	yes, no := true, false
	for name, tc := range map[string]struct {
		apiVersion, kind string
		controller       *bool
		foreign          bool
	}{
		"its Machine":                {"cluster.x-k8s.io/v1beta2", "Machine", &yes, false},
		"a MachineSet":               {"cluster.x-k8s.io/v1beta1", "MachineSet", &yes, false},
		"a MachineDeployment":        {"cluster.x-k8s.io/v1beta2", "MachineDeployment", &yes, false},
		"a ClusterClass":             {"cluster.x-k8s.io/v1beta2", "ClusterClass", &yes, false},
		"a Cluster":                  {"cluster.x-k8s.io/v1beta2", "Cluster", &yes, false},
		"a control plane":            {"controlplane.cluster.x-k8s.io/v1beta2", "KubeadmControlPlane", &yes, false},
		"another control plane":      {"controlplane.cluster.x-k8s.io/v1beta1", "RKE2ControlPlane", &yes, false},
		"something else":             {"hypershift.openshift.io/v1beta1", "NodePool", &yes, true},
		"a Machine of somebody else": {"machine.openshift.io/v1beta1", "Machine", &yes, true},
		"another kind of the group":  {"cluster.x-k8s.io/v1beta2", "MachineHealthCheck", &yes, true},
		"an owner that controls not": {"example.com/v1", "App", &no, false},
		"an owner that says nothing": {"example.com/v1", "App", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := &metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{APIVersion: tc.apiVersion, Kind: tc.kind, Name: "x", Controller: tc.controller}}}
			who, foreign := ForeignController(o)
			require.Equal(t, tc.foreign, foreign)
			if foreign {
				require.Equal(t, tc.kind+" x", who)
			}
		})
	}
	_, foreign := ForeignController(&metav1.ObjectMeta{})
	require.False(t, foreign)
}

package rotation

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

const metadata = `
stream: stable
metadata: {last-modified: "2026-09-01T00:00:00Z"}
architectures:
  x86_64:
    artifacts:
      metal:
        release: "42"
        formats:
          qcow2.gz: {disk: {location: "https://images.example/42.qcow2.gz", signature: s, sha256: ` + sum + `}}
    images:
      aws:
        regions:
          eu-central-1: {release: "42", image: ami-1}
          empty: {release: "42"}
      gcp: {release: "42", project: p, family: f, name: n}
      openstack: {release: "43", image: os-43, regions: {north: {image: os-43-north}}}
      bad: {image: "two words"}
      wrong: {image: i, sha256: abc}
  arm64:
    images: {openstack: {image: os-arm}}
`

func TestFind(t *testing.T) {
	for name, tc := range map[string]struct {
		architecture, platform, region, format string
		want                                   Golden
		err                                    string
	}{
		"of a region":                             {"x86_64", "aws", "eu-central-1", "", Golden{Image: "ami-1", Release: "42"}, ""},
		"by the other name of an architecture":    {"amd64", "aws", "eu-central-1", "", Golden{Image: "ami-1", Release: "42"}, ""},
		"and the other way round":                 {"aarch64", "openstack", "", "", Golden{Image: "os-arm"}, ""},
		"of a platform":                           {"amd64", "openstack", "", "", Golden{Image: "os-43", Release: "43"}, ""},
		"of a region of it":                       {"amd64", "openstack", "north", "", Golden{Image: "os-43-north"}, ""},
		"of a platform, for a region not named":   {"amd64", "openstack", "south", "", Golden{Image: "os-43", Release: "43"}, ""},
		"a file":                                  {"amd64", "metal", "", "qcow2.gz", Golden{Image: "https://images.example/42.qcow2.gz", SHA256: sum, Release: "42"}, ""},
		"no such architecture":                    {"s390x", "aws", "", "", Golden{}, "no architecture s390x"},
		"no such platform":                        {"amd64", "azure", "", "", Golden{}, "no image at architectures.amd64.images.azure"},
		"no such region, and none of all regions": {"amd64", "aws", "us-east-1", "", Golden{}, "no image at architectures.amd64.images.aws"},
		"a region without an image":               {"amd64", "aws", "empty", "", Golden{}, "images.aws.regions.empty"},
		"a platform that names no image":          {"amd64", "gcp", "", "", Golden{}, "no image at"},
		"no such format":                          {"amd64", "metal", "", "iso", Golden{}, "artifacts.metal.formats.iso.disk"},
		"blanks":                                  {"amd64", "bad", "", "", Golden{}, "blanks"},
		"no sha256":                               {"amd64", "wrong", "", "", Golden{}, "64 hexadecimal digits"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := ParseStream(metadata)
			require.NoError(t, err)
			got, err := s.Find(&refitv1.BootImageRotation{Platform: tc.platform, Architecture: tc.architecture, Region: tc.region, Format: tc.format})
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
}

func TestParseStream(t *testing.T) {
	for name, tc := range map[string]struct{ document, err string }{
		"nothing":                  {"", "no architectures"},
		"no mapping":               {"[1]", "shape of a stream"},
		"a key twice":              {"architectures: {a: {}, a: {}}", "neither JSON nor YAML"},
		"another shape":            {"architectures: {a: {images: 3}}", "shape of a stream"},
		"no architectures":         {"stream: stable", "no architectures"},
		"an image that is no text": {"architectures: {a: {images: {p: {image: 3}}}}", "shape of a stream"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseStream(tc.document)
			require.ErrorContains(t, err, tc.err)
		})
	}
	s, err := ParseStream("architectures: {x86_64: {}, amd64: {}}")
	require.NoError(t, err)
	_, err = s.Find(&refitv1.BootImageRotation{Architecture: "amd64"})
	require.ErrorContains(t, err, "which are the same")
}

func TestKeysFor(t *testing.T) {
	for version, want := range map[string]string{
		"v1.36.1":        "stream.v1.36.1 stream.v1.36 stream",
		"1.36.1":         "stream.v1.36.1 stream.v1.36 stream",
		"v1.36.1+rke2r1": "stream.v1.36.1 stream.v1.36 stream",
		"v1.37.0-rc.1":   "stream.v1.37.0 stream.v1.37 stream",
		"":               "stream",
		"latest":         "stream",
	} {
		require.Equal(t, strings.Fields(want), keysFor(version), version)
	}
}

// TestTheMostSpecificStreamCounts, also if it does not have the image.
func TestTheMostSpecificStreamCounts(t *testing.T) {
	d := documents{name: "golden", data: map[string]string{
		"stream": stream("any"), "stream.v1.36": stream("minor"), "stream.v1.36.2": stream("patch"), "stream.v1.37": "architectures: {x86_64: {}}",
	}}
	r := policy("p").Spec.Rotation
	for version, want := range map[string]string{"v1.36.1": "minor", "v1.36.2": "patch", "v1.35.0": "any", "": "any"} {
		got, err := d.find(r, version)
		require.NoError(t, err)
		require.Equal(t, want, got.Image, version)
	}
	_, err := d.find(r, "v1.37.4")
	require.ErrorContains(t, err, "the key stream.v1.37 of the ConfigMap golden does not tell the image")
}

func TestShown(t *testing.T) {
	for image, want := range map[string]string{
		"ami-1": "ami-1", "quay.io/os@sha256:aa": "quay.io/os@sha256:aa", "https://a.example/x": "https://a.example/x",
		"projects/p/global/images/i": "projects/p/global/images/i",
	} {
		require.Equal(t, want, Golden{Image: image}.shown())
	}
	for _, image := range []string{"https://u:hunter2@a.example/x", "https://a.example/x?t=hunter2", "https://a.example/x#hunter2", "https://u:hunter2@%zz/"} {
		shown := Golden{Image: image}.shown()
		require.NotContains(t, shown, "hunter2")
		require.NotEqual(t, shown, Golden{Image: image + "3"}.shown(), "another one looks different")
	}
}

// FuzzStream: what comes out of any document can be written into a template and shown.
func FuzzStream(f *testing.F) {
	for _, seed := range []string{metadata, stream("i"), "", "{", "a: &a [*a]", "architectures: {amd64: {images: {metal: {regions: {r: {image: x}}}}}}"} {
		f.Add(seed, "metal", "r", "")
	}
	f.Add(metadata, "metal", "", "qcow2.gz")
	f.Fuzz(func(t *testing.T, document, platform, region, format string) {
		s, err := ParseStream(document)
		if err != nil {
			return
		}
		for _, arch := range []string{"amd64", "aarch64"} {
			golden, err := s.Find(&refitv1.BootImageRotation{Architecture: arch, Platform: platform, Region: region, Format: format})
			if err != nil {
				require.Zero(t, golden)
				continue
			}
			require.NotEmpty(t, golden.Image)
			require.NotEmpty(t, golden.shown())
			require.NoError(t, golden.check())
			spec := map[string]any{}
			require.NoError(t, bring(spec, []refitv1.BootImageField{{Path: "a.b"}}, golden))
			require.Equal(t, map[string]any{"a": map[string]any{"b": golden.Image}}, spec)
		}
	})
}

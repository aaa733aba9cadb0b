package rotation

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// streamKey is the key of a ConfigMap with the images for all versions of Kubernetes. That of one version has it as a suffix:
// stream.v1.36, or stream.v1.36.1.
const streamKey = "stream"

// maxImage is how long the name of an image may be, in bytes. A status has room for it and a digest.
const maxImage = 900

// Golden is the image from which machines are to boot.
type Golden struct {
	// Image is its name, id or place. It is never empty.
	Image string
	// SHA256 and Release are empty where the stream does not tell them.
	SHA256, Release string
}

// Stream says which images are golden: the part of CoreOS stream metadata that names images of platforms and files to download.
// What else is in such a document is not looked at.
type Stream struct {
	Architectures map[string]architecture `json:"architectures"`
}

type architecture struct {
	Images    map[string]platform  `json:"images"`
	Artifacts map[string]artifacts `json:"artifacts"`
}

type platform struct {
	entry   `json:",inline"`
	Regions map[string]entry `json:"regions"`
}

type entry struct {
	Release string `json:"release"`
	Image   string `json:"image"`
	SHA256  string `json:"sha256"`
}

type artifacts struct {
	Release string                `json:"release"`
	Formats map[string]diskFormat `json:"formats"`
}

type diskFormat struct {
	Disk struct {
		Location string `json:"location"`
		SHA256   string `json:"sha256"`
	} `json:"disk"`
}

// ParseStream reads a document, JSON or YAML. A key that is there twice is an error, since there is no telling which counts.
func ParseStream(document string) (*Stream, error) {
	raw, err := yaml.YAMLToJSONStrict([]byte(document))
	if err != nil {
		return nil, fmt.Errorf("it is neither JSON nor YAML: %w", err)
	}
	var s Stream
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fmt.Errorf("it has not the shape of a stream: %w", err)
	}
	if len(s.Architectures) == 0 {
		return nil, errors.New("it has no architectures")
	}
	return &s, nil
}

// Find returns the image for machines as a rotation describes them. The error says what of the stream is missing or wrong.
func (s *Stream) Find(r *refitv1.BootImageRotation) (Golden, error) {
	arch, err := s.architecture(r.Architecture)
	if err != nil {
		return Golden{}, err
	}
	var found entry
	at := fmt.Sprintf("architectures.%s.images.%s", r.Architecture, r.Platform)
	switch p := arch.Images[r.Platform]; {
	case r.Format != "":
		at = fmt.Sprintf("architectures.%s.artifacts.%s.formats.%s.disk", r.Architecture, r.Platform, r.Format)
		of := arch.Artifacts[r.Platform]
		disk := of.Formats[r.Format].Disk
		found = entry{Release: of.Release, Image: disk.Location, SHA256: disk.SHA256}
	case r.Region != "":
		var named bool
		if found, named = p.Regions[r.Region]; !named {
			found = p.entry // the same in all regions
		} else {
			at += ".regions." + r.Region
		}
	default:
		found = p.entry
	}
	if found.Image == "" {
		return Golden{}, fmt.Errorf("it has no image at %s", at)
	}
	golden := Golden{Image: found.Image, SHA256: found.SHA256, Release: found.Release}
	if err := golden.check(); err != nil {
		return Golden{}, fmt.Errorf("what is at %s can't be used: %w", at, err)
	}
	return golden, nil
}

// names are the other names of architectures: Kubernetes has its own, and streams have those of the Linux kernel.
var names = map[string]string{"amd64": "x86_64", "x86_64": "amd64", "arm64": "aarch64", "aarch64": "arm64"}

func (s *Stream) architecture(name string) (architecture, error) {
	one, ok := s.Architectures[name]
	other, alsoOk := s.Architectures[names[name]]
	switch {
	case ok && alsoOk:
		return one, fmt.Errorf("it has both architectures %s and %s, which are the same", name, names[name])
	case ok:
		return one, nil
	case alsoOk:
		return other, nil
	}
	return one, fmt.Errorf("it has no architecture %s", name)
}

var hexDigest = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)

func (g Golden) check() error {
	for _, v := range []string{g.Image, g.Release} {
		if len(v) > maxImage {
			return fmt.Errorf("the image and its release have at most %d bytes each", maxImage)
		}
		if strings.ContainsFunc(v, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }) {
			return errors.New("the image or its release has blanks or control characters in it")
		}
	}
	if g.SHA256 != "" && !hexDigest.MatchString(g.SHA256) {
		return errors.New("sha256 is not 64 hexadecimal digits")
	}
	return nil
}

// shown is the image as people see it: an address without what may give access to it, and with a digest of that instead, so that
// another one looks different.
func (g Golden) shown() string {
	address, err := url.Parse(g.Image)
	switch {
	case err != nil && strings.Contains(g.Image, "://"):
		return "an address that is none, sha256:" + digest(g.Image)
	case err != nil || address.Host == "" || address.User == nil && address.RawQuery == "" && address.Fragment == "":
		return g.Image
	}
	address.User, address.RawQuery, address.Fragment = nil, "", ""
	return address.String() + " (sha256:" + digest(g.Image) + ")"
}

// digest is a short one, to tell texts apart.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:6])
}

// value returns what of the image a field holds.
func (g Golden) value(v refitv1.BootImageValue) (string, error) {
	var out string
	switch v {
	case refitv1.ImageValue, "":
		out = g.Image
	case refitv1.SHA256Value:
		out = g.SHA256
	case refitv1.ReleaseValue:
		out = g.Release
	}
	if out == "" {
		return "", fmt.Errorf("the ConfigMap does not tell the %s of the image", v)
	}
	return out, nil
}

// documents are the streams of a ConfigMap, read when they are asked for.
type documents struct {
	name string
	data map[string]string
}

// find returns the image for machines of a version of Kubernetes. The most specific stream counts, also if what is asked for is
// only in another one: what is meant for other versions may not boot this one.
func (d documents) find(r *refitv1.BootImageRotation, kubernetes string) (Golden, error) {
	keys := keysFor(kubernetes)
	i := slices.IndexFunc(keys, func(k string) bool { _, ok := d.data[k]; return ok })
	if i < 0 {
		return Golden{}, fmt.Errorf("the ConfigMap %s has none of the keys %s; add one of them", d.name, strings.Join(keys, ", "))
	}
	stream, err := ParseStream(d.data[keys[i]])
	if err != nil {
		return Golden{}, fmt.Errorf("the key %s of the ConfigMap %s can't be read: %w", keys[i], d.name, err)
	}
	golden, err := stream.Find(r)
	if err != nil {
		return Golden{}, fmt.Errorf("the key %s of the ConfigMap %s does not tell the image: %w", keys[i], d.name, err)
	}
	return golden, nil
}

// keysFor returns the keys that a stream for a version of Kubernetes may have, the most specific one first.
func keysFor(kubernetes string) []string {
	v, err := version.ParseGeneric(kubernetes)
	if err != nil {
		return []string{streamKey} // no version, or none that a key could name
	}
	minor := fmt.Sprintf("%s.v%d.%d", streamKey, v.Major(), v.Minor())
	return []string{fmt.Sprintf("%s.%d", minor, v.Patch()), minor, streamKey}
}

package main

import (
	"debug/buildinfo"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is nobody's on any node. Pods that must not run as root take it.
const user = "65532:65532"

// architectures are those that there is an image for.
var architectures = []string{"amd64", "arm64"}

// agents are the programs that refit brings to nodes. Each image has all of them: nodes need not be of the server's architecture.
var agents = []string{"refit-node-linux-amd64", "refit-node-linux-arm64"}

// server is the name of the server for an architecture in the directory that it is taken from. In the image it is /refit.
func server(arch string) string { return "refit-linux-" + arch }

// contents are all programs that are put into the images, by their names below the directory that they are taken from.
func contents() []string {
	var names []string
	for _, arch := range architectures {
		names = append(names, server(arch))
	}
	for _, agent := range agents {
		names = append(names, "agents/"+agent)
	}
	return names
}

// images makes the image for each architecture.
func (o options) images() (map[string]v1.Image, error) {
	ofAgents, err := layerOf(o.agents(), o.at())
	if err != nil {
		return nil, err
	}
	out := map[string]v1.Image{}
	for _, arch := range architectures {
		program := filepath.Join(o.bin, server(arch))
		if err := builtFor(program, arch); err != nil {
			return nil, err
		}
		ofServer, err := layerOf([]file{{name: "refit", from: program}}, o.at())
		if err != nil {
			return nil, err
		}
		if out[arch], err = o.imageFor(arch, ofAgents, ofServer); err != nil {
			return nil, fmt.Errorf("make the image for %s: %w", arch, err)
		}
	}
	return out, nil
}

// imageFor makes an image of layers.
func (o options) imageFor(arch string, layers ...v1.Layer) (v1.Image, error) {
	var added []mutate.Addendum
	for _, l := range layers {
		added = append(added, mutate.Addendum{Layer: l, History: v1.History{Created: v1.Time{Time: o.at()}, CreatedBy: "make image"}})
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.Append(base, added...)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: o.at()}
	config.Config.Entrypoint, config.Config.User = []string{"/refit"}, user
	config.Config.Labels = o.labels()
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return nil, err
	}
	return mutate.Annotations(img, o.labels()).(v1.Image), nil
}

// index makes the image that each machine takes its own architecture's of.
func (o options) index(images map[string]v1.Image) v1.ImageIndex {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range architectures {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        images[arch],
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	return mutate.Annotations(index, o.labels()).(v1.ImageIndex)
}

// labels say what an image is, by the names of https://specs.opencontainers.org/image-spec/annotations/. Tools look for them at the index, at an
// image's manifest or in its configuration: all of them have the same.
func (o options) labels() map[string]string {
	labels := map[string]string{
		"title":       "refit",
		"description": "Updates Cluster API machines in place",
		"source":      "https://github.com/capi-refit/refit",
		"licenses":    "Apache-2.0",
		"version":     o.version,
		"revision":    o.revision,
		"created":     o.at().Format(time.RFC3339),
	}
	out := map[string]string{}
	for key, value := range maps.All(labels) {
		if value != "" {
			out["org.opencontainers.image."+key] = value
		}
	}
	return out
}

// builtFor reports whether a program runs on an architecture, in an image that has no libraries.
func builtFor(program, arch string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("read %s: %w; run `make image`", program, err)
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if settings["GOOS"] != "linux" || settings["GOARCH"] != arch || settings["CGO_ENABLED"] != "0" {
		return fmt.Errorf("%s is built for %s/%s with CGO_ENABLED=%s: an image without libraries needs GOOS=linux GOARCH=%s CGO_ENABLED=0",
			program, settings["GOOS"], settings["GOARCH"], settings["CGO_ENABLED"], arch)
	}
	return nil
}

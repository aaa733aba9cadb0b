package main

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// user is nobody's on any node. Pods that must not run as root take it.
const user = "65532:65532"

// agents are the programs that refit brings to nodes.
var agents = []string{"refit-node-linux-amd64", "refit-node-linux-arm64"}

// contents are all programs in the image, by their names there and below the directory that they are taken from.
func contents() []string {
	names := []string{"refit"}
	for _, agent := range agents {
		names = append(names, "agents/"+agent)
	}
	return names
}

// signatureSuffix makes the name of an agent's signature out of the agent's.
const signatureSuffix = ".sig"

// build makes the image out of a directory with the programs.
func build(bin, version string, created time.Time) (v1.Image, error) {
	arch, err := architecture(filepath.Join(bin, "refit"))
	if err != nil {
		return nil, err
	}
	files, err := pack(bin, created)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil })
	if err != nil {
		return nil, fmt.Errorf("make the layer: %w", err)
	}
	history := v1.History{Created: v1.Time{Time: created}, CreatedBy: "make image"}
	img, err := mutate.Append(empty.Image, mutate.Addendum{Layer: layer, History: history})
	if err != nil {
		return nil, fmt.Errorf("add the layer: %w", err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: created}
	config.Config.Entrypoint, config.Config.User = []string{"/refit"}, user
	config.Config.Labels = map[string]string{
		"org.opencontainers.image.source":   "https://github.com/capi-refit/refit",
		"org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.version":  version,
	}
	return mutate.ConfigFile(img, config)
}

// architecture is the one that a program was built for.
func architecture(program string) (string, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return "", fmt.Errorf("read %s: %w; run `make build`", program, err)
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if settings["GOOS"] != "linux" || settings["CGO_ENABLED"] != "0" {
		return "", fmt.Errorf("%s is built for %s with CGO_ENABLED=%s: an image without libraries needs GOOS=linux and CGO_ENABLED=0",
			program, settings["GOOS"], settings["CGO_ENABLED"])
	}
	return settings["GOARCH"], nil
}

// pack returns the layer's files, all of the same time and root's.
func pack(bin string, created time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	add := func(h tar.Header, content []byte) error {
		h.Mode, h.Size, h.ModTime, h.Format = 0o755, int64(len(content)), created, tar.FormatUSTAR
		if err := w.WriteHeader(&h); err != nil {
			return err
		}
		_, err := w.Write(content)
		return err
	}
	if err := add(tar.Header{Typeflag: tar.TypeDir, Name: "agents/"}, nil); err != nil {
		return nil, fmt.Errorf("pack the image: %w", err)
	}
	names := contents()
	for _, agent := range agents {
		names = append(names, "agents/"+agent+signatureSuffix)
	}
	slices.Sort(names[1:]) // a signature comes after its agent
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(bin, filepath.FromSlash(name)))
		if errors.Is(err, fs.ErrNotExist) && strings.HasSuffix(name, signatureSuffix) {
			continue // agents need not be signed
		}
		if err != nil {
			return nil, fmt.Errorf("%w; run `make build`", err)
		}
		if err := add(tar.Header{Typeflag: tar.TypeReg, Name: name}, content); err != nil {
			return nil, fmt.Errorf("pack the image: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("pack the image: %w", err)
	}
	return out.Bytes(), nil
}

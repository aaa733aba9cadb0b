package kubeadm

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
)

// file is one of a layer: with content, or with that of a file of this machine.
type file struct {
	name    string // without a slash in front
	mode    int64
	content []byte
	source  string
}

// writeLayer writes files into a tar file. It is there in full or not at all.
func writeLayer(path string, files []file) error {
	return writeWhole(path, func(w io.Writer) error {
		archive := tar.NewWriter(w)
		for _, f := range files {
			if err := f.write(archive); err != nil {
				return fmt.Errorf("writing %s: %w", f.name, err)
			}
		}
		return archive.Close()
	})
}

func (f file) write(w *tar.Writer) error {
	if f.source == "" {
		return writeEntry(w, f.name, f.mode, int64(len(f.content)), bytes.NewReader(f.content))
	}
	source, err := os.Open(f.source)
	if err != nil {
		return err
	}
	defer source.Close()
	info, err := source.Stat()
	if err != nil {
		return err
	}
	return writeEntry(w, f.name, f.mode, info.Size(), source)
}

func writeEntry(w *tar.Writer, name string, mode, size int64, content io.Reader) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: size, Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	_, err := io.Copy(w, content)
	return err
}

// writeWhole lets write fill a file, which appears when it is complete.
func writeWhole(path string, write func(io.Writer) error) error {
	partial, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".partial-")
	if err != nil {
		return err
	}
	defer os.Remove(partial.Name()) //nolint:errcheck // after success it is not there anymore
	if err := errors.Join(write(partial), partial.Close()); err != nil {
		return err
	}
	return os.Rename(partial.Name(), path)
}

// image is a container image made of tar files.
type image struct {
	name       string
	layers     []string
	entrypoint []string
	env        []string
}

// manifest is an image as `docker save` lists it.
type manifest struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// writeArchive writes images as `docker save` does, for `docker load` and `ctr images import`. What several images have in
// common is written once.
func writeArchive(w io.Writer, images []image) error {
	archive := tar.NewWriter(w)
	digests := map[string]string{}
	var manifests []manifest
	for _, i := range images {
		var diffs []string
		m := manifest{RepoTags: []string{i.name}}
		for _, layer := range i.layers {
			if digests[layer] == "" {
				digest, err := copyLayer(archive, layer)
				if err != nil {
					return fmt.Errorf("image %s: %w", i.name, err)
				}
				digests[layer] = digest
			}
			m.Layers = append(m.Layers, layerName(layer))
			diffs = append(diffs, digests[layer])
		}
		config, err := i.config(diffs)
		if err != nil {
			return fmt.Errorf("image %s: %w", i.name, err)
		}
		sum := sha256.Sum256(config)
		m.Config = hex.EncodeToString(sum[:]) + ".json"
		if err := writeEntry(archive, m.Config, 0o644, int64(len(config)), bytes.NewReader(config)); err != nil {
			return fmt.Errorf("image %s: %w", i.name, err)
		}
		manifests = append(manifests, m)
	}
	list, err := json.Marshal(manifests)
	if err != nil {
		return fmt.Errorf("listing images: %w", err)
	}
	if err := writeEntry(archive, "manifest.json", 0o644, int64(len(list)), bytes.NewReader(list)); err != nil {
		return fmt.Errorf("listing images: %w", err)
	}
	return archive.Close()
}

func layerName(path string) string { return filepath.Base(path) }

// copyLayer puts a layer into an archive and returns its digest.
func copyLayer(archive *tar.Writer, path string) (string, error) {
	layer, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer layer.Close()
	info, err := layer.Stat()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	if err := writeEntry(archive, layerName(path), 0o644, info.Size(), io.TeeReader(layer, sum)); err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}

func (i image) config(diffs []string) ([]byte, error) {
	return json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Entrypoint": i.entrypoint, "Env": i.env},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": diffs},
	})
}

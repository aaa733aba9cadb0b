package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// signatureSuffix makes the name of an agent's signature out of the agent's.
const signatureSuffix = ".sig"

// file is what is put into a layer: a directory, where it is taken from nowhere.
type file struct {
	name, from string
	optional   bool
}

// agents are the agents' layer, which all architectures share. Agents need not be signed.
func (o options) agents() []file {
	files := []file{{name: "agents/"}}
	for _, agent := range agents {
		name, from := "agents/"+agent, filepath.Join(o.bin, "agents", agent)
		files = append(files, file{name: name, from: from}, file{name: name + signatureSuffix, from: from + signatureSuffix, optional: true})
	}
	return files
}

func layerOf(files []file, created time.Time) (v1.Layer, error) {
	packed, err := pack(files, created)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed)), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, fmt.Errorf("make a layer: %w", err)
	}
	return layer, nil
}

// pack returns a layer's files, all of the same time and root's.
func pack(files []file, created time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		h, content := tar.Header{Typeflag: tar.TypeDir, Name: f.name}, []byte(nil)
		if f.from != "" {
			h.Typeflag = tar.TypeReg
			var err error
			if content, err = os.ReadFile(f.from); f.optional && errors.Is(err, fs.ErrNotExist) {
				continue
			} else if err != nil {
				return nil, fmt.Errorf("%w; run `make image`", err)
			}
		}
		h.Mode, h.Size, h.ModTime, h.Format = 0o755, int64(len(content)), created, tar.FormatUSTAR
		if err := w.WriteHeader(&h); err != nil {
			return nil, fmt.Errorf("pack the image: %w", err)
		}
		if _, err := w.Write(content); err != nil {
			return nil, fmt.Errorf("pack the image: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("pack the image: %w", err)
	}
	return out.Bytes(), nil
}

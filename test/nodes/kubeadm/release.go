package kubeadm

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
)

// ImageArchive is where a layer has the archive of the control plane's images.
const ImageArchive = "kind/images.tar"

// Place is where a layer, and so a machine, has a program: without a slash in front. A program that machines don't have is nowhere, "".
func Place(program string) string {
	if places[program] == "" {
		return ""
	}
	return path.Join(places[program], program)
}

// entry is one file of a tar file, read where it is.
type entry struct {
	*io.SectionReader
	io.Closer
}

// Open opens one file of a layer, without unpacking it.
func Open(layer, name string) (io.ReadSeekCloser, error) {
	source, err := os.Open(layer)
	if err != nil {
		return nil, err
	}
	found, err := find(source, name)
	if err != nil {
		return nil, fmt.Errorf("looking for %s in %s: %w", name, layer, errors.Join(err, source.Close()))
	}
	return entry{found, source}, nil
}

// find reads up to the beginning of a file in a tar file. The reader of tar files takes no more from its source than it has to, so that
// is where the source then stands.
func find(source *os.File, name string) (*io.SectionReader, error) {
	entries := tar.NewReader(source)
	for {
		header, err := entries.Next()
		if err != nil {
			return nil, err
		}
		if path.Clean(header.Name) != name {
			continue
		}
		begin, err := source.Seek(0, io.SeekCurrent)
		return io.NewSectionReader(source, begin, header.Size), err
	}
}

// WriteKubeProxy writes an archive with the image of one version's kube-proxy alone. There is none where kind's image is used.
//
// Its pods are on all nodes, and they all get a new image when the control plane has a new version: before a worker has one. It comes
// from a registry, for which this stands in.
func (i *Images) WriteKubeProxy(w io.Writer, version string) error {
	programs := i.options.Programs[version]
	if programs == nil {
		return fmt.Errorf("no image of kube-proxy %s was made here", version)
	}
	work, err := os.MkdirTemp(i.options.Dir, "kube-proxy-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work) //nolint:errcheck // it is in the way of nobody
	b := &build{version: version, programs: programs, base: i.base, work: work}
	proxy, err := b.controlPlaneImage("registry.k8s.io/kube-proxy:" + version)
	if err != nil {
		return fmt.Errorf("image of kube-proxy %s: %w", version, err)
	}
	return writeArchive(w, []image{proxy})
}

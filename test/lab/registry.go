package lab

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/capi-refit/refit/test/nodes/kubeadm"
)

// mirrored is the registry that machines have their images from, as the images' names say.
const mirrored = "registry.k8s.io"

// hostsDirs are where containerd looks for how it reaches a registry. By default that is a list of two directories, but when it pulls by
// its transfer service, containerd 2.3 takes the list for the name of one directory: see its issue 12808. The first is for a containerd
// that does not.
var hostsDirs = []string{"/etc/containerd/certs.d", "/etc/containerd/certs.d:/etc/docker/certs.d"}

// Registry has the images of releases of Kubernetes, and serves them over HTTP at an address that the machines of the Docker backend
// reach. In a real installation that is a mirror of registry.k8s.io.
type Registry struct {
	address string
	api     http.Handler
	blobs   blobs
	images  map[string]string // by the path of a manifest

	mu       sync.Mutex
	withheld bool
	served   map[string]int // by image
}

// Registry serves the images of versions until the lab stops: the very images that machines of these versions have from the beginning.
// There are none where kind's images are used: then there is a registry that has the images.
func (l *Lab) Registry(ctx context.Context, versions ...string) (*Registry, error) {
	if l.machines == nil {
		return nil, fmt.Errorf("serving images: the lab was started without the %s backend", Docker)
	}
	r := newRegistry()
	for _, version := range versions {
		layer := l.machines.images.Layer(version)
		if layer == "" {
			return nil, fmt.Errorf("serving images: those of %s were not made here", version)
		}
		if err := r.add(func() (io.ReadSeekCloser, error) { return kubeadm.Open(layer, kubeadm.ImageArchive) }); err != nil {
			return nil, fmt.Errorf("serving images of %s: %w", version, err)
		}
	}
	var err error
	if r.address, err = l.serve(ctx, r); err != nil {
		return nil, fmt.Errorf("serving images: %w", err)
	}
	l.progress("a registry with %d images is at http://%s", len(r.served), r.address)
	return r, nil
}

func newRegistry() *Registry {
	r := &Registry{blobs: blobs{}, images: map[string]string{}, served: map[string]int{}}
	r.api = registry.New(registry.WithBlobHandler(r.blobs), registry.Logger(log.New(io.Discard, "", 0)))
	return r
}

// HostsFiles are what a machine's containerd has to be given to pull from here what is named after registry.k8s.io: content by path. It
// reads them for each pull. There is no other registry in them, so it asks none when this one does not answer.
func (r *Registry) HostsFiles() map[string][]byte {
	files := map[string][]byte{}
	for _, dir := range hostsDirs {
		files[path.Join(dir, mirrored, "hosts.toml")] = fmt.Appendf(nil, "server = \"http://%s\"\ncapabilities = [\"pull\", \"resolve\"]\n", r.address)
	}
	return files
}

// Withhold has nothing be had, as from a registry that is overloaded, until it is called again with false.
func (r *Registry) Withhold(withheld bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.withheld = withheld
}

// Served returns how often the manifest of an image, such as registry.k8s.io/pause:3.10.2, was asked for and had.
func (r *Registry) Served(image string) (times int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	times, ok := r.served[image]
	if !ok {
		return 0, fmt.Errorf("the registry has no %s", image)
	}
	return times, nil
}

// ServeHTTP implements http.Handler.
func (r *Registry) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodGet && request.Method != http.MethodHead {
		http.Error(w, "nothing can be put into this registry", http.StatusMethodNotAllowed)
		return
	}
	if r.withholds(request) {
		http.Error(w, http.StatusText(http.StatusServiceUnavailable), http.StatusServiceUnavailable)
		return
	}
	r.api.ServeHTTP(w, request)
}

// withholds reports whether a request is not answered. If it is, and is for a manifest, that counts.
func (r *Registry) withholds(request *http.Request) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if image, ok := r.images[request.URL.Path]; ok && !r.withheld && request.Method == http.MethodGet {
		r.served[image]++
	}
	return r.withheld
}

// saved is an image as `docker save` lists it.
type saved struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// add takes in the images of an archive. What they consist of stays there.
func (r *Registry) add(open func() (io.ReadSeekCloser, error)) error {
	parts, err := partsOf(open)
	if err != nil {
		return err
	}
	list, err := parts["manifest.json"].read()
	if err != nil {
		return fmt.Errorf("reading the list of images: %w", err)
	}
	var images []saved
	if err := json.Unmarshal(list, &images); err != nil {
		return fmt.Errorf("reading the list of images: %w", err)
	}
	for _, i := range images {
		manifest, err := r.manifest(i, parts)
		if err != nil {
			return fmt.Errorf("image %v: %w", i.RepoTags, err)
		}
		for _, image := range i.RepoTags {
			if err := r.publish(image, manifest); err != nil {
				return fmt.Errorf("image %s: %w", image, err)
			}
		}
	}
	return nil
}

// manifest makes that of an image, and takes in what it refers to. Layers are not compressed, so their digests are in the image's
// configuration.
func (r *Registry) manifest(i saved, parts map[string]part) ([]byte, error) {
	content, err := parts[i.Config].read()
	if err != nil {
		return nil, fmt.Errorf("reading its configuration: %w", err)
	}
	digest, size, err := v1.SHA256(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	config, err := v1.ParseConfigFile(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("reading its configuration: %w", err)
	}
	if len(config.RootFS.DiffIDs) != len(i.Layers) {
		return nil, fmt.Errorf("it has %d layers, and %d in its configuration", len(i.Layers), len(config.RootFS.DiffIDs))
	}
	m := v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1,
		Config: v1.Descriptor{MediaType: types.OCIConfigJSON, Digest: digest, Size: size},
	}
	r.blobs[digest] = parts[i.Config]
	for n, digest := range config.RootFS.DiffIDs {
		layer, ok := parts[i.Layers[n]]
		if !ok {
			return nil, fmt.Errorf("its layer %s is not in the archive", i.Layers[n])
		}
		r.blobs[digest] = layer
		m.Layers = append(m.Layers, v1.Descriptor{MediaType: types.OCIUncompressedLayer, Digest: digest, Size: layer.size})
	}
	return json.Marshal(m)
}

// publish has a manifest be had under an image's name.
func (r *Registry) publish(image string, manifest []byte) error {
	tag, err := name.NewTag(image, name.StrictValidation)
	if err != nil {
		return err
	}
	if tag.RegistryStr() != mirrored {
		return fmt.Errorf("it is not one of %s", mirrored)
	}
	digest, _, err := v1.SHA256(bytes.NewReader(manifest))
	if err != nil {
		return err
	}
	at := path.Join("/v2", tag.RepositoryStr(), "manifests")
	put := httptest.NewRequest(http.MethodPut, path.Join(at, tag.TagStr()), bytes.NewReader(manifest))
	put.Header.Set("Content-Type", string(types.OCIManifestSchema1))
	answer := httptest.NewRecorder()
	if r.api.ServeHTTP(answer, put); answer.Code != http.StatusCreated {
		return fmt.Errorf("the registry does not take it: %d %s", answer.Code, answer.Body)
	}
	r.images[path.Join(at, tag.TagStr())], r.images[path.Join(at, digest.String())] = image, image
	r.served[image] = 0
	return nil
}

// part is one file of an archive, and where it is in there.
type part struct {
	archive     func() (io.ReadSeekCloser, error)
	begin, size int64
}

// partsOf finds the files of an archive. The reader of tar files takes no more from its source than it has to, so the source then stands
// where a file begins.
func partsOf(archive func() (io.ReadSeekCloser, error)) (map[string]part, error) {
	source, err := archive()
	if err != nil {
		return nil, err
	}
	defer source.Close() //nolint:errcheck // it was only read
	parts := map[string]part{}
	entries := tar.NewReader(source)
	for {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return parts, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the archive of images: %w", err)
		}
		begin, err := source.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, fmt.Errorf("reading the archive of images: %w", err)
		}
		parts[header.Name] = part{archive, begin, header.Size}
	}
}

func (p part) open() (io.ReadCloser, error) {
	if p.archive == nil {
		return nil, errors.New("it is not in the archive")
	}
	source, err := p.archive()
	if err != nil {
		return nil, err
	}
	if _, err := source.Seek(p.begin, io.SeekStart); err != nil {
		return nil, errors.Join(err, source.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(source, p.size), source}, nil
}

func (p part) read() ([]byte, error) {
	f, err := p.open()
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(f)
	return content, errors.Join(err, f.Close())
}

// blobs are what images consist of. It implements registry.BlobHandler, and nothing can be put into it.
type blobs map[v1.Hash]part

// Get implements registry.BlobHandler.
func (b blobs) Get(_ context.Context, _ string, digest v1.Hash) (io.ReadCloser, error) {
	p, ok := b[digest]
	if !ok {
		return nil, registry.ErrNotFound
	}
	return p.open()
}

// Stat implements registry.BlobStatHandler.
func (b blobs) Stat(_ context.Context, _ string, digest v1.Hash) (int64, error) {
	p, ok := b[digest]
	if !ok {
		return 0, registry.ErrNotFound
	}
	return p.size, nil
}

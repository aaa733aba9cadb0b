package kubeadm

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/capi-refit/refit/test/engine"
	"github.com/capi-refit/refit/test/nodes"
)

//go:embed image
var recipe embed.FS

const (
	release = "bookworm"

	// Repository is where all images made here are, in an engine.
	Repository = "refit-kubeadm"
)

// places says where a machine has its programs.
var places = map[string]string{
	"kubeadm": "usr/bin", "kubelet": "usr/bin", "kubectl": "usr/bin",
	"containerd": "usr/local/bin", "containerd-shim-runc-v2": "usr/local/bin", "ctr": "usr/local/bin", "crictl": "usr/local/bin",
	"ptp": "opt/cni/bin", "loopback": "opt/cni/bin", "host-local": "opt/cni/bin", "portmap": "opt/cni/bin",
}

// Programs by name: those of a machine, and those of the control plane's images.
type Programs map[string]string

// Options say which images to make.
type Options struct {
	// Dir keeps what was made.
	Dir string
	// Programs, as paths of executables, by Kubernetes version.
	Programs map[string]Programs
	// Published are the versions for which kind's images are used. See Published.
	Published []string
	// Progress gets a line for each thing that takes time.
	Progress io.Writer
}

// Images are what machines of some versions are made of, as files. Load puts them into an engine.
type Images struct {
	options Options
	key     string            // of the recipe
	base    string            // tar file of what all that are made here have in common; none if all are kind's
	layers  map[string]string // by version: the tar file on top
	names   map[string]string // by version
}

// Prepare makes what is not there yet. Several processes must not do this at the same time with one directory.
func Prepare(ctx context.Context, o Options) (*Images, error) {
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("making a place for images: %w", err)
	}
	i := &Images{options: o, layers: map[string]string{}, names: map[string]string{}}
	if err := i.makeBase(ctx); err != nil {
		return nil, fmt.Errorf("making the image of machines: %w", err)
	}
	for _, version := range o.Published {
		i.names[version] = fmt.Sprintf("%s/node:%s-kind-%s", Repository, version, i.key)
	}
	for _, version := range slices.Sorted(maps.Keys(o.Programs)) {
		if err := i.makeLayer(ctx, version); err != nil {
			return nil, fmt.Errorf("making the image of %s: %w", version, err)
		}
	}
	return i, nil
}

func (i *Images) makeBase(ctx context.Context) error {
	files, err := fs.Sub(recipe, "image")
	if err != nil {
		return err
	}
	debian := nodes.Debian{Release: release, Recipe: files, Progress: i.options.Progress}
	if i.key, err = debian.Key(); err != nil {
		return err
	}
	if len(i.options.Programs) == 0 {
		return nil
	}
	i.base = filepath.Join(i.options.Dir, "base-"+i.key+".tar")
	if isFile(i.base) {
		return nil
	}
	began := time.Now()
	i.say("making a Debian for kubeadm (first use, about 2 minutes)…")
	if err := debian.WriteRoot(ctx, i.base); err != nil {
		return err
	}
	i.say("made a Debian for kubeadm in %s", time.Since(began).Round(time.Second))
	return nil
}

// build makes the layer of one version.
type build struct {
	version    string
	programs   Programs
	base, work string
}

func (i *Images) makeLayer(ctx context.Context, version string) error {
	programs := i.options.Programs[version]
	key := i.layerKey(version, programs)
	i.names[version] = fmt.Sprintf("%s/node:%s-%s", Repository, version, key)
	layer := filepath.Join(i.options.Dir, fmt.Sprintf("node-%s-%s.tar", version, key))
	i.layers[version] = layer
	if isFile(layer) {
		return nil
	}
	began := time.Now()
	work, err := os.MkdirTemp(i.options.Dir, "build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work) //nolint:errcheck // it is in the way of nobody
	b := &build{version: version, programs: programs, base: i.base, work: work}
	archive := filepath.Join(work, "images.tar")
	if err := b.writeControlPlane(ctx, archive); err != nil {
		return err
	}
	files := []file{
		{name: "kind/images.tar", mode: 0o644, source: archive}, {name: "kind/version", mode: 0o644, content: []byte(version + "\n")},
	}
	for _, name := range slices.Sorted(maps.Keys(places)) {
		if programs[name] == "" {
			return fmt.Errorf("no program %s", name)
		}
		files = append(files, file{name: places[name] + "/" + name, mode: 0o755, source: programs[name]})
	}
	if err := writeLayer(layer, files); err != nil {
		return err
	}
	i.say("made a machine for %s in %s", version, time.Since(began).Round(time.Second))
	return removeOldLayers(layer, version)
}

// removeOldLayers removes a version's layers that earlier recipes have made. They are large, and made again in seconds.
func removeOldLayers(layer, version string) error {
	all, err := filepath.Glob(filepath.Join(filepath.Dir(layer), "node-"+version+"-*.tar"))
	if err != nil {
		return err
	}
	for _, old := range all {
		if old == layer {
			continue
		}
		if err := os.Remove(old); err != nil {
			return fmt.Errorf("removing an old layer: %w", err)
		}
	}
	return nil
}

// layerKey changes whenever the layer would. Programs are told apart by their paths: each build has its own.
func (i *Images) layerKey(version string, programs Programs) string {
	sum := sha256.New()
	_, _ = fmt.Fprintln(sum, i.key, version)
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		_, _ = fmt.Fprintln(sum, name, filepath.Base(filepath.Dir(programs[name])))
	}
	return hex.EncodeToString(sum.Sum(nil))[:12]
}

// Node is the name of the image for machines of a version.
func (i *Images) Node(version string) (string, error) {
	name, ok := i.names[version]
	if !ok {
		return "", fmt.Errorf("there are machines for %s only, not for %s", strings.Join(slices.Sorted(maps.Keys(i.names)), ", "), version)
	}
	return name, nil
}

// Layer is a tar file with what a machine of this version has in addition to Debian: kubeadm, kubelet, kubectl and, in
// kind/images.tar, the control plane's images, among others. A machine of another version needs no more for an upgrade. There
// is none, "", where kind's image is used.
func (i *Images) Layer(version string) string { return i.layers[version] }

// LoadBalancer is the image of the control plane's load balancer, as repository and tag: its name is always "haproxy".
func (i *Images) LoadBalancer() (repository, tag string) { return Repository, i.key }

func (i *Images) loadBalancer() string { return fmt.Sprintf("%s/haproxy:%s", Repository, i.key) }

// Load puts those images into an engine that it does not have, and removes what earlier recipes have made.
func (i *Images) Load(ctx context.Context, e engine.Engine) error {
	if err := i.removeOthers(ctx, e); err != nil {
		return fmt.Errorf("removing images that are not needed anymore: %w", err)
	}
	for _, version := range i.options.Published {
		if err := i.derive(ctx, e, version); err != nil {
			return fmt.Errorf("making the image of %s: %w", version, err)
		}
	}
	if i.base == "" {
		return i.adoptLoadBalancer(ctx, e)
	}
	var missing []image
	for _, one := range i.made() {
		if !e.HasImage(ctx, one.name) {
			missing = append(missing, one)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	began := time.Now()
	i.say("loading %d images into the engine…", len(missing))
	if err := load(ctx, e, missing); err != nil {
		return fmt.Errorf("loading images: %w", err)
	}
	i.say("loaded %d images in %s", len(missing), time.Since(began).Round(time.Second))
	return nil
}

// removeOthers removes images of ours that are not of these. They are large.
func (i *Images) removeOthers(ctx context.Context, e engine.Engine) error {
	out, err := e.Run(ctx, nil, "image", "ls", "--format", "{{.Repository}}:{{.Tag}}")
	if err != nil {
		return err
	}
	wanted := append(slices.Collect(maps.Values(i.names)), i.loadBalancer())
	for name := range strings.FieldsSeq(string(out)) {
		if !strings.HasPrefix(name, Repository+"/") || slices.Contains(wanted, name) {
			continue
		}
		if _, err := e.Run(ctx, nil, "image", "rm", name); err != nil {
			return err
		}
	}
	return nil
}

// made are the images that are made here.
func (i *Images) made() []image {
	all := []image{{name: i.loadBalancer(), layers: []string{i.base}, env: []string{searchPath}}}
	for _, version := range slices.Sorted(maps.Keys(i.layers)) {
		all = append(all, image{
			name: i.names[version], layers: []string{i.base, i.layers[version]}, entrypoint: []string{"/entrypoint"},
			env: []string{searchPath, "container=docker"},
		})
	}
	return all
}

// load writes images straight into an engine.
func load(ctx context.Context, e engine.Engine, images []image) error {
	reader, writer := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := writeArchive(writer, images)
		_ = writer.CloseWithError(err)
		written <- err
	}()
	_, err := e.Run(ctx, reader, "load")
	_ = reader.CloseWithError(errors.New("the engine reads no more")) // the writer is not to wait for it
	return errors.Join(err, <-written)
}

func (i *Images) say(format string, args ...any) {
	_, _ = fmt.Fprintf(i.options.Progress, format+"\n", args...)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

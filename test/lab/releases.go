package lab

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/capi-refit/refit/test/nodes/kubeadm"
)

// releasedPrograms are those of a release that a node runs.
var releasedPrograms = []string{"kubeadm", "kubelet", "kubectl"}

// ReleasedImages is the name of the archive of a release's images.
const ReleasedImages = "images.tar"

// Releases are releases of Kubernetes, served over HTTP at an address that the machines of the Docker backend reach. In a real
// installation that is a file server, or a mirror inside an air gap.
type Releases struct {
	lab     *Lab
	address string

	mu    sync.Mutex
	files map[string]*released // by version/architecture/name
}

// released is one file, as it is and as it is served.
type released struct {
	open   func() (io.ReadSeekCloser, error)
	sha256 string
	// instead is served in its place, if it is not nil.
	instead []byte
	// withheld reports that it can't be had.
	withheld bool
	served   int
}

// Releases serves the releases of versions until the lab stops. They have the very programs and images that machines of these
// versions have from the beginning.
func (l *Lab) Releases(ctx context.Context, versions ...string) (*Releases, error) {
	if l.machines == nil {
		return nil, fmt.Errorf("serving releases: the lab was started without the %s backend", Docker)
	}
	r := &Releases{lab: l, files: map[string]*released{}}
	for _, version := range versions {
		if err := r.add(ctx, version); err != nil {
			return nil, fmt.Errorf("serving release %s: %w", version, err)
		}
	}
	var err error
	if r.address, err = l.serve(ctx, r); err != nil {
		return nil, fmt.Errorf("serving releases: %w", err)
	}
	l.progress("releases are served at http://%s", r.address)
	return r, nil
}

// serve serves over HTTP until the lab stops, at an address that machines reach.
func (l *Lab) serve(ctx context.Context, handler http.Handler) (address string, err error) {
	host, err := l.machines.hostAddress(ctx)
	if err != nil {
		return "", err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return "", err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	err = l.unlessStopping(func() error {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = server.Serve(listener) // until it is closed
		}()
		l.onStop(func() error { err := server.Close(); <-done; return err })
		return nil
	})
	if err != nil {
		return "", errors.Join(err, listener.Close())
	}
	return listener.Addr().String(), nil
}

// hostAddress is where machines reach this computer: its address in their network.
func (m *machines) hostAddress(ctx context.Context) (string, error) {
	out, err := m.engine.Run(ctx, nil, "network", "inspect", "--format", "{{json .IPAM.Config}}", machineNetwork)
	if err != nil {
		return "", err
	}
	var networks []struct{ Subnet string }
	if err := json.Unmarshal(out, &networks); err != nil {
		return "", fmt.Errorf("reading network %s: %w", machineNetwork, err)
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("looking for this computer's addresses: %w", err)
	}
	var subnets []string
	for _, n := range networks {
		subnets = append(subnets, n.Subnet)
	}
	return addressIn(subnets, own)
}

// addressIn returns the first of the IPv4 addresses that is in one of the subnets.
func addressIn(subnets []string, own []net.Addr) (string, error) {
	for _, subnet := range subnets {
		_, network, err := net.ParseCIDR(subnet)
		if err != nil {
			return "", err
		}
		for _, address := range own {
			a, ok := address.(*net.IPNet)
			if ok && a.IP.To4() != nil && network.Contains(a.IP) {
				return a.IP.String(), nil
			}
		}
	}
	return "", fmt.Errorf("this computer has no address in the machines' network (%s): does the engine run elsewhere?", strings.Join(subnets, ", "))
}

// add takes in a release: out of the layer of its machines, or where kind's images are used, built here.
func (r *Releases) add(ctx context.Context, version string) error {
	if _, ok := machineModules[version]; !ok {
		return fmt.Errorf("there are releases of %s only", strings.Join(slices.Sorted(maps.Keys(machineModules)), ", "))
	}
	layer := r.lab.machines.images.Layer(version)
	if layer == "" {
		programs, err := buildReleased(ctx, r.lab.options.Progress, version)
		if err != nil {
			return err
		}
		for name, built := range programs {
			if err := r.put(version, name, func() (io.ReadSeekCloser, error) { return os.Open(built) }); err != nil {
				return err
			}
		}
		return nil
	}
	places := map[string]string{ReleasedImages: kubeadm.ImageArchive}
	for _, name := range releasedPrograms {
		places[name] = kubeadm.Place(name)
	}
	for name, place := range places {
		if err := r.put(version, name, func() (io.ReadSeekCloser, error) { return kubeadm.Open(layer, place) }); err != nil {
			return err
		}
	}
	return nil
}

// buildReleased builds the programs of a release that a node runs.
func buildReleased(ctx context.Context, progress io.Writer, version string) (map[string]string, error) {
	programs := map[string]string{}
	for _, p := range kubernetesPrograms {
		if !slices.Contains(releasedPrograms, p.name) {
			continue
		}
		built, err := cached(ctx, progress, Program(p.name), kubernetesSource(p.name, machineModules[version], version, p.cold))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		programs[p.name] = built
	}
	return programs, nil
}

func (r *Releases) put(version, name string, open func() (io.ReadSeekCloser, error)) error {
	f, err := open()
	if err != nil {
		return err
	}
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	r.files[key(version, name)] = &released{open: open, sha256: hex.EncodeToString(sum.Sum(nil))}
	return nil
}

func key(version, name string) string { return path.Join(version, runtime.GOARCH, name) }

// ProgramURL is that of all programs, with {version}, {arch} and {name} in it.
func (r *Releases) ProgramURL() string { return "http://" + r.address + "/{version}/{arch}/{name}" }

// ArchiveURLs are those of the images' archives, with {version} and {arch} in them. There are none where kind's images are used: then
// there is a registry that has the images.
func (r *Releases) ArchiveURLs() []string {
	for name := range r.files {
		if path.Base(name) == ReleasedImages {
			return []string{"http://" + r.address + "/{version}/{arch}/" + ReleasedImages}
		}
	}
	return nil
}

// Checksums are the SHA-256, in hex, of all that is served of a version, by name.
func (r *Releases) Checksums(version string) map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	sums := map[string]string{}
	for name, f := range r.files {
		if path.Dir(name) == path.Dir(key(version, "any")) {
			sums[path.Base(name)] = f.sum()
		}
	}
	return sums
}

func (f *released) sum() string {
	if f.instead == nil {
		return f.sha256
	}
	sum := sha256.Sum256(f.instead)
	return hex.EncodeToString(sum[:])
}

// Replace has something else served under a name. Without content it is the genuine file again.
func (r *Releases) Replace(version, name string, content []byte) error {
	return r.change(version, name, func(f *released) { f.instead = content })
}

// Withhold has a file not be had, as from a server that is overloaded, until it is called again with false.
func (r *Releases) Withhold(version, name string, withheld bool) error {
	return r.change(version, name, func(f *released) { f.withheld = withheld })
}

// Served returns how often a file was asked for and had.
func (r *Releases) Served(version, name string) (times int, err error) {
	err = r.change(version, name, func(f *released) { times = f.served })
	return times, err
}

func (r *Releases) change(version, name string, change func(*released)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, ok := r.files[key(version, name)]
	if !ok {
		return fmt.Errorf("no %s is served of %s", name, version)
	}
	change(f)
	return nil
}

// ServeHTTP implements http.Handler.
func (r *Releases) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	content, tag, status := r.find(strings.TrimPrefix(path.Clean(request.URL.Path), "/"))
	if content == nil {
		http.Error(w, http.StatusText(status), status)
		return
	}
	defer content.Close() //nolint:errcheck // it was only read
	w.Header().Set("ETag", `"`+tag+`"`)
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, request, "", time.Time{}, content) // parts of it, too
}

// find returns a file and what tells its content from others, or the status of the answer without one.
func (r *Releases) find(name string) (content io.ReadSeekCloser, tag string, status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, ok := r.files[name]
	switch {
	case !ok:
		return nil, "", http.StatusNotFound
	case f.withheld:
		return nil, "", http.StatusServiceUnavailable
	}
	f.served++
	if f.instead != nil {
		return inMemory{bytes.NewReader(f.instead)}, f.sum(), http.StatusOK
	}
	content, err := f.open()
	if err != nil {
		return nil, "", http.StatusInternalServerError
	}
	return content, f.sha256, http.StatusOK
}

type inMemory struct{ *bytes.Reader }

func (inMemory) Close() error { return nil }

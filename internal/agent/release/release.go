// Package release brings releases of Kubernetes to the node's disk, verifies them, installs their programs, and keeps what was
// installed before for going back.
//
// A release has a directory of its own. What is fetched gets its name there once its SHA-256 is right, and the release is one when
// its record, staged.json, has been written, which is done last. Until then draft.json notes what is done already, so that staging
// which was interrupted goes on where it was.
package release

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/node"
)

// Dir is where releases are kept on the node, each in a directory of its version's name.
const Dir = "/var/lib/refit/kubernetes"

// The programs of a release.
const (
	kubeadm = "kubeadm"
	kubelet = "kubelet"
	kubectl = "kubectl"
)

// Programs are those of a release that a node runs. kubectl may be missing.
var Programs = []string{kubeadm, kubelet, kubectl}

// Release is one that is on the node's disk, complete and verified.
type Release struct {
	// Version is for example "v1.36.3".
	Version string `json:"version"`
	// Kubeadm is a program that can be run before anything of the release is installed; empty when there is none.
	Kubeadm string `json:"kubeadm,omitempty"`
	// Extension reports that it is a system extension: what its programs say is what is merged, and not what the next boot merges.
	Extension bool `json:"extension,omitempty"`
	// Packages reports that it is packages of the system: that a program is there does not say that its package is set up, and locked as it
	// was. It is for the agent itself, and not among what is shown of a release.
	Packages bool `json:"-"`
	// Busy says who has the package manager by which it is installed, so that it can't be installed now; empty: nobody.
	Busy string `json:"-"`
}

// Store keeps releases.
type Store struct {
	host host.Host
	// free returns how many bytes can be written below a directory.
	free func(dir string) (uint64, error)
	// writable returns why nothing can be written into a directory.
	writable func(dir string) error
	// trust is how servers are verified. Nil: as the node's trust store says.
	trust *tls.Config
}

// New returns the Store of a node.
func New(h host.Host) *Store { return &Store{host: h, free: host.FreeSpace, writable: writable} }

// Stage fetches a release and verifies it, and what goes back from it to the one that is installed now. It disturbs nothing, can be
// repeated, and goes on where it was. tell is told what is under way, for people.
func (s *Store) Stage(ctx context.Context, src node.Source, controlPlane bool, tell func(string)) error {
	return s.bring(ctx, src, controlPlane, false, tell)
}

// StageBesideRun does what Stage does while a run is under way, which may install a release, or go back to one. It removes none, and leaves
// locks of packages alone: the run has taken off those that are off.
func (s *Store) StageBesideRun(ctx context.Context, src node.Source, controlPlane bool, tell func(string)) error {
	return s.bring(ctx, src, controlPlane, true, tell)
}

func (s *Store) bring(ctx context.Context, src node.Source, controlPlane, besideRun bool, tell func(string)) error {
	j, err := s.open(src, tell)
	if err == nil {
		j.besideRun = besideRun
		err = j.stage(ctx, controlPlane)
	}
	if err != nil {
		return fmt.Errorf("release %s of Kubernetes can't be staged from KubernetesSource %s: %w", src.Version, src.Name, err)
	}
	return nil
}

// Missing lists what of a release is not on the node's disk yet. Empty: all is there.
func (s *Store) Missing(src node.Source) ([]string, error) {
	j, err := s.open(src, nil)
	if err != nil {
		return nil, err
	}
	r, err := s.complete(src.Version)
	if err != nil {
		return nil, err
	}
	if r == nil {
		r = &record{Version: src.Version}
	}
	return append(j.supply.missing(r), j.missingImages(r)...), nil
}

// Find returns a release that is complete on the node's disk, or nil.
func (s *Store) Find(version string) (*Release, error) {
	r, err := s.complete(version)
	if err != nil || r == nil {
		return nil, err
	}
	found := &Release{Version: version, Extension: r.Form == extension, Packages: r.Form == debs || r.Form == rpms}
	if r.file(kubeadm) != nil {
		found.Kubeadm = filepath.Join(s.dir(version), kubeadm)
	}
	found.Busy = s.busy(r.Form)
	return found, nil
}

// Install makes programs of a release those that the node runs from now on. What runs goes on as it is until it is restarted. It can be
// repeated, and it is how one goes back too. A system extension has all programs in it, so that whichever is asked for brings the others
// too. kubectl is passed over if the release or the node has none. The note, if there is one, is for people. A LocksError says that the
// programs are installed.
func (s *Store) Install(ctx context.Context, version string, programs ...string) (note string, err error) {
	note, err = s.install(ctx, version, programs)
	if err == nil {
		return note, nil
	}
	how := "can't be installed"
	if lacksLocks(err) {
		how = "is installed, but not as it has to be"
	}
	return "", fmt.Errorf("%s of Kubernetes %s %s: %w", strings.Join(programs, ", "), version, how, err)
}

func (s *Store) install(ctx context.Context, version string, programs []string) (note string, err error) {
	for _, p := range programs {
		if !slices.Contains(Programs, p) {
			return "", fmt.Errorf("%q is none of %s", p, strings.Join(Programs, ", "))
		}
	}
	r, err := s.complete(version)
	if err != nil {
		return "", err
	}
	if r == nil {
		return "", fmt.Errorf("the release is not complete in %s; it has to be staged first", s.dir(version))
	}
	unmended := s.mend(ctx) // going back does not fail for a lock that an earlier attempt could not put back
	if note, err = s.installer(r.Form).install(ctx, r, programs); err != nil {
		return "", errors.Join(err, unmended)
	}
	if unmended != nil {
		if err := s.mend(ctx); err != nil {
			note = joined(note, err.Error())
		}
	}
	return note, nil
}

// joined returns the notes that there are.
func joined(notes ...string) string {
	return strings.Join(slices.DeleteFunc(notes, func(n string) bool { return n == "" }), "; ")
}

// Prune removes all releases but those. One whose system extension the node uses stays.
func (s *Store) Prune(keep ...string) error {
	entries, err := s.host.Disk.ReadDir(s.top())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	used, err := s.linked()
	if err != nil {
		return err
	}
	for _, e := range entries {
		dir := s.dir(e.Name())
		if !e.IsDir() || !versionForm.MatchString(e.Name()) || slices.Contains(keep, e.Name()) || slices.Contains(used, dir) {
			continue
		}
		// First what makes it one, so that a part of it never passes for a release.
		if err := s.host.Disk.Remove(filepath.Join(dir, staged)); err != nil {
			return err
		}
		if err := s.host.Disk.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}

// top is the directory of all releases.
func (s *Store) top() string { return filepath.Join(s.host.Private, filepath.Base(Dir)) }

// dir is the directory of a release.
func (s *Store) dir(version string) string { return filepath.Join(s.top(), version) }

// rootOwned returns the state of a program of root's that everybody may run. Root is number 0 where the node's files don't name it.
func (s *Store) rootOwned() (host.State, error) {
	want := host.State{Exists: true, Mode: 0o755}
	owners, err := host.LoadOwners(s.host.Root)
	if err != nil {
		return host.State{}, err
	}
	if uid, gid, err := owners.Resolve("root:root"); err == nil {
		want.UID, want.GID = uid, gid
	}
	return want, nil
}

// writable returns EROFS for a directory on a read-only file system, for root too.
func writable(dir string) error {
	const forWriting = 2
	return syscall.Access(dir, forWriting)
}

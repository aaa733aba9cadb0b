package release

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/capi-refit/refit/internal/node"
)

// supply is a way in which releases come to a node.
type supply interface {
	// missing lists, in words for people, which programs of the source are not in r.
	missing(r *record) []string
	// keep brings what is installed now into the directory of r, and notes it there.
	keep(ctx context.Context, r *record) error
	// stage brings what is missing into the directory of r, verifies it, and notes it there.
	stage(ctx context.Context, r *record) error
}

// installer installs releases of one form. The note, if there is one, is for people.
type installer interface {
	install(ctx context.Context, r *record, programs []string) (note string, err error)
}

// installer returns the one of a form that parseRecord knows.
func (s *Store) installer(f form) installer {
	switch f {
	case debs:
		return apt{packages{Store: s}}
	case rpms:
		return dnf{packages{Store: s}}
	case extension:
		return sysext{Store: s}
	default:
		return replacer{s}
	}
}

// job is the staging of one source.
type job struct {
	*Store
	source
	place  string
	fetch  fetcher
	tell   func(string)
	supply supply
	// besideRun reports that a run is under way on the node.
	besideRun bool
}

// open checks a source. It changes nothing.
func (s *Store) open(src node.Source, tell func(string)) (*job, error) {
	if !versionForm.MatchString(src.Version) {
		return nil, fmt.Errorf("%q is not a version of Kubernetes, as v1.36.3 is", src.Version)
	}
	if tell == nil {
		tell = func(string) {}
	}
	j := &job{Store: s, source: source{src}, place: s.dir(src.Version), tell: tell}
	client, err := newClient(src.Proxy, src.NoProxy, s.trust)
	if err != nil {
		return nil, err
	}
	j.fetch = fetcher{client: client, disk: s.host.Disk, clock: s.host.Clock, free: s.free, tell: tell}
	if j.supply, err = j.choose(); err != nil {
		return nil, err
	}
	return j, j.check()
}

// choose returns the supply that the source has.
func (j *job) choose() (supply, error) {
	var found []supply
	if j.Binaries != nil {
		found = append(found, binaries{programs{j}})
	}
	if j.Archive != nil {
		found = append(found, archive{programs{j}})
	}
	if j.Directory != nil {
		found = append(found, directory{programs{j}})
	}
	if j.Packages != nil {
		p := packages{Store: j.Store, job: j}
		switch j.Packages.Manager {
		case node.APT:
			found = append(found, apt{p})
		case node.DNF:
			found = append(found, dnf{p})
		default:
			return nil, fmt.Errorf("package manager %q is not known: it is apt or dnf", j.Packages.Manager)
		}
	}
	if j.SystemExtension != nil {
		found = append(found, sysext{Store: j.Store, job: j})
	}
	if len(found) != 1 {
		return nil, errors.New("it has to have exactly one of binaries, archive, directory, packages and systemExtension")
	}
	return found[0], nil
}

func (j *job) stage(ctx context.Context, controlPlane bool) error {
	if !j.besideRun {
		if err := j.mend(ctx); err != nil {
			return err
		}
	}
	if err := j.host.Disk.Mkdirs(j.place, 0o700); err != nil {
		return err
	}
	j.host.Disk.Sweep(j.place) // of one that was interrupted
	if err := j.keepInstalled(ctx); err != nil {
		return fmt.Errorf("what is installed now can't be kept for going back: %w", err)
	}
	r, err := j.begin()
	if err != nil {
		return err
	}
	if len(j.supply.missing(r)) > 0 {
		// What is there is going to be replaced. Until that is done it is no release.
		if err := j.host.Disk.Remove(filepath.Join(j.place, staged)); err != nil {
			return err
		}
		if err := j.supply.stage(ctx, r); err != nil {
			return err
		}
		if err := j.save(r, draft); err != nil {
			return err
		}
	}
	if err := j.images(ctx, r, controlPlane); err != nil {
		return err
	}
	return j.finish(r)
}

// begin returns the record to go on with.
func (j *job) begin() (*record, error) {
	for _, name := range []string{draft, staged} {
		if r, err := j.load(j.src().Version, name); err != nil || r != nil {
			return r, err
		}
	}
	return &record{Version: j.src().Version}, nil
}

// finish makes what was staged a release.
func (j *job) finish(r *record) error {
	if left := append(j.supply.missing(r), j.missingImages(r)...); len(left) > 0 {
		return fmt.Errorf("%s did not come", strings.Join(left, ", "))
	}
	if err := j.save(r, staged); err != nil {
		return err
	}
	parts, err := j.ending(j.place, partSuffix)
	if err != nil {
		return err
	}
	for _, name := range append(parts, filepath.Join(j.place, draft)) {
		if err := j.host.Disk.Remove(name); err != nil {
			return err
		}
	}
	return nil
}

// keepInstalled makes what is installed now a release, if it is none yet.
func (j *job) keepInstalled(ctx context.Context) error {
	version, err := j.installedVersion(ctx)
	if err != nil || version == j.src().Version { // one that is half installed goes back to another
		return err
	}
	if !j.besideRun {
		if err := j.makeRoom(ctx, version); err != nil {
			return err
		}
	}
	if was, err := j.complete(version); err != nil || was != nil {
		return err
	}
	j.tell("keeping " + version + ", which is installed now")
	dir := j.dir(version)
	if err := j.host.Disk.Mkdirs(dir, 0o700); err != nil {
		return err
	}
	j.host.Disk.Sweep(dir)
	r := &record{Version: version}
	if err := j.supply.keep(ctx, r); err != nil {
		return err
	}
	if !r.usable() {
		return errors.New("it has no kubelet")
	}
	return j.save(r, staged)
}

// makeRoom removes releases that nobody goes back to. One goes back to what is installed, but to the kubelet that runs where that is another
// one: an attempt before this has then come neither further nor back. As long as it is not known which one runs, none is removed.
func (j *job) makeRoom(ctx context.Context, installed string) error {
	running, err := j.runningVersion(ctx)
	if err != nil {
		return nil //nolint:nilerr // the next one that is staged makes room
	}
	return j.Prune(installed, running, j.src().Version)
}

// clear makes an empty directory within that of a release.
func (s *Store) clear(dir string) error {
	if err := s.host.Disk.RemoveAll(dir); err != nil {
		return err
	}
	return s.host.Disk.Mkdirs(dir, 0o700)
}

// ending returns the files of a directory whose names end so, sorted by name. A directory that is not there has none.
func (s *Store) ending(dir, suffix string) ([]string, error) {
	entries, err := s.host.Disk.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), suffix) {
			all = append(all, filepath.Join(dir, e.Name()))
		}
	}
	return all, nil
}

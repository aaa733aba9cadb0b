package release

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
)

// pending returns the packages of a release by which those programs come to be what the node has, and what these need. Empty: the node
// has them. version returns that of an installed package, "" if it is not there.
func (p packages) pending(ctx context.Context, r *record, programs []string, version func(name string) (string, error)) ([]pkg, error) {
	var all []pkg
	for _, name := range programs {
		of := r.pkg(name)
		if of == nil && name == kubectl {
			continue
		}
		if of == nil {
			return nil, fmt.Errorf("the release has no package %s", name)
		}
		has, err := version(name)
		if err != nil {
			return nil, err
		}
		// What the package manager says of a program does not count alone: going back may have put another one in its place.
		if has != of.Version || !p.runs(ctx, name, r.Version) {
			all = append(all, *of)
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	others, err := needed(r, version)
	return append(all, others...), err
}

// needed returns the packages of a release that are not programs of Kubernetes, and that the node does not have.
func needed(r *record, version func(name string) (string, error)) ([]pkg, error) {
	var all []pkg
	for _, of := range r.Packages {
		if slices.Contains(Programs, of.Name) {
			continue
		}
		has, err := version(of.Name)
		if err != nil {
			return nil, err
		}
		if has != of.Version {
			all = append(all, of)
		}
	}
	return all, nil
}

// runs reports whether the node's program says that version.
func (p packages) runs(ctx context.Context, name, version string) bool {
	at, err := p.installed(name)
	if err != nil || at == "" {
		return false
	}
	said, err := p.says(ctx, name, at)
	return err == nil && said == version
}

// verify returns the files of packages after it has seen that they are still what was staged.
func (p packages) verify(r *record, all []pkg) ([]string, error) {
	var files []string
	for _, of := range all {
		at := filepath.Join(p.dir(r.Version), of.File)
		sum, _, err := digest(p.host.Disk, at)
		if err != nil {
			return nil, err
		}
		if !r.has(of.File, sum) {
			return nil, fmt.Errorf("%s is no longer what was staged: stage the release again", at)
		}
		files = append(files, at)
	}
	return files, nil
}

// ended returns how an installation has ended that err has come of. Locks that did not come back say nothing of the programs, so these are
// looked at all the same; what is wrong with them counts alone, since it is no matter of locks.
func (p packages) ended(ctx context.Context, r *record, programs []string, err error) error {
	if err != nil && !lacksLocks(err) {
		return err
	}
	if failure := p.done(ctx, r, programs); failure != nil {
		return failure
	}
	return err
}

// done returns an error unless the node's programs are of the release.
func (p packages) done(ctx context.Context, r *record, programs []string) error {
	for _, name := range programs {
		if name != kubectl && !p.runs(ctx, name, r.Version) {
			return fmt.Errorf("its package is installed, but the node's %s does not say %s: is there another one in its place?", name, r.Version)
		}
	}
	return nil
}

package release

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// install implements installer. apt gets the files that were staged, and no repository, so it asks nobody. Conffiles that were edited stay.
func (a apt) install(ctx context.Context, r *record, programs []string) (note string, err error) {
	if note, err = a.settle(ctx, r); err != nil {
		return "", err
	}
	installed, err := a.versions(ctx)
	if err != nil {
		return "", err
	}
	all, err := a.pending(ctx, r, programs, func(name string) (string, error) { return installed[name], nil })
	if err != nil || len(all) == 0 {
		return note, err
	}
	others, err := a.transact(ctx, r, all)
	return joined(note, others), a.ended(ctx, r, programs, err)
}

// transact installs packages. The note says what failed of others.
func (a apt) transact(ctx context.Context, r *record, all []pkg) (note string, err error) {
	files, err := a.verify(r, all)
	if err != nil {
		return "", err
	}
	var names []string
	for _, of := range all {
		names = append(names, of.Name)
	}
	args := slices.Concat([]string{
		"install", "-q", "-y", "--reinstall", "--allow-downgrades", "--allow-change-held-packages", "--no-install-recommends", "--no-remove",
		"-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold",
		"-o", "Dir::Etc::sourcelist=/dev/null", "-o", "Dir::Etc::sourceparts=/dev/null",
	}, calm, files)
	err = a.unlocked(ctx, debs, names, func() error {
		failure := a.alone(ctx, debs, func() error {
			_, err := a.call(ctx, "apt-get", args...)
			return err
		})
		if failure == nil {
			return nil
		}
		if err := a.arrived(ctx, r, all); err != nil {
			return errors.Join(failure, err)
		}
		note = ofOthers(failure)
		return nil
	})
	return note, err
}

// arrived returns an error unless the node has packages of a release, set up, and runs the programs in them. apt-get sets up what another
// package has left to be set up too, and fails if that fails, with the packages that it was asked for installed.
func (a apt) arrived(ctx context.Context, r *record, all []pkg) error {
	installed, err := a.versions(ctx)
	if err != nil {
		return err
	}
	var away []string
	for _, of := range all {
		if installed[of.Name] != of.Version || slices.Contains(Programs, of.Name) && !a.runs(ctx, of.Name, r.Version) {
			away = append(away, of.Name+" "+of.Version)
		}
	}
	if len(away) > 0 {
		return fmt.Errorf("the node does not have %s installed and running", strings.Join(away, ", "))
	}
	return nil
}

// ofOthers is the note of a failure that is not about the packages of Kubernetes.
func ofOthers(failure error) string {
	return fmt.Sprintf("the packages of Kubernetes are installed, but another package of the node could not be set up: %v "+
		"(see dpkg --audit on the node, and repair it)", failure)
}

// settle ends what dpkg was in the midst of when it was killed: until then it refuses everything, or apt can't find the package that is to be
// installed, because dpkg has it already, but not set up. The note says what failed of packages that are not of the release.
func (a apt) settle(ctx context.Context, r *record) (note string, err error) {
	unfinished, err := a.unfinished(ctx, r)
	if err != nil || !unfinished {
		return "", err
	}
	failure := a.alone(ctx, debs, func() error {
		_, err := a.call(ctx, "dpkg", "--force-confdef", "--force-confold", "--configure", "-a")
		return err
	})
	if failure == nil {
		return "", nil
	}
	if unfinished, err = a.unfinished(ctx, r); err != nil || unfinished {
		return "", errors.Join(failure, err)
	}
	return ofOthers(failure), nil
}

// unfinished reports whether dpkg was killed in the midst of something, or has to set up a package of a release yet.
func (a apt) unfinished(ctx context.Context, r *record) (bool, error) {
	entries, err := a.host.ReadDir("/var/lib/dpkg/updates")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	unfinished := len(entries) > 0 // which the call that puts back holds ends
	err = a.each(ctx, func(name, _, status string) {
		ours := slices.Contains(Programs, name) || r.pkg(name) != nil
		unfinished = unfinished || ours && (status == "unpacked" || status == "half-configured" || strings.HasPrefix(status, "triggers-"))
	})
	return unfinished, err
}

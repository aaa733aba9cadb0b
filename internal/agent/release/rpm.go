package release

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	rpmversion "github.com/knqyf263/go-rpm-version"

	"github.com/capi-refit/refit/internal/agent/host"
)

// queryForm has rpm show a package, with its version almost as dnf has it, and when it was installed.
const queryForm = "%{NAME} %|EPOCH?{%{EPOCH}:}|%{VERSION}-%{RELEASE} %{ARCH} %{INSTALLTIME}\n"

// shown is a package as rpm shows it.
type shown struct {
	name, version, arch string
	// since is when it was installed, in seconds. 0: it is a file.
	since int64
}

// label is what rpm knows an installed package by.
func (s shown) label() string {
	version := rpmversion.NewVersion(s.version)
	return fmt.Sprintf("%s-%s-%s.%s", s.name, version.Version(), version.Release(), s.arch)
}

// older reports whether a version of a package of rpm's, with or without an epoch, is older than another one.
func older(a, b string) bool { return rpmversion.NewVersion(a).LessThan(rpmversion.NewVersion(b)) }

// query returns the packages that rpm shows, the one that was installed last at the end. That a package is not installed is no error.
func (d dnf) query(ctx context.Context, args ...string) ([]shown, error) {
	out, err := d.manage(ctx, host.Command{Name: "rpm", Args: slices.Concat([]string{"-q", "--qf", queryForm}, args)})
	if strings.Contains(string(out), "is not installed") {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []shown
	for line := range strings.Lines(string(out)) {
		columns := strings.Fields(line)
		if len(columns) != 4 {
			return nil, fmt.Errorf("rpm does not tell the version of %s", args[len(args)-1])
		}
		// dnf leaves out an epoch of 0 that a package states.
		of := shown{name: columns[0], version: strings.TrimPrefix(columns[1], "0:"), arch: columns[2]}
		of.since, _ = strconv.ParseInt(columns[3], 10, 64) // a file has none
		all = append(all, of)
	}
	slices.SortStableFunc(all, func(a, b shown) int { return cmp.Compare(a.since, b.since) })
	return all, nil
}

// version returns that of an installed package, or "".
func (d dnf) version(ctx context.Context, name string) (string, error) {
	all, err := d.query(ctx, name)
	if err != nil || len(all) == 0 {
		return "", err
	}
	return all[len(all)-1].version, nil
}

// concerned are the packages that installing a release can change.
func concerned(r *record) []string {
	names := slices.Clone(Programs)
	for _, of := range r.Packages {
		names = append(names, of.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// settle ends what rpm was in the midst of when it was killed: it has the new package then, and the old one still, which dnf's own verbs
// don't mend. Files that both have stay. A package of another architecture is another one.
func (d dnf) settle(ctx context.Context, names []string) error {
	for _, name := range names {
		all, err := d.query(ctx, name)
		if err != nil {
			return err
		}
		for i, of := range all {
			if !slices.ContainsFunc(all[i+1:], func(later shown) bool { return later.arch == of.arch }) {
				continue
			}
			err := d.alone(ctx, rpms, func() error {
				_, err := d.manage(ctx, host.Command{Name: "rpm", Args: []string{"-e", "--nodeps", of.label()}})
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

package release

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/repository"
)

// localFile is how the URI of a directory begins in a list of apt's.
var localFile = regexp.MustCompile(`(?mi)(^deb\s+(?:\[[^\]\n]*\]\s+)?|^URIs:\s*)file:`)

// apt is Debian's and Ubuntu's.
type apt struct{ packages }

// calm are options by which a call leaves no trace but what it is for: apt's caches of what it knows are not rewritten, and what it
// downloads need not be readable for a user without rights. It waits for other calls of dpkg.
var calm = []string{
	"-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=", "-o", "APT::Sandbox::User=root",
	"-o", fmt.Sprintf("DPkg::Lock::Timeout=%d", int(patience.Seconds())),
}

// strict are options by which apt takes nothing without a signature, whatever the node's apt.conf allows (apt-secure(8)). They go with a
// source's own repository, whose text can't allow it either (see package repository). For the node's own repositories the node's configuration decides.
var strict = []string{
	"-o", "APT::Get::AllowUnauthenticated=false", "-o", "Acquire::AllowInsecureRepositories=false",
	"-o", "Acquire::AllowWeakRepositories=false", "-o", "Acquire::AllowDowngradeToInsecureRepositories=false",
}

// missing implements supply.
func (a apt) missing(r *record) []string { return a.lacking(r, debs) }

// keep implements supply.
func (a apt) keep(ctx context.Context, r *record) error {
	versions, err := a.versions(ctx)
	if err != nil {
		return err
	}
	if versions[kubelet] == "" {
		return errors.New("the kubelet is not of a package, so apt can't replace it: use a KubernetesSource with binaries, archive or directory")
	}
	r.Form = debs
	chosen := map[string]string{}
	for _, name := range Programs {
		if versions[name] != "" {
			chosen[name] = versions[name]
		}
	}
	err = a.download(ctx, r, calm, chosen)
	return a.orCopies(ctx, r, err)
}

// stage implements supply.
func (a apt) stage(ctx context.Context, r *record) error {
	r.become(debs)
	options, err := a.sources(ctx)
	if err != nil {
		return err
	}
	installed, err := a.versions(ctx)
	if err != nil {
		return err
	}
	chosen := map[string]string{}
	for _, name := range Programs {
		if name == kubectl && installed[name] == "" {
			continue
		}
		if chosen[name], err = a.choose(ctx, options, name); err != nil {
			return err
		}
	}
	a.tell("downloading the packages of Kubernetes " + a.Version)
	if err := a.download(ctx, r, options, chosen); err != nil {
		return err
	}
	return a.look(ctx, r, a.openDeb)
}

// sources returns the options by which apt has the source's repository and no other, or the node's own where the source has none, and
// brings its lists up to date.
func (a apt) sources(ctx context.Context) ([]string, error) {
	a.Packages = a.copying()
	list, _, err := a.repository(func(text string) string {
		if repository.Deb822(text) {
			return "repository.sources"
		}
		return "repository.list"
	})
	if err != nil {
		return nil, err
	}
	options := slices.Clone(calm)
	if list != "" {
		lists := filepath.Join(a.place, "lists")
		if err := a.host.Disk.Mkdirs(filepath.Join(lists, "partial"), 0o700); err != nil {
			return nil, err
		}
		options = append(options, "-o", "Dir::Etc::sourcelist="+list, "-o", "Dir::Etc::sourceparts=/dev/null", "-o", "Dir::State::lists="+lists)
		options = append(options, strict...)
	}
	a.tell("asking the repository for the packages of Kubernetes")
	args := slices.Concat([]string{"update", "-q"}, options)
	if list != "" { // others of the node's own may be away
		args = append(args, "-o", "APT::Update::Error-Mode=any")
	}
	var shared []string
	if list == "" { // lists of the node's own
		shared = append(shared, listsLock)
	}
	err = a.patient(ctx, func() string { return a.locker(shared...) }, func() error {
		_, err := a.call(ctx, "apt-get", args...)
		return err
	})
	return options, err
}

// copying returns the packages with a repository from which files come to where they are asked for: those of a "file:" stay where they
// are, those of a "copy:" don't, and the two are the same otherwise (sources.list(5)).
func (a apt) copying() *node.Packages {
	of := *a.Packages
	of.Repository = localFile.ReplaceAllString(of.Repository, "${1}copy:")
	return &of
}

// choose returns the newest version of a package that the source's pattern matches.
func (a apt) choose(ctx context.Context, options []string, name string) (string, error) {
	out, err := a.call(ctx, "apt-cache", slices.Concat([]string{"madison"}, options, []string{name})...)
	if err != nil {
		return "", err
	}
	less := func(x, y string) (bool, error) {
		// It fails when the comparison does not hold; that it can't be run shows in the other direction.
		if _, err := a.call(ctx, "dpkg", "--compare-versions", x, "lt", y); err == nil {
			return true, nil
		}
		_, err := a.call(ctx, "dpkg", "--compare-versions", x, "ge", y)
		return false, err
	}
	version, err := newest(madison(string(out), name), a.pattern(), less)
	if err == nil && version == "" {
		err = fmt.Errorf("no version of package %s matches %q: see what apt-cache madison %s shows, and the source's repository", name, a.pattern(), name)
	}
	return version, err
}

// madison returns the versions in a table of apt-cache's: "kubelet | 1.36.3-1.1 | https://example.com/deb  Packages".
func madison(table, name string) []string {
	var all []string
	for line := range strings.Lines(table) {
		columns := strings.Split(line, "|")
		if len(columns) < 3 || strings.TrimSpace(columns[0]) != name || strings.HasSuffix(strings.TrimSpace(columns[2]), "Sources") {
			continue
		}
		all = append(all, strings.TrimSpace(columns[1]))
	}
	return all
}

// download brings packages, and what they need that the node does not have, into the directory of a release. apt verifies them. Those that
// are installed already come too.
func (a apt) download(ctx context.Context, r *record, options []string, chosen map[string]string) error {
	dir := filepath.Join(a.dir(r.Version), packageDir)
	if err := a.host.Disk.Mkdirs(filepath.Join(dir, "partial"), 0o700); err != nil {
		return err
	}
	args := slices.Concat([]string{
		"install", "-q", "-y", "--download-only", "--reinstall", "--allow-downgrades", "--allow-change-held-packages",
		"--no-install-recommends", "--no-remove", "-o", "Dir::Cache::archives=" + dir,
	}, options)
	for _, name := range Programs {
		if chosen[name] != "" {
			args = append(args, name+"="+chosen[name])
		}
	}
	none := func() string { return "" } // it locks directories of its own, and tells about others
	err := a.patient(ctx, none, func() error {
		_, err := a.call(ctx, "apt-get", args...)
		return err
	})
	if err != nil {
		return err
	}
	return a.collect(r, ".deb", chosen, func(file string) (string, string, error) {
		out, err := a.call(ctx, "dpkg-deb", "--show", "--showformat=${Package} ${Version}", file)
		name, version, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
		return name, version, err
	})
}

// openDeb reads the files of a package.
func (a apt) openDeb(ctx context.Context, file string, each func(e entry) error) error {
	return a.stream(ctx, host.Command{Name: "dpkg-deb", Args: []string{"--fsys-tarfile", file}}, func(r io.Reader) error {
		return readTar(r, each)
	})
}

// versions returns those of the packages that are installed, by name.
func (a apt) versions(ctx context.Context) (map[string]string, error) {
	all := map[string]string{}
	err := a.each(ctx, func(name, version, status string) {
		if status == "installed" {
			all[name] = version
		}
	})
	return all, err
}

// each calls do for each package that dpkg knows.
func (a apt) each(ctx context.Context, do func(name, version, status string)) error {
	out, err := a.call(ctx, "dpkg-query", "--show", "--showformat=${Package} ${Version} ${db:Status-Status}\n")
	for line := range strings.Lines(string(out)) {
		if columns := strings.Fields(line); len(columns) == 3 {
			do(columns[0], columns[1], columns[2])
		}
	}
	return err
}

// call runs a program of apt's or dpkg's.
func (a apt) call(ctx context.Context, name string, args ...string) ([]byte, error) {
	return a.manage(ctx, host.Command{Name: name, Args: args})
}

package release

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
)

// dnf is that of Fedora and Red Hat's systems, of version 4. Version 5 does the same but for locks, see versionLocks.
type dnf struct{ packages }

// everything has dnf not pass over packages that the node's configuration excludes, as Kubernetes' documentation has it do. Version 4 says
// "all" for that, and version 5 "*".
const everything = "--setopt=disable_excludes=all,*"

// verifiedBefore has dnf not verify the signatures of files once more, as localpkg_gpgcheck of a hardened node has it do (dnf.conf(5)): it would do
// so with the keys that the node's rpm has, and a source's key is not among them. It is only for files whose signature staging has verified,
// and whose digest is still the same.
const verifiedBefore = "--setopt=localpkg_gpgcheck=False"

// missing implements supply.
func (d dnf) missing(r *record) []string { return d.lacking(r, rpms) }

// keep implements supply.
func (d dnf) keep(ctx context.Context, r *record) error {
	r.Form = rpms
	chosen := map[string]string{}
	for _, name := range Programs {
		version, err := d.version(ctx, name)
		if err != nil {
			return err
		}
		if version != "" {
			chosen[name] = version
		}
	}
	if chosen[kubelet] == "" {
		return errors.New("the kubelet is not of a package, so dnf can't replace it: use a KubernetesSource with binaries, archive or directory")
	}
	options, err := d.unhindered(ctx)
	if err != nil {
		return err
	}
	return d.orCopies(ctx, r, d.download(ctx, r, options, chosen, ""))
}

// stage implements supply.
func (d dnf) stage(ctx context.Context, r *record) error {
	r.become(rpms)
	options, err := d.unhindered(ctx)
	if err != nil {
		return err
	}
	options, key, err := d.sources(options)
	if err != nil {
		return err
	}
	if err := d.refresh(ctx, options); err != nil {
		return err
	}
	chosen := map[string]string{}
	for _, name := range Programs {
		if has, err := d.version(ctx, name); err != nil {
			return err
		} else if name == kubectl && has == "" {
			continue
		}
		if chosen[name], err = d.choose(ctx, options, name); err != nil {
			return err
		}
	}
	d.tell("downloading the packages of Kubernetes " + d.Version)
	if err := d.download(ctx, r, options, chosen, key); err != nil {
		return err
	}
	return d.look(ctx, r, d.openRPM)
}

// sources adds the options by which dnf has the source's repository and no other, or the node's own where the source has none, and returns
// where the source's key is.
func (d dnf) sources(options []string) (with []string, key string, err error) {
	repos := filepath.Join(d.place, "repositories")
	if err := d.clear(repos); err != nil {
		return nil, "", err
	}
	list, key, err := d.repository(func(string) string { return filepath.Join("repositories", "refit-kubernetes.repo") })
	if list != "" {
		// Many a node passes over a repository that is away, or is signed by another key.
		options = append(options, "--setopt=reposdir="+repos, "--setopt=skip_if_unavailable=False")
	}
	return options, key, err
}

// unhindered returns the options by which dnf does not pass over packages that the node's configuration excludes, or that are locked.
func (d dnf) unhindered(ctx context.Context) ([]string, error) {
	options := []string{"-y", everything}
	locked, err := versionLocks{d.Store}.locked(ctx, Programs)
	if err == nil && len(locked) > 0 {
		options = append(options, "--disableplugin=versionlock")
	}
	return options, err
}

// refresh has dnf ask the repositories again. It goes by what it knows of them for two days otherwise.
func (d dnf) refresh(ctx context.Context, options []string) error {
	d.tell("asking the repository for the packages of Kubernetes")
	_, err := d.call(ctx, slices.Concat([]string{"-q"}, options, []string{"--refresh", "makecache"})...)
	return err
}

// choose returns the newest version of a package that the source's pattern matches.
func (d dnf) choose(ctx context.Context, options []string, name string) (string, error) {
	out, err := d.call(ctx, slices.Concat([]string{"-q"}, options, []string{"list", "--showduplicates", name})...)
	if err != nil {
		return "", err
	}
	version, err := newest(listed(string(out), name), d.pattern(), func(a, b string) (bool, error) { return older(a, b), nil })
	if err == nil && version == "" {
		err = fmt.Errorf("no version of package %s matches %q: see what dnf list --showduplicates %s shows, and the source's repository",
			name, d.pattern(), name)
	}
	return version, err
}

// listed returns the versions in a table of dnf's: "kubelet.x86_64  1.36.3-150500.1.1  kubernetes".
func listed(table, name string) []string {
	var all []string
	for line := range strings.Lines(table) {
		columns := strings.Fields(line)
		if len(columns) < 3 {
			continue
		}
		if of, arch, ok := strings.Cut(columns[0], "."); ok && of == name && arch != "src" {
			all = append(all, columns[1])
		}
	}
	return all
}

// download brings packages, and what they need that the node does not have, into the directory of a release, and verifies their
// signatures, which "dnf download" does not.
func (d dnf) download(ctx context.Context, r *record, options []string, chosen map[string]string, key string) error {
	dir := filepath.Join(d.dir(r.Version), packageDir)
	if err := d.host.Disk.Mkdirs(dir, 0o700); err != nil {
		return err
	}
	args := slices.Concat(options, []string{"download", "--resolve", "--destdir=" + dir})
	for _, name := range Programs {
		if chosen[name] != "" {
			args = append(args, name+"-"+chosen[name])
		}
	}
	if _, err := d.call(ctx, args...); err != nil {
		return err
	}
	err := d.collect(r, ".rpm", chosen, func(file string) (string, string, error) {
		all, err := d.query(ctx, "--nosignature", "-p", file)
		if err == nil && len(all) == 1 {
			return all[0].name, all[0].version, nil
		}
		return "", "", errors.Join(err, fmt.Errorf("%s is not a package", filepath.Base(file)))
	})
	if err != nil {
		return err
	}
	return d.signed(ctx, r, key)
}

// signed returns an error unless all packages are signed by a key: by the source's and no other, or, where it has none, by one that the
// node's rpm knows.
func (d dnf) signed(ctx context.Context, r *record, key string) error {
	var trust []string
	if key != "" {
		dir := filepath.Join(d.place, "keys")
		if err := d.clear(dir); err != nil {
			return err
		}
		trust = []string{"--dbpath", dir, "--define", "_keyringpath " + filepath.Join(dir, "keyring")}
		if _, err := d.manage(ctx, host.Command{Name: "rpmkeys", Args: slices.Concat(trust, []string{"--import", key})}); err != nil {
			return fmt.Errorf("the source's key can't be used: %w", err)
		}
	}
	for _, of := range r.Packages {
		at := filepath.Join(d.dir(r.Version), of.File)
		out, err := d.manage(ctx, host.Command{Name: "rpmkeys", Args: slices.Concat(trust, []string{"--checksig", at})})
		// A package without a signature passes, as "digests OK".
		if err != nil || !strings.Contains(strings.TrimPrefix(string(out), at), "signatures OK") {
			return errors.Join(fmt.Errorf("package %s is not signed by a key that is trusted: it is not used", of.Name), err, d.host.Disk.Remove(at))
		}
	}
	return nil
}

// openRPM reads the files of a package.
func (d dnf) openRPM(ctx context.Context, file string, each func(e entry) error) error {
	return d.stream(ctx, host.Command{Name: "rpm2cpio", Args: []string{file}}, func(r io.Reader) error { return readCPIO(r, each) })
}

// install implements installer. dnf gets the files that were staged, and no repository, so it asks nobody. It has a verb of its own for
// each direction, so the packages go by groups; what others need comes first.
func (d dnf) install(ctx context.Context, r *record, programs []string) (note string, err error) {
	if err := d.settle(ctx, concerned(r)); err != nil {
		return "", err
	}
	versions := map[string]string{}
	all, err := d.pending(ctx, r, programs, func(name string) (version string, err error) {
		version, err = d.version(ctx, name)
		versions[name] = version
		return version, err
	})
	if err != nil || len(all) == 0 {
		return "", err
	}
	groups, names := map[string][]pkg{}, []string(nil)
	for _, of := range all {
		verb := toward(of.Version, versions[of.Name])
		groups[verb] = append(groups[verb], of)
		names = append(names, of.Name)
	}
	err = d.unlocked(ctx, rpms, names, func() error {
		for _, verb := range []string{"install", "downgrade", "reinstall"} {
			if err := d.transact(ctx, r, verb, groups[verb]); err != nil {
				return err
			}
		}
		return nil
	})
	return "", d.ended(ctx, r, programs, err)
}

// toward returns the verb by which a package comes to have a version.
func toward(version, has string) string {
	switch {
	case has == version:
		return "reinstall"
	case has != "" && older(version, has):
		return "downgrade"
	}
	return "install"
}

func (d dnf) transact(ctx context.Context, r *record, verb string, all []pkg) error {
	if len(all) == 0 {
		return nil
	}
	files, err := d.verify(r, all)
	if err != nil {
		return err
	}
	return d.alone(ctx, rpms, func() error {
		_, err := d.call(ctx, slices.Concat([]string{"-y", everything, verifiedBefore, "--disablerepo=*", verb}, files)...)
		return err
	})
}

func (d dnf) call(ctx context.Context, args ...string) ([]byte, error) {
	return d.manage(ctx, host.Command{Name: "dnf", Args: args})
}

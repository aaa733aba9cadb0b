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

// queryForm has rpm show the version of a package as dnf does.
const queryForm = "%{NAME} %|EPOCH?{%{EPOCH}:}|%{VERSION}-%{RELEASE} %{ARCH}\n"

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
	repos := filepath.Join(d.place, "repositories")
	if err := d.clear(repos); err != nil {
		return err
	}
	list, key, err := d.repository(func(string) string { return filepath.Join("repositories", "refit-kubernetes.repo") })
	if err != nil {
		return err
	}
	if list != "" {
		options = append(options, "--setopt=reposdir="+repos)
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

// unhindered returns the options by which dnf does not pass over packages that the node's configuration excludes, or that are locked.
func (d dnf) unhindered(ctx context.Context) ([]string, error) {
	options := []string{"-y", "--disableexcludes=all"}
	locked, err := versionLocks{d.Store}.locked(ctx, Programs)
	if err == nil && len(locked) > 0 {
		options = append(options, "--disableplugin=versionlock")
	}
	return options, err
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
		out, err := d.manage(ctx, host.Command{Name: "rpm", Args: []string{"-q", "--nosignature", "--qf", queryForm, "-p", file}})
		if columns := strings.Fields(string(out)); err == nil && len(columns) == 3 {
			return columns[0], columns[1], nil
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

// version returns that of an installed package, or "".
func (d dnf) version(ctx context.Context, name string) (string, error) {
	out, err := d.manage(ctx, host.Command{Name: "rpm", Args: []string{"-q", "--qf", queryForm, name}})
	if strings.Contains(string(out), "is not installed") {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	columns := strings.Fields(string(out))
	if len(columns) != 3 {
		return "", fmt.Errorf("rpm does not tell the one version of %s", name)
	}
	return columns[1], nil
}

// install implements installer. dnf gets the files that were staged, and no repository, so it asks nobody. It has a verb of its own for
// each direction, so the packages go by groups; what others need comes first.
func (d dnf) install(ctx context.Context, r *record, programs []string) error {
	versions := map[string]string{}
	all, err := d.pending(ctx, r, programs, func(name string) (version string, err error) {
		version, err = d.version(ctx, name)
		versions[name] = version
		return version, err
	})
	if err != nil || len(all) == 0 {
		return err
	}
	groups, names := map[string][]pkg{}, []string(nil)
	for _, of := range all {
		verb := "install"
		if has := versions[of.Name]; has == of.Version {
			verb = "reinstall"
		} else if has != "" && older(of.Version, has) {
			verb = "downgrade"
		}
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
	if err != nil {
		return err
	}
	return d.done(ctx, r, programs)
}

func (d dnf) transact(ctx context.Context, r *record, verb string, all []pkg) error {
	if len(all) == 0 {
		return nil
	}
	files, err := d.verify(r, all)
	if err != nil {
		return err
	}
	_, err = d.call(ctx, slices.Concat([]string{"-y", "--disableexcludes=all", "--disablerepo=*", verb}, files)...)
	return err
}

func (d dnf) call(ctx context.Context, args ...string) ([]byte, error) {
	return d.manage(ctx, host.Command{Name: "dnf", Args: args})
}

// versionLocks are those of dnf's plugin of that name.
type versionLocks struct{ *Store }

// locked implements locks. Locks of dnf 5 can't be passed over without taking them off, which staging must not do.
func (v versionLocks) locked(_ context.Context, names []string) ([]string, error) {
	other, _, err := v.host.ReadFile("/etc/dnf/versionlock.toml")
	if err != nil {
		return nil, err
	}
	data, _, err := v.host.ReadFile("/etc/dnf/plugins/versionlock.list")
	if err != nil {
		return nil, err
	}
	var all []string
	for _, name := range names {
		if lists(string(other), func(line string) bool {
			_, value, ok := strings.Cut(line, "=")
			return ok && strings.Trim(strings.TrimSpace(value), `"'`) == name
		}) {
			return nil, fmt.Errorf("package %s is locked in /etc/dnf/versionlock.toml: remove that lock", name)
		}
		if lists(string(data), func(line string) bool {
			rest, ok := strings.CutPrefix(strings.TrimSpace(line), name+"-")
			return ok && rest != "" && digit(rune(rest[0]))
		}) {
			all = append(all, name)
		}
	}
	return all, nil
}

// lists says whether a text has such a line.
func lists(text string, such func(line string) bool) bool {
	for line := range strings.Lines(text) {
		if such(line) {
			return true
		}
	}
	return false
}

// lock implements locks. What a death has left locked is not locked twice.
func (v versionLocks) lock(ctx context.Context, names []string) error {
	already, err := v.locked(ctx, names)
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(already, name) })
	if len(names) == 0 {
		return nil
	}
	_, err = v.host.RunTelling(ctx, host.Command{Name: "dnf", Args: append([]string{"-q", "versionlock", "add"}, names...)})
	return err
}

// unlock implements locks.
func (v versionLocks) unlock(ctx context.Context, names []string) error {
	_, err := v.host.RunTelling(ctx, host.Command{Name: "dnf", Args: append([]string{"-q", "versionlock", "delete"}, names...)})
	return err
}

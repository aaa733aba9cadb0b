package release

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/repository"
)

// packageDir is where the packages of a release are, below its directory.
const packageDir = "packages"

// quiet is what keeps the scripts of packages from restarting anything. systemctl then leaves units alone, and says so, and keeps on
// enabling them; it is made for such scripts (SYSTEMD_OFFLINE in systemd's docs/ENVIRONMENT.md, running_in_chroot_or_offline in its
// verbs.c). Unlike a mask of kubelet.service, and a policy-rc.d, it leaves nothing behind when the agent dies, and a kubelet that crashes
// meanwhile comes back. needrestart, which Ubuntu runs after apt, is told by its own variable.
var quiet = []string{"SYSTEMD_OFFLINE=1", "NEEDRESTART_SUSPEND=1", "DEBIAN_FRONTEND=noninteractive"}

// userInfo is what is before the host in a URL.
var userInfo = regexp.MustCompile(`://[^/\s]*@`)

// packages are what apt and dnf have in common. The repository of a source and its key are kept with the release, and only the calls made
// here see them: among the node's own, a second entry for the same repository with another key would make apt refuse all of them.
type packages struct {
	*Store
	// job is nil when something is installed.
	*job
}

// lacking lists the packages that r does not have in a version of the pattern.
func (p packages) lacking(r *record, f form) []string {
	pattern := p.pattern()
	var all []string
	for _, name := range []string{kubeadm, kubelet} {
		has := r.pkg(name)
		ok := false
		if has != nil {
			ok, _ = path.Match(pattern, has.Version) // newest says what is wrong with a pattern
		}
		if r.Form != f || !ok {
			all = append(all, fmt.Sprintf("package %s %s", name, p.Version))
		}
	}
	return all
}

func (p packages) pattern() string { return p.expand(p.Packages.PackageVersion, "") }

// repository writes the source's repository and its key below the directory of the release, and returns where each is; "" without one.
func (p packages) repository(name func(text string) string) (list, key string, err error) {
	at := filepath.Join(p.place, "repository.asc")
	text := strings.ReplaceAll(p.expand(p.Packages.Repository, ""), "{keyring}", at)
	if text == "" {
		return "", "", nil
	}
	text = strings.TrimSpace(text)
	check := repository.CheckAPT
	if p.Packages.Manager == node.DNF {
		check = repository.CheckDNF
	}
	if err := check(text); err != nil {
		return "", "", fmt.Errorf("the repository is not used: %w", err)
	}
	if p.Packages.Key != "" {
		key = at
		if err := p.host.Disk.Write(key, strings.NewReader(p.Packages.Key), private(0o644)); err != nil {
			return "", "", err
		}
	}
	list = filepath.Join(p.place, name(text))
	return list, key, p.host.Disk.Write(list, strings.NewReader(text+"\n"), private(0o600))
}

// proxies are the source's, for programs that take them from their environment. Arguments would be seen by everybody on the node.
func (p packages) proxies() []string {
	if p.Proxy == "" {
		return nil
	}
	return []string{"http_proxy=" + p.Proxy, "https_proxy=" + p.Proxy, "no_proxy=" + p.NoProxy}
}

// newest returns the last of the versions that the pattern matches, in an order.
func newest(versions []string, pattern string, less func(a, b string) (bool, error)) (string, error) {
	last := ""
	for _, v := range versions {
		ok, err := path.Match(pattern, v)
		if err != nil {
			return "", fmt.Errorf("packageVersion %q is not a pattern", pattern)
		}
		if !ok || v == last {
			continue
		}
		newer := last == ""
		if !newer {
			if newer, err = less(last, v); err != nil {
				return "", err
			}
		}
		if newer {
			last = v
		}
	}
	return last, nil
}

// collect notes the packages that are in the directory of those of r. Of the programs there is exactly the version that was chosen; the
// others are what they need. ask returns the name and the version of a package.
func (p packages) collect(r *record, suffix string, chosen map[string]string, ask func(file string) (name, version string, err error)) error {
	r.Files = slices.DeleteFunc(r.Files, func(f file) bool { return f.Name != kubeadm })
	r.Packages = nil
	dir := filepath.Join(p.dir(r.Version), packageDir)
	names, err := p.ending(dir, suffix)
	if err != nil {
		return err
	}
	for _, at := range names {
		name, version, err := ask(at)
		if err != nil {
			return err
		}
		if want := chosen[name]; version != want && slices.Contains(Programs, name) {
			if err := p.host.Disk.Remove(at); err != nil { // chosen when the repository had others
				return err
			}
			continue
		}
		sum, size, err := digest(p.host.Disk, at)
		if err != nil {
			return err
		}
		in := path.Join(packageDir, filepath.Base(at))
		r.put(file{Name: in, SHA256: sum, Size: size})
		r.Packages = append(r.Packages, pkg{Name: name, Version: version, File: in})
	}
	for name := range chosen {
		if r.pkg(name) == nil {
			return fmt.Errorf("package %s %s did not come", name, chosen[name])
		}
	}
	return nil
}

// look takes kubeadm and kubelet out of their packages, to see which version they say, and keeps kubeadm.
func (p packages) look(ctx context.Context, r *record, open func(ctx context.Context, file string, each func(e entry) error) error) error {
	for _, name := range []string{kubelet, kubeadm} {
		at := filepath.Join(p.place, r.pkg(name).File)
		read := func(each func(e entry) error) error { return open(ctx, at, each) }
		found, err := p.unpack(read, p.place, name)
		if err != nil {
			return fmt.Errorf("package %s can't be opened: %w", name, err)
		}
		f, there := found[name]
		if !there {
			return fmt.Errorf("package %s has no program of that name", name)
		}
		program := filepath.Join(p.place, name)
		if err := p.mustSay(ctx, name, program, p.Version); err != nil {
			return err
		}
		if name == kubeadm {
			r.put(f)
		} else if err := p.host.Disk.Remove(program); err != nil {
			return err
		}
	}
	return nil
}

// manage runs a package manager. What it says may quote a URL, without the name and the password in it.
func (p packages) manage(ctx context.Context, c host.Command) ([]byte, error) {
	c.Env = quiet
	if p.job != nil {
		c.Env = slices.Concat(quiet, p.proxies())
	}
	out, err := p.host.RunTelling(ctx, c)
	if err != nil && userInfo.MatchString(err.Error()) {
		err = errors.New(userInfo.ReplaceAllString(err.Error(), "://"))
	}
	return out, err
}

// stream runs one of the node's programs and has its output read. What is not read of it is thrown away.
func (s *Store) stream(ctx context.Context, c host.Command, read func(r io.Reader) error) error {
	at := s.host.Program(c.Name)
	if at == "" {
		return fmt.Errorf("%s: %w", c.Name, host.ErrNoProgram)
	}
	cmd := exec.CommandContext(ctx, at, c.Args...)
	cmd.Env = append(host.CommandEnv(s.host.Dir), c.Env...)
	cmd.WaitDelay = host.WaitDelay
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	err = read(out)
	_, _ = io.Copy(io.Discard, out) // so that it can end; how it ends is what counts
	if ended := cmd.Wait(); err == nil && ended != nil {
		err = fmt.Errorf("%s: %w", c.Name, ended)
	}
	return err
}

// orCopies keeps copies of the programs where the packages that they came in can't be had any more.
func (p packages) orCopies(ctx context.Context, r *record, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	if err := p.clear(filepath.Join(p.dir(r.Version), packageDir)); err != nil {
		return err
	}
	r.Note = "the packages of " + r.Version + " can't be had any more, so going back to it puts back copies of its programs, which the " +
		"package manager does not know of"
	p.tell(r.Note)
	return p.keepCopies(ctx, r)
}

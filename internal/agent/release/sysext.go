package release

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/capi-refit/refit/internal/agent/host"
)

const (
	// extensionDir is where systemd-sysext looks first.
	extensionDir = "/etc/extensions"
	imageSuffix  = ".raw"
)

// extensionForm is that of the name of a system extension, which becomes that of a file.
var extensionForm = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)

// sysext is a system extension with all programs in it. The node has one by the same name already: its first is a part of the node's
// image, and so is that systemd-sysext merges it at boot.
type sysext struct {
	*Store
	*job
}

// missing implements supply.
func (x sysext) missing(r *record) []string {
	name := x.SystemExtension.Name
	u, err := x.address(x.SystemExtension.URL, "")
	if err == nil && r.Form == extension && r.Extension == name {
		if want, err := x.sum(fileName(u)); err == nil && r.has(name+imageSuffix, want) {
			return nil
		}
	}
	return []string{"system extension " + name + " " + x.Version}
}

// keep implements supply. An image outside of the agent's own directory stays where it is, and what is kept is where the link leads. One
// that is no link is going to be replaced by one, so it is copied.
func (x sysext) keep(_ context.Context, r *record) error {
	name := x.SystemExtension.Name
	link, info, err := x.merged(name)
	if err != nil {
		return err
	}
	r.Form, r.Extension = extension, name
	if info.Mode()&fs.ModeSymlink != 0 {
		r.Target, err = x.host.Readlink(link)
		return err
	}
	image, err := x.host.Resolve(link)
	if err != nil {
		return err
	}
	f, err := x.copyFrom(filepath.Join(x.dir(r.Version), name+imageSuffix), image, "")
	r.put(f)
	return err
}

// merged returns where the node has the extension, by a link or not.
func (x sysext) merged(name string) (link string, info fs.FileInfo, err error) {
	link = linkOf(name)
	info, err = x.host.Lstat(link)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("the node has no %s, so its Kubernetes does not come from this system extension: the first one has to be a part of "+
			"the node's image", link)
	}
	return link, info, err
}

// stage implements supply. A kubeadm that can be run before comes out of the image where the node has a systemd-dissect that can do that.
func (x sysext) stage(ctx context.Context, r *record) error {
	if x.host.Program("systemd-sysext") == "" {
		return fmt.Errorf("systemd-sysext: %w", host.ErrNoProgram)
	}
	name := x.SystemExtension.Name
	if _, _, err := x.merged(name); err != nil { // what is installed now may have been kept for another source
		return err
	}
	r.become(extension)
	from, err := x.address(x.SystemExtension.URL, "")
	if err != nil {
		return err
	}
	want, err := x.sum(fileName(from))
	if err != nil {
		return err
	}
	f, err := x.fetch.get(ctx, thing{
		what: "system extension " + fileName(from), from: from, sha256: want, to: filepath.Join(x.place, name+imageSuffix), mode: 0o600,
	})
	if err != nil {
		return err
	}
	r.Extension = name
	r.Files = nil
	r.put(f)
	return x.look(ctx, r)
}

// look takes kubeadm out of the image. That it can't is no error, because not every node can look into one, but then only installing shows
// which version is in it.
func (x sysext) look(ctx context.Context, r *record) error {
	if x.host.Program("systemd-dissect") == "" {
		return nil
	}
	at := filepath.Join(x.place, kubeadm)
	for _, dir := range []string{usrBin, usrLocal} {
		if err := x.host.Disk.Remove(at); err != nil {
			return err
		}
		_, err := x.host.Run(ctx, host.Command{
			Name: "systemd-dissect",
			Args: []string{"--copy-from", filepath.Join(x.place, r.Extension+imageSuffix), dir + kubeadm, at},
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			continue
		}
		if err := x.runnable(at); err != nil {
			return err
		}
		sum, size, err := digest(x.host.Disk, at)
		if err != nil {
			return err
		}
		if err := x.mustSay(ctx, kubeadm, at, x.Version); err != nil {
			return err
		}
		r.put(file{Name: kubeadm, SHA256: sum, Size: size})
		return nil
	}
	return x.host.Disk.Remove(at)
}

// install implements installer. The link leads to the image of the release, and systemd-sysext merges it instead of the other one. All
// programs change at once. What runs keeps its file open, and goes on. A new image that can't be merged must not be what the next boot
// merges, so the link then leads to the old one again. On the way back it stays with the old one.
func (x sysext) install(ctx context.Context, r *record, _ []string) (note string, err error) {
	target, err := x.target(r)
	if err != nil {
		return "", err
	}
	link := linkOf(r.Extension)
	said, _ := x.installedVersion(ctx) // none where nothing is merged
	was, err := x.ledTo(link, r.Extension, said)
	if err != nil || was == target && said == r.Version {
		return "", err
	}
	if was != target {
		if err := x.host.Link(target, link); err != nil {
			return "", err
		}
	}
	err = x.merge(ctx, r)
	if err != nil && was != "" && forward(said, r.Version) {
		err = errors.Join(err, x.host.Link(was, link))
	}
	return "", err
}

// ledTo returns where the link of an extension leads. For an image that is no link it is where the copy of the version that it has was kept;
// "" without one, and when there is nothing.
func (x sysext) ledTo(link, name, version string) (string, error) {
	to, err := x.host.Readlink(link)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return to, nil
	}
	if !errors.Is(err, syscall.EINVAL) { // which says that it is no link
		return "", err
	}
	if version == "" {
		return "", nil
	}
	kept, err := x.complete(version)
	if err != nil || kept == nil || kept.Extension != name {
		return "", err
	}
	return x.target(kept)
}

// forward reports whether a version is newer than the one that was there before. What is before a release is before it.
func forward(was, version string) bool {
	return was != "" && older(strings.ReplaceAll(was, "-", "~"), strings.ReplaceAll(version, "-", "~"))
}

// merge has systemd-sysext merge what the links lead to, and returns an error unless the node then has the release.
func (x sysext) merge(ctx context.Context, r *record) error {
	if _, err := x.host.RunTelling(ctx, host.Command{Name: "systemd-sysext", Args: []string{"refresh"}}); err != nil {
		return err
	}
	return x.proven(ctx, r)
}

// proven returns an error unless the node's kubelet is of the release.
func (x sysext) proven(ctx context.Context, r *record) error {
	said, err := x.installedVersion(ctx)
	if err == nil && said == r.Version {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("the node's kubelet is %s", said)
	}
	return fmt.Errorf("%w, with system extension %s merged: is it for this system, and has it Kubernetes %s in it? "+
		"(see systemd-sysext status on the node)", err, r.Extension, r.Version)
}

// target returns where the link has to lead, after it has seen that the image is there, and is what was staged.
func (x sysext) target(r *record) (string, error) {
	if r.Target != "" {
		image := r.Target
		if !path.IsAbs(image) {
			image = path.Join(extensionDir, image)
		}
		if _, err := x.host.Stat(image); err != nil {
			return "", fmt.Errorf("the image that was merged before is gone: %w", err)
		}
		return r.Target, nil
	}
	name := r.Extension + imageSuffix
	image := filepath.Join(x.dir(r.Version), name)
	sum, _, err := digest(x.host.Disk, image)
	if err != nil {
		return "", err
	}
	if !r.has(name, sum) {
		return "", fmt.Errorf("%s is no longer what was staged: stage the release again", image)
	}
	return strings.TrimPrefix(image, strings.TrimSuffix(x.host.Dir, "/")), nil
}

// runnable makes a file a program.
func (x sysext) runnable(at string) error {
	f, err := x.host.Disk.OpenFile(at, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Chmod(0o700)
}

// linkOf returns the path of the link of an extension.
func linkOf(name string) string { return path.Join(extensionDir, name+imageSuffix) }

// linked returns the directories in which the images of the node's extensions are.
func (s *Store) linked() ([]string, error) {
	entries, err := s.host.ReadDir(extensionDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []string
	for _, e := range entries {
		if target, err := s.host.Readlink(path.Join(extensionDir, e.Name())); err == nil {
			all = append(all, filepath.Join(s.host.Dir, filepath.Dir(target)))
		}
	}
	return all, nil
}

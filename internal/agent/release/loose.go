package release

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"syscall"
)

// programs are what binaries, an archive and a directory have in common: programs by themselves.
type programs struct{ *job }

// keep implements supply.
func (p programs) keep(ctx context.Context, r *record) error { return p.keepCopies(ctx, r) }

// lacking lists the programs that r does not have with the checksum that the source says.
func (p programs) lacking(r *record) []string {
	var all []string
	for _, name := range p.names() {
		want, err := p.sum(name)
		if err != nil || r.Form != loose || !r.has(name, want) {
			all = append(all, name+" "+p.Version)
		}
	}
	return all
}

// prepare makes sure that what is staged can be installed, and takes r for programs.
func (p programs) prepare(r *record) error {
	at, err := p.installed(kubelet)
	if err != nil {
		return err
	}
	if err := p.writable(filepath.Dir(at)); err != nil {
		return cannotReplace(at, err)
	}
	r.become(loose)
	return nil
}

// become makes r the record of another form. The images of a version stay what they are.
func (r *record) become(f form) {
	if r.Form != f {
		*r = record{Version: r.Version, Form: f, Imported: r.Imported, Pulled: r.Pulled}
	}
}

// take notes a program once it says the right version.
func (p programs) take(ctx context.Context, r *record, f file) error {
	if err := p.mustSay(ctx, f.Name, filepath.Join(p.place, f.Name), p.Version); err != nil {
		return err
	}
	r.put(f)
	return p.save(r, draft)
}

// binaries are programs that are fetched one by one.
type binaries struct{ programs }

// missing implements supply.
func (b binaries) missing(r *record) []string { return b.lacking(r) }

// stage implements supply.
func (b binaries) stage(ctx context.Context, r *record) error {
	if err := b.prepare(r); err != nil {
		return err
	}
	for _, name := range b.names() {
		want, err := b.sum(name)
		if err != nil {
			return err
		}
		from, err := b.address(b.Binaries.URL, name)
		if err != nil {
			return err
		}
		f, err := b.fetch.get(ctx, thing{what: name + " " + b.Version, from: from, sha256: want, to: filepath.Join(b.place, name), mode: 0o700})
		if err != nil {
			return err
		}
		if err := b.take(ctx, r, f); err != nil {
			return err
		}
	}
	return nil
}

// directory is one of the node's, into which somebody has put the programs.
type directory struct{ programs }

// missing implements supply.
func (d directory) missing(r *record) []string { return d.lacking(r) }

// stage implements supply.
func (d directory) stage(ctx context.Context, r *record) error {
	if err := d.prepare(r); err != nil {
		return err
	}
	for _, name := range d.names() {
		want, err := d.sum(name)
		if err != nil {
			return err
		}
		p := path.Join(d.expand(d.Directory.Path, name), name)
		from := d.host.Find(p)
		if from == "" {
			return fmt.Errorf("the node has no %s", p)
		}
		d.tell("copying " + p)
		f, err := d.copyFrom(filepath.Join(d.place, name), from, want)
		if err != nil {
			return err
		}
		if err := d.take(ctx, r, f); err != nil {
			return err
		}
	}
	return nil
}

// archive is one with the programs in it.
type archive struct{ programs }

// missing implements supply.
func (a archive) missing(r *record) []string {
	if r.Form == loose && r.file(kubeadm) != nil && r.file(kubelet) != nil {
		if u, err := a.address(a.Archive.URL, ""); err == nil {
			if want, err := a.sum(fileName(u)); err == nil && want == r.From {
				return nil
			}
		}
	}
	return []string{kubeadm + " " + a.Version, kubelet + " " + a.Version}
}

// stage implements supply.
func (a archive) stage(ctx context.Context, r *record) error {
	if err := a.prepare(r); err != nil {
		return err
	}
	from, err := a.address(a.Archive.URL, "")
	if err != nil {
		return err
	}
	name := fileName(from)
	want, err := a.sum(name)
	if err != nil {
		return err
	}
	to := filepath.Join(a.place, "archive")
	if _, err := a.fetch.get(ctx, thing{what: name, from: from, sha256: want, to: to, mode: 0o600, unpacked: 2}); err != nil {
		return err
	}
	a.tell("unpacking " + name)
	if err := a.takeOut(ctx, to, r); err != nil {
		return fmt.Errorf("%s can't be used: %w", name, err)
	}
	r.From = want
	if err := a.save(r, draft); err != nil {
		return err
	}
	return a.host.Disk.Remove(to)
}

// takeOut takes the programs out of the archive.
func (a archive) takeOut(ctx context.Context, from string, r *record) error {
	in, err := a.host.Disk.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	found, err := a.unpack(func(each func(e entry) error) error { return readTar(in, each) }, a.place, Programs...)
	if err != nil {
		return err
	}
	r.drop(kubectl) // of another archive
	for _, name := range Programs {
		f, there := found[name]
		if !there && name != kubectl {
			return fmt.Errorf("it has no %s, as a file that can be run", name)
		}
		if there {
			if err := a.take(ctx, r, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// cannotReplace says why a program of the node's can't be replaced.
func cannotReplace(at string, err error) error {
	if errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%s is on a read-only file system: on such a node Kubernetes comes as a system extension, so use a "+
			"KubernetesSource with systemExtension", at)
	}
	return fmt.Errorf("%s can't be replaced: %w", at, err)
}

package release

import (
	"context"
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
)

// replacer installs programs by themselves, each where the node has it now.
type replacer struct{ *Store }

// install implements installer.
func (p replacer) install(ctx context.Context, r *record, programs []string) (note string, err error) {
	for _, name := range programs {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		if err := p.replace(r, name); err != nil {
			return "", err
		}
	}
	return "", nil
}

func (p replacer) replace(r *record, name string) error {
	f := r.file(name)
	if f == nil && name != kubectl {
		return fmt.Errorf("the release has no %s", name)
	}
	at, err := p.where(name)
	if err != nil || f == nil || at == "" {
		return err
	}
	want, err := p.rootOwned()
	if err != nil {
		return err
	}
	if same, err := p.alike(at, f.SHA256, want); same || err != nil {
		return err
	}
	if err := p.writable(filepath.Dir(at)); err != nil {
		return cannotReplace(at, err)
	}
	in, err := p.host.Disk.Open(filepath.Join(p.dir(r.Version), name))
	if err != nil {
		return err
	}
	defer in.Close()
	p.host.Disk.Sweep(filepath.Dir(at)) // of one that was interrupted
	return p.host.Write(strings.TrimPrefix(at, p.host.Dir), &verified{Reader: in, sum: sha256.New(), want: f.SHA256, name: in.Name()}, want)
}

// where returns where a program belongs: where the node has it, or else beside its kubelet. A node without kubectl stays without, for which
// it returns "".
func (p replacer) where(name string) (string, error) {
	at, err := p.installed(name)
	if err != nil || at != "" || name == kubectl {
		return at, err
	}
	beside, err := p.installed(kubelet)
	return filepath.Join(filepath.Dir(beside), name), err
}

// alike reports whether a program is there as it has to be.
func (p replacer) alike(at, sum string, want host.State) (bool, error) {
	is, err := p.host.Disk.Observe(at)
	if err != nil {
		return false, err
	}
	want.SHA256 = sum
	return is == want, nil
}

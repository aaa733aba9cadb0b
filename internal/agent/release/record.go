package release

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/capi-refit/refit/internal/agent/host"
)

const (
	// staged is the name of the record of a release that is complete, draft of one that is being staged.
	staged = "staged.json"
	draft  = "draft.json"
	// maxRecord bounds what is read of a record, in bytes.
	maxRecord = 1 << 20
)

var (
	// versionForm is that of a version, which names a directory.
	versionForm = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?$`)
	digestForm  = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// form is how a release is installed.
type form string

const (
	// loose is programs by themselves.
	loose form = "programs"
	// debs and rpms are packages of the system.
	debs form = "apt"
	rpms form = "dnf"
	// extension is an image of systemd-sysext.
	extension form = "extension"
)

// file is one of a release.
type file struct {
	// Name is a path below the directory of the release.
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

// pkg is a package of a release.
type pkg struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// File is the name of its file.
	File string `json:"file"`
}

// record is what is known of a release.
type record struct {
	Version  string `json:"version"`
	Form     form   `json:"form"`
	Files    []file `json:"files,omitempty"`
	Packages []pkg  `json:"packages,omitempty"`
	// From is the SHA-256 of the archive that the programs were in.
	From string `json:"from,omitempty"`
	// Extension is the name below /etc/extensions, without ".raw", and Target where that link leads.
	Extension string `json:"extension,omitempty"`
	Target    string `json:"target,omitempty"`
	// Imported are the SHA-256 of the image archives that were imported.
	Imported []string `json:"imported,omitempty"`
	// Images are the names of those that were in them, by that SHA-256, as far as they are known.
	Images map[string][]string `json:"images,omitempty"`
	// Pulled reports that the images which kubeadm pulls are there, as far as this node needs them.
	Pulled bool `json:"pulled,omitempty"`
	// Note is for people.
	Note string `json:"note,omitempty"`
}

// file returns what is known of a file, or nil.
func (r *record) file(name string) *file {
	if i := slices.IndexFunc(r.Files, func(f file) bool { return f.Name == name }); i >= 0 {
		return &r.Files[i]
	}
	return nil
}

// has reports whether a file of that SHA-256 is there.
func (r *record) has(name, sum string) bool {
	f := r.file(name)
	return f != nil && f.SHA256 == sum
}

// put notes a file in the place of what was known of it.
func (r *record) put(f file) {
	r.drop(f.Name)
	r.Files = append(r.Files, f)
}

func (r *record) drop(name string) {
	r.Files = slices.DeleteFunc(r.Files, func(f file) bool { return f.Name == name })
}

// imported notes an archive of images, and the names of those.
func (r *record) imported(archive string, names []string) {
	r.Imported = append(r.Imported, archive)
	if len(names) == 0 {
		return
	}
	if r.Images == nil {
		r.Images = map[string][]string{}
	}
	r.Images[archive] = names
}

// forget has an archive of images imported again.
func (r *record) forget(archive string) {
	r.Imported = slices.DeleteFunc(r.Imported, func(s string) bool { return s == archive })
	delete(r.Images, archive)
}

// pkg returns a package, or nil.
func (r *record) pkg(name string) *pkg {
	if i := slices.IndexFunc(r.Packages, func(p pkg) bool { return p.Name == name }); i >= 0 {
		return &r.Packages[i]
	}
	return nil
}

// parseRecord reads the record of a version.
func parseRecord(data []byte, version string) (*record, error) {
	r := &record{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, errors.New("it is not JSON of a record")
	}
	if r.Version != version {
		return nil, errors.New("it is of another version")
	}
	return r, r.check()
}

// check returns what can't be in a record that was written here. Names in it become paths.
func (r *record) check() error {
	if !slices.Contains([]form{loose, debs, rpms, extension}, r.Form) {
		return fmt.Errorf("form %q is not known", r.Form)
	}
	for _, f := range r.Files {
		if !filepath.IsLocal(f.Name) || f.Name == "." || !digestForm.MatchString(f.SHA256) || f.Size < 0 {
			return fmt.Errorf("file %q is not of a release", f.Name)
		}
	}
	for _, p := range r.Packages {
		if r.file(p.File) == nil {
			return fmt.Errorf("package %q has no file", p.Name)
		}
	}
	if r.Extension != "" && !extensionForm.MatchString(r.Extension) {
		return fmt.Errorf("extension %q is no name", r.Extension)
	}
	return nil
}

// load returns a record of a version, without what has vanished since. Nil: there is none, or none that can be understood, and what
// it was about has to be staged again.
func (s *Store) load(version, name string) (*record, error) {
	f, err := s.host.Disk.OpenFile(filepath.Join(s.dir(version), name), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxRecord))
	if err != nil {
		return nil, err
	}
	r, err := parseRecord(data, version)
	if err != nil {
		return nil, nil //nolint:nilerr // staging writes it again, and until then there is nothing to install
	}
	r.Files = slices.DeleteFunc(r.Files, func(f file) bool {
		info, err := s.host.Disk.Lstat(filepath.Join(s.dir(version), f.Name))
		return err != nil || !info.Mode().IsRegular() || info.Size() != f.Size
	})
	r.Packages = slices.DeleteFunc(r.Packages, func(p pkg) bool { return r.file(p.File) == nil })
	return r, nil
}

// complete returns the record of a release that is complete, or nil.
func (s *Store) complete(version string) (*record, error) {
	if !versionForm.MatchString(version) {
		return nil, fmt.Errorf("%q is not a version of Kubernetes, as v1.36.3 is", version)
	}
	r, err := s.load(version, staged)
	if err != nil || r == nil || !r.usable() {
		return nil, err
	}
	return r, nil
}

// usable reports whether what the node can't do without is there.
func (r *record) usable() bool {
	switch r.Form {
	case loose:
		return r.file(kubelet) != nil
	case extension:
		return r.Target != "" || r.file(r.Extension+".raw") != nil
	default:
		return r.pkg(kubelet) != nil
	}
}

// save writes a record.
func (s *Store) save(r *record, name string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return s.host.Disk.Write(filepath.Join(s.dir(r.Version), name), bytes.NewReader(append(data, '\n')), private(0o600))
}

// private returns the state of a file that belongs to whoever writes it.
func private(mode uint32) host.State {
	return host.State{Exists: true, UID: host.KeepOwner, GID: host.KeepOwner, Mode: mode}
}

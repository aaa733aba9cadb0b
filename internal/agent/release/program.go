package release

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/staticpod"
)

const (
	// runPatience is how long a program may take to say its version.
	runPatience = time.Minute
	// places are where a node may have a program. Those where host.Root.Program looks.
	sbin, usrSbin, bin, usrBin, usrLocal, opt = "/sbin/", "/usr/sbin/", "/bin/", "/usr/bin/", "/usr/local/bin/", "/opt/bin/"
)

// installed returns where the node has a program, through symbolic links, or "". A kubelet in two places is an error: which of them its
// unit runs can't be told from here.
func (s *Store) installed(name string) (string, error) {
	if name != kubelet {
		return s.host.Program(name), nil
	}
	var found []string
	for _, dir := range []string{usrSbin, usrBin, sbin, bin, usrLocal, opt} {
		if p := s.host.Find(dir + name); p != "" && !slices.Contains(found, p) {
			found = append(found, p)
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("the node has no kubelet in %s, %s or %s", usrBin, usrLocal, opt)
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("the node has more than one kubelet, in %s: remove those that it does not run", strings.Join(found, " and "))
}

// installedVersion returns that of the node's kubelet.
func (s *Store) installedVersion(ctx context.Context) (string, error) {
	at, err := s.installed(kubelet)
	if err != nil {
		return "", err
	}
	version, err := s.says(ctx, kubelet, at)
	if err == nil && !versionForm.MatchString(version) {
		err = fmt.Errorf("%s says %q, which is no version", at, version)
	}
	return version, err
}

// runningVersion returns that of the kubelet that runs, as its Node says, or "" if none has joined a cluster.
func (s *Store) runningVersion(ctx context.Context) (string, error) {
	if s.host.Find(staticpod.KubeletConfig) == "" {
		return "", nil
	}
	var n struct {
		Status struct {
			NodeInfo struct {
				KubeletVersion string `json:"kubeletVersion"`
			} `json:"nodeInfo"`
		} `json:"status"`
	}
	err := staticpod.ReadNode(ctx, s.host.Root, &n)
	return n.Status.NodeInfo.KubeletVersion, err
}

// says returns which version a program says it has.
func (s *Store) says(ctx context.Context, name, at string) (string, error) {
	args := map[string][]string{kubelet: {"--version"}, kubeadm: {"version", "-o", "short"}, kubectl: {"version", "--client"}}[name]
	ctx, cancel := context.WithTimeout(ctx, runPatience)
	defer cancel()
	out, err := s.run(ctx, at, args...)
	if err != nil {
		return "", err
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return strings.TrimPrefix(strings.TrimPrefix(first, "Kubernetes "), "Client Version: "), nil
}

// mustSay returns an error if a program that was staged is not of the version. kubectl is not asked: nothing depends on it.
func (s *Store) mustSay(ctx context.Context, name, at, version string) error {
	if name == kubectl {
		return nil
	}
	said, err := s.says(ctx, name, at)
	if err != nil {
		return err
	}
	if said != version {
		return fmt.Errorf("%s is of version %q, not %s: the source has something else under this version", name, said, version)
	}
	return nil
}

// run runs a program that is not among the node's own, and returns what it has written.
func (s *Store) run(ctx context.Context, at string, args ...string) ([]byte, error) {
	for try := 1; ; try++ {
		out, err := s.host.RunTelling(ctx, host.Command{Name: at, At: at, Args: args})
		var said *host.SaidError
		switch {
		case err == nil:
			return out, nil
		case errors.Is(err, syscall.ETXTBSY) && try < tries:
			// A child that was started at the same moment still holds the file, which was open for writing then.
			if err := s.host.Clock.Wait(ctx, time.Second); err != nil {
				return nil, err
			}
			continue
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%s: %w", filepath.Base(at), ctx.Err())
		case errors.Is(err, fs.ErrPermission):
			return nil, fmt.Errorf("%s can't be run: %w; is its file system mounted noexec?", at, syscall.EACCES)
		case errors.As(err, &said):
			return nil, fmt.Errorf("%w%s", said.Err, lastLine(host.Redact(said.Said)))
		}
		return nil, err
	}
}

// lastLine returns the end of what a program said, with a colon before it. Below its error kubeadm says how to see more of it.
func lastLine(said string) string {
	const size = 300
	said, _, _ = strings.Cut(said, "\nTo see the stack trace of this error")
	lines := strings.Split(strings.TrimSpace(said), "\n")
	last := lines[len(lines)-1]
	if last == "" {
		return ""
	}
	if len(last) > size {
		last = "…" + strings.ToValidUTF8(last[len(last)-size:], "")
	}
	return ": " + last
}

// write puts a program of a release on the disk, and returns what it has become.
func (s *Store) write(to string, from io.Reader) (file, error) {
	sum := sha256.New()
	if err := s.host.Disk.Write(to, io.TeeReader(from, sum), private(0o700)); err != nil {
		return file{}, err
	}
	info, err := s.host.Disk.Lstat(to)
	if err != nil {
		return file{}, err
	}
	return file{Name: filepath.Base(to), SHA256: hexSum(sum), Size: info.Size()}, nil
}

// copyFrom writes a program of a release, whose SHA-256 has to be want, from a file. Empty: whichever it has.
func (s *Store) copyFrom(to, from, want string) (file, error) {
	in, err := s.host.Disk.Open(from)
	if err != nil {
		return file{}, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return file{}, err
	}
	if info.Size() > maxSize {
		return file{}, fmt.Errorf("%s: %w", from, tooLarge())
	}
	if err := hasRoom(s.free, filepath.Dir(to), uint64(info.Size())); err != nil {
		return file{}, err
	}
	return s.write(to, &verified{Reader: in, sum: sha256.New(), want: want, name: from})
}

// verified reads a file, and fails at its end if its SHA-256 is another one. What is written from it is complete only then.
type verified struct {
	io.Reader
	sum        hash.Hash
	want, name string
}

// Read implements io.Reader.
func (v *verified) Read(p []byte) (int, error) {
	n, err := v.Reader.Read(p)
	_, _ = v.sum.Write(p[:n]) // a hash does not fail
	if errors.Is(err, io.EOF) && v.want != "" && hexSum(v.sum) != v.want {
		return n, fmt.Errorf("the SHA-256 of %s is %s, and has to be %s: it is not used", v.name, hexSum(v.sum), v.want)
	}
	return n, err
}

// keepCopies keeps the programs that are installed as they are. A kubeadm of another version than the kubelet's is no part of its
// release.
func (s *Store) keepCopies(ctx context.Context, r *record) error {
	r.Form, r.Files, r.Packages = loose, nil, nil
	for _, name := range Programs {
		at, err := s.installed(name)
		if err != nil {
			return err
		}
		if at == "" {
			continue
		}
		if name == kubeadm {
			if said, err := s.says(ctx, name, at); err != nil || said != r.Version {
				continue
			}
		}
		f, err := s.copyFrom(filepath.Join(s.dir(r.Version), name), at, "")
		if err != nil {
			return err
		}
		r.put(f)
	}
	return nil
}

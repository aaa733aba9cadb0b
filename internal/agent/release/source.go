package release

import (
	"encoding/hex"
	"fmt"
	"net/url"
	"path"
	"runtime"
	"strings"

	"github.com/capi-refit/refit/internal/node"
)

// source is a KubernetesSource with what follows from it.
type source struct{ node.Source }

func (s source) src() node.Source { return s.Source }

// expand puts in what a text of the source leaves open.
func (s source) expand(text, program string) string {
	number := strings.TrimPrefix(s.Version, "v")
	minor := s.Version
	if parts := strings.SplitN(s.Version, ".", 3); len(parts) == 3 {
		minor = parts[0] + "." + parts[1]
	}
	return strings.NewReplacer("{version}", s.Version, "{number}", number, "{minor}", minor, "{arch}", runtime.GOARCH, "{name}", program).
		Replace(text)
}

// address returns a URL of the source. An error does not quote it, since there can be a password in it.
func (s source) address(text, program string) (*url.URL, error) {
	u, err := url.Parse(s.expand(text, program))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("a URL of KubernetesSource %s is not one of http or https", s.Name)
	}
	return u, nil
}

// fileName is the last part of a URL's path, by which its checksum is found.
func fileName(u *url.URL) string {
	if name := path.Base(u.Path); name != "." && name != "/" {
		return name
	}
	return u.Host
}

// sum returns the SHA-256 that a thing has to have, in lower case.
func (s source) sum(name string) (string, error) {
	found := ""
	for _, c := range s.Checksums {
		if c.Name != name || c.Architecture != "" && c.Architecture != runtime.GOARCH {
			continue
		}
		if found == "" || c.Architecture != "" {
			found = strings.ToLower(c.SHA256)
		}
	}
	if found == "" {
		return "", fmt.Errorf("KubernetesSource %s has no checksum of %s for %s, and without one it is not used: add it to its checksums of %s",
			s.Name, name, runtime.GOARCH, s.Version)
	}
	if b, err := hex.DecodeString(found); err != nil || len(b) != 32 {
		return "", fmt.Errorf("the checksum of %s in KubernetesSource %s is not a SHA-256 in hex", name, s.Name)
	}
	return found, nil
}

// names returns the programs that the source has by themselves: kubectl only if there is a checksum of it.
func (s source) names() []string {
	for _, c := range s.Checksums {
		if c.Name == kubectl && (c.Architecture == "" || c.Architecture == runtime.GOARCH) {
			return Programs
		}
	}
	return []string{kubeadm, kubelet}
}

// check returns what is wrong with the source before anything is fetched.
func (s source) check() error {
	if err := s.checkPrograms(); err != nil {
		return err
	}
	if x := s.SystemExtension; x != nil && !extensionForm.MatchString(x.Name) {
		return fmt.Errorf("%q is not the name of a system extension", x.Name)
	}
	for _, text := range s.whole() {
		u, err := s.address(text, "")
		if err != nil {
			return err
		}
		if _, err := s.sum(fileName(u)); err != nil {
			return err
		}
	}
	return nil
}

// whole returns the URLs of what is found by its own name in the checksums.
func (s source) whole() []string {
	var all []string
	if s.Archive != nil {
		all = append(all, s.Archive.URL)
	}
	if s.SystemExtension != nil {
		all = append(all, s.SystemExtension.URL)
	}
	return append(all, s.Images.Archives...)
}

// checkPrograms returns what is wrong with a source of programs by themselves.
func (s source) checkPrograms() error {
	if s.Binaries == nil && s.Directory == nil {
		return nil
	}
	for _, name := range s.names() {
		if _, err := s.sum(name); err != nil {
			return err
		}
	}
	if s.Binaries == nil {
		return nil
	}
	_, err := s.address(s.Binaries.URL, kubelet)
	return err
}

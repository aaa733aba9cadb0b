package kubernetessource

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/policykind"
	"github.com/capi-refit/refit/internal/repository"
	"github.com/capi-refit/refit/schedule"
)

const (
	maxVersions  = 50
	maxChecksums = 50
	maxArchives  = 20
)

// programs are those that a version has.
var programs = []string{"kubeadm", "kubelet", "kubectl"}

var (
	sha256      = regexp.MustCompile(`^[0-9a-f]{64}$`)
	login       = regexp.MustCompile(`://[^/\s]*@`)
	extension   = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$`)
	pattern     = regexp.MustCompile(`^([A-Za-z0-9.+~:*?_-]|\{number\}|\{version\})+$`)
	placeholder = regexp.MustCompile(`\{(version|arch|name)\}`)
)

// checker collects what is wrong with a source. Nothing of it contains an URL, which might have a login in it.
type checker struct{ errs []error }

func (c *checker) wrong(field, format string, args ...any) {
	c.errs = append(c.errs, &schedule.FieldError{Field: field, Err: fmt.Errorf(format, args...)})
}

func (c *checker) join(err error) {
	if err != nil {
		c.errs = append(c.errs, err)
	}
}

func (c *checker) err() error { return errors.Join(c.errs...) }

// spec checks what a source says.
func (c *checker) spec(s *refitv1.KubernetesSourceSpec) {
	c.join(policykind.Word("staging", s.Staging, "", refitv1.EarlyStaging, refitv1.InWindowStaging))
	c.origin(s)
	if len(s.Images.Archives) > maxArchives {
		c.wrong("images.archives", "it has %d entries, of which %d are allowed", len(s.Images.Archives), maxArchives)
	}
	for i, u := range s.Images.Archives {
		c.url(fmt.Sprintf("images.archives[%d]", i), u, false)
	}
	if s.Proxy != nil {
		if problem := urlProblem(s.Proxy.URL); problem != "" {
			c.wrong("proxy.url", "%s", problem)
		}
	}
	if len(c.errs) == 0 { // what is checked here is read out of the rest
		c.versions(s)
	}
}

// origin checks where the programs come from.
func (c *checker) origin(s *refitv1.KubernetesSourceSpec) {
	set := 0
	for _, is := range []bool{s.Binaries != nil, s.Archive != nil, s.Directory != nil, s.Packages != nil, s.SystemExtension != nil} {
		if is {
			set++
		}
	}
	if set != 1 {
		c.wrong("spec", "%d of binaries, archive, directory, packages and systemExtension are set, and there is to be one", set)
	}
	if s.Binaries != nil {
		c.url("binaries.url", s.Binaries.URL, true)
	}
	if s.Archive != nil {
		c.url("archive.url", s.Archive.URL, false)
	}
	if s.Directory != nil {
		c.directory(s.Directory.Path)
	}
	if s.Packages != nil {
		c.packages(s.Packages)
	}
	if e := s.SystemExtension; e != nil {
		c.url("systemExtension.url", e.URL, false)
		if !extension.MatchString(e.Name) {
			c.wrong("systemExtension.name", "%q is not the name of an extension", e.Name)
		}
	}
}

// url checks an URL, in which {name} is needed, or not possible.
func (c *checker) url(field string, u refitv1.SourceURL, named bool) {
	if problem := urlProblem(expand(string(u), "v1.0.0", "amd64", "kubelet")); problem != "" {
		c.wrong(field, "%s", problem)
		return
	}
	switch has := strings.Contains(string(u), "{name}"); {
	case named && !has:
		c.wrong(field, "it has no {name}, where the name of the program is")
	case !named && has:
		c.wrong(field, "it has {name}, and is one thing, not one for each program")
	}
}

// urlProblem returns what is wrong with an URL, or nothing.
func urlProblem(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "it is not a URL"
	case u.Scheme != "http" && u.Scheme != "https":
		return "it is neither an http nor an https URL"
	case u.Host == "":
		return "it names no host"
	case u.User != nil:
		return "it has a login in it; whoever can read this object can read it"
	case strings.ContainsAny(text, "{}"):
		return "only {version}, {arch} and {name} can be in braces"
	default:
		return ""
	}
}

func (c *checker) directory(dir string) {
	p := expand(dir, "v1.0.0", "amd64", "{}")
	switch {
	case !path.IsAbs(p) || path.Clean(p) != p || p == "/":
		c.wrong("directory.path", "%q is not an absolute, clean path below the root", dir)
	case strings.ContainsAny(p, "{}"):
		c.wrong("directory.path", "only {version} and {arch} can be in braces")
	}
}

func (c *checker) packages(p *refitv1.PackagesSource) {
	c.join(policykind.Word("packages.manager", p.Manager, refitv1.APTPackages, refitv1.DNFPackages))
	if login.MatchString(p.Repository) {
		c.wrong("packages.repository", "it has a URL with a login in it; whoever can read this object can read it")
	}
	c.repository(p)
	if p.Key != "" && !strings.Contains(p.Key, "-----BEGIN PGP PUBLIC KEY BLOCK-----") {
		c.wrong("packages.key", "it is not a public key in ASCII armor")
	}
	if v := packageVersion(p); !pattern.MatchString(v) || !strings.Contains(v, "{number}") && !strings.Contains(v, "{version}") {
		c.wrong("packages.packageVersion", "%q is not a pattern with {number} or {version} in it", v)
	}
}

// repository reads the text as the node will, with something in the place of what it puts in.
func (c *checker) repository(p *refitv1.PackagesSource) {
	text := strings.TrimSpace(strings.NewReplacer("{keyring}", "/keyring", "{version}", "v1.0.0", "{number}", "1.0.0", "{minor}", "v1.0",
		"{arch}", "amd64", "{name}", "").Replace(p.Repository))
	check := repository.CheckAPT
	if p.Manager == refitv1.DNFPackages {
		check = repository.CheckDNF
	}
	if text == "" {
		return
	}
	if err := check(text); err != nil {
		c.wrong("packages.repository", "%w", err)
	}
}

// versions checks that each version has the checksums without which nothing of it is used.
func (c *checker) versions(s *refitv1.KubernetesSourceSpec) {
	switch n := len(s.Versions); {
	case n > maxVersions:
		c.wrong("versions", "it has %d entries, of which %d are allowed", n, maxVersions)
	case n == 0 && s.Packages == nil:
		c.wrong("versions", "it is empty, so there is nothing to have from the source")
	case n == 0 && len(s.Images.Archives) > 0:
		c.wrong("versions", "it is empty, and images.archives need checksums for each version")
	}
	for _, e := range s.EndOfLife {
		if _, err := time.Parse(time.DateOnly, e.Date); err != nil {
			c.wrong(fmt.Sprintf("endOfLife[%s].date", e.Minor), "%q is not a date; write it as 2026-10-28", e.Date)
		}
	}
	seen := map[string]bool{}
	for _, v := range s.Versions {
		field := fmt.Sprintf("versions[%s]", v.Version)
		if err := checkVersion(v.Version); err != nil {
			c.wrong(field, "%w", err)
			continue
		}
		if seen[v.Version] {
			c.wrong(field, "it is there twice")
		}
		seen[v.Version] = true
		c.checksums(field, s, v)
	}
}

// thing is what a checksum is of.
type thing struct{ name, architecture string }

func (c *checker) checksums(field string, s *refitv1.KubernetesSourceSpec, v refitv1.SourceVersion) {
	field += ".checksums"
	if n := len(v.Checksums); n > maxChecksums {
		c.wrong(field, "it has %d entries, of which %d are allowed", n, maxChecksums)
	}
	has := map[thing]bool{}
	var architectures []string
	for _, sum := range v.Checksums {
		of := thing{sum.Name, sum.Architecture}
		if has[of] {
			c.wrong(field, "%s is there twice", strings.TrimSpace(sum.Name+" "+sum.Architecture))
		}
		has[of] = true
		if !sha256.MatchString(sum.SHA256) {
			c.wrong(field, "%s: sha256 is not 64 small hex digits", sum.Name)
		}
		if sum.Architecture != "" && !slices.Contains(architectures, sum.Architecture) {
			architectures = append(architectures, sum.Architecture)
		}
	}
	if lacks := lacking(s, v.Version, has, architectures); lacks != "" {
		c.wrong(field, "%s, and without one it is not used", lacks)
	}
}

// lacking returns what has no checksum, or nothing. Each architecture that is named is to be complete. Where none is, a URL can still have
// it: one that is complete is then enough.
func lacking(s *refitv1.KubernetesSourceSpec, version string, has map[thing]bool, named []string) string {
	architectures, lacks := named, ""
	if len(named) == 0 {
		architectures = []string{"amd64", "arm64"}
	}
	for _, arch := range architectures {
		missing := slices.DeleteFunc(things(s, version, arch), func(name string) bool { return has[thing{name, ""}] || has[thing{name, arch}] })
		switch {
		case len(missing) == 0 && len(named) == 0:
			return ""
		case len(missing) > 0 && lacks == "":
			lacks = fmt.Sprintf("%s has none for %s", strings.Join(missing, ", "), arch)
		}
	}
	return lacks
}

// things are the names of all that is fetched or read for a version.
func things(s *refitv1.KubernetesSourceSpec, version, arch string) []string {
	last := func(u refitv1.SourceURL) string {
		parsed, err := url.Parse(expand(string(u), version, arch, ""))
		if err != nil {
			return string(u) // it was read before
		}
		return path.Base(parsed.Path)
	}
	var out []string
	switch {
	case s.Binaries != nil, s.Directory != nil:
		out = slices.Clone(programs)
	case s.Archive != nil:
		out = []string{last(s.Archive.URL)}
	case s.SystemExtension != nil:
		out = []string{last(s.SystemExtension.URL)}
	}
	for _, u := range s.Images.Archives {
		out = append(out, last(u))
	}
	return out
}

// expand puts in what stands in braces.
func expand(text, version, arch, name string) string {
	return placeholder.ReplaceAllStringFunc(text, func(p string) string {
		return map[string]string{"{version}": version, "{arch}": arch, "{name}": name}[p]
	})
}

// checkVersion returns an error unless text is a version as spec.version of a Machine has it.
func checkVersion(text string) error {
	if _, err := version.ParseSemantic(text); err != nil || !strings.HasPrefix(text, "v") {
		return fmt.Errorf("%q is not a version such as v1.36.3", text)
	}
	return nil
}

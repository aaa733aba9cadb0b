package kubernetessource

import (
	"fmt"
	"slices"
	"strings"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/policykind"
)

// Source is a KubernetesSource that was read. It does not change, and may be shared.
type Source struct {
	policykind.Header // where it can't be read, no version may be claimed for a Machine that it selects

	spec refitv1.KubernetesSourceSpec
}

// Compile reads a source. What the CRD checks is checked again, for an API server that has not the same one. A selector that
// can't be read selects every Machine of the namespace.
func Compile(k *refitv1.KubernetesSource) *Source {
	out := &Source{Header: policykind.HeaderOf(k, k.Spec.Selector), spec: *k.Spec.DeepCopy()}
	var c checker
	c.join(out.Err)
	c.spec(&out.spec)
	out.Err = c.err()
	return out
}

// early says when a version is staged. What is not said is Early, which is the CRD's default.
func (s *Source) early() bool { return s.spec.Staging != refitv1.InWindowStaging }

// version returns where a version comes from.
func (s *Source) version(version string) (*node.Source, error) {
	if err := checkVersion(version); err != nil {
		return nil, fmt.Errorf("KubernetesSource %s is not asked for %q: %w", s.Name, version, err)
	}
	var checksums []refitv1.SourceChecksum
	switch i := slices.IndexFunc(s.spec.Versions, func(v refitv1.SourceVersion) bool { return v.Version == version }); {
	case i >= 0:
		checksums = s.spec.Versions[i].Checksums
	case s.spec.Packages != nil && len(s.spec.Versions) == 0: // all that the repository has
	default:
		return nil, fmt.Errorf("KubernetesSource %s does not have %s; it has %s; add it to the source's versions", s.Name, version, s.versions())
	}
	out := &node.Source{Name: s.Name, Version: version, Images: node.Images{Pull: s.spec.Images.Pull}}
	for _, c := range checksums {
		out.Checksums = append(out.Checksums, node.Checksum{Name: c.Name, Architecture: c.Architecture, SHA256: c.SHA256})
	}
	for _, url := range s.spec.Images.Archives {
		out.Images.Archives = append(out.Images.Archives, string(url))
	}
	if p := s.spec.Proxy; p != nil {
		out.Proxy, out.NoProxy = p.URL, strings.Join(p.NoProxy, ",")
	}
	s.origin(out)
	return out, nil
}

// origin says where the programs come from.
func (s *Source) origin(out *node.Source) {
	switch o := s.spec; {
	case o.Binaries != nil:
		out.Binaries = &node.Binaries{URL: string(o.Binaries.URL)}
	case o.Archive != nil:
		out.Archive = &node.Archive{URL: string(o.Archive.URL)}
	case o.Directory != nil:
		out.Directory = &node.Directory{Path: o.Directory.Path}
	case o.Packages != nil:
		out.Packages = &node.Packages{
			Manager: node.PackageManager(o.Packages.Manager), Repository: o.Packages.Repository, Key: o.Packages.Key,
			PackageVersion: packageVersion(o.Packages),
		}
	case o.SystemExtension != nil:
		out.SystemExtension = &node.SystemExtension{URL: string(o.SystemExtension.URL), Name: o.SystemExtension.Name}
	}
}

// packageVersion returns the pattern, which is the CRD's default when it is not said.
func packageVersion(p *refitv1.PackagesSource) string {
	if p.PackageVersion == "" {
		return "{number}-*"
	}
	return p.PackageVersion
}

// versions names those that the source has, for people.
func (s *Source) versions() string {
	if len(s.spec.Versions) == 0 {
		return "none"
	}
	names := make([]string, len(s.spec.Versions))
	for i, v := range s.spec.Versions {
		names[i] = v.Version
	}
	return strings.Join(names, ", ")
}

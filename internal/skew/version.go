package skew

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// unreleased is what stands before a release in the order of versions. Other suffixes, as in v1.36.1-eks-1a2b3c, name a build of a
// release, and are no older than it.
var unreleased = regexp.MustCompile(`^(alpha|beta|rc)`)

// Parse reads the version of a component, as a Node, a Machine or a tag has it. In a tag "_" stands for "+". What tells builds of a
// release apart is left out. The error is for people.
func Parse(text string) (*version.Version, error) {
	v, err := version.ParseSemantic(strings.Replace(text, "_", "+", 1))
	if err != nil {
		return nil, fmt.Errorf("%q is not a version of Kubernetes", text)
	}
	release := fmt.Sprintf("%d.%d.%d", v.Major(), v.Minor(), v.Patch())
	if unreleased.MatchString(v.PreRelease()) {
		release += "-" + v.PreRelease()
	}
	return version.ParseSemantic(release)
}

// ParseImage reads the version of a component out of its image, which has it as its tag. The error is for people.
func ParseImage(image string) (*version.Version, error) {
	name, _, _ := strings.Cut(image, "@")
	tag := name[strings.LastIndexByte(name, '/')+1:]
	_, tag, found := strings.Cut(tag, ":")
	if !found {
		return nil, fmt.Errorf("the image %s has no tag, which would tell the version", image)
	}
	v, err := Parse(tag)
	if err != nil {
		return nil, fmt.Errorf("the tag of the image %s is not a version of Kubernetes", image)
	}
	return v, nil
}

// Step returns why a machine can't be brought from one version to another in place, or nil: it goes to a newer patch, or to the next
// minor, and never back. The versions are as Cluster API has them.
func Step(from, to string) error {
	if from == "" {
		return errors.New("it is not said which version the machine has")
	}
	if to == "" {
		return errors.New("a machine that has a version keeps one")
	}
	was, err := ParseExact(from)
	if err != nil {
		return errors.New("the version that the machine has is not of the form v1.36.3")
	}
	want, err := ParseExact(to)
	if err != nil {
		return errors.New("the version is not of the form v1.36.3")
	}
	if want.EqualTo(was) {
		return errors.New("another build of the same version is not brought to a node in place")
	}
	return Follow(was, want)
}

// ParseExact reads a version as Cluster API and the components themselves write it, with a "v". Unlike with Parse all parts count: which
// build of a release is asked for is no matter of skew. The error is for people.
func ParseExact(text string) (*version.Version, error) {
	v, err := version.ParseSemantic(text)
	if err != nil || !strings.HasPrefix(text, "v") {
		return nil, fmt.Errorf("%q is not a version of Kubernetes such as v1.36.3", text)
	}
	return v, nil
}

// Follow returns why one version does not follow another on a node, and what to do, or nil. Equal versions do.
func Follow(was, want *version.Version) error {
	switch {
	case want.LessThan(was):
		return fmt.Errorf("a node is not taken back to an older version; set the version to v%s or a newer one, or have the machine replaced", was)
	case want.Major() != was.Major():
		return errors.New("a node is not brought to another major version in place; have the machine replaced")
	case want.Minor() > was.Minor()+1:
		return fmt.Errorf("kubeadm can't skip a minor version; go to v%d.%d first", was.Major(), was.Minor()+1)
	default:
		return nil
	}
}

package version

import (
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// Step says why a node can't be brought from one version to another in place, or nil: kubeadm goes to a newer patch, or to the next
// minor (https://kubernetes.io/releases/version-skew-policy), and never back.
func Step(from, to string) error {
	if from == "" {
		return errors.New("it is not said which version the machine has")
	}
	if to == "" {
		return errors.New("a machine that has a version keeps one")
	}
	was, err := parse(from)
	if err != nil {
		return errors.New("the version that the machine has is not of the form v1.36.3")
	}
	want, err := parse(to)
	if err != nil {
		return errors.New("the version is not of the form v1.36.3")
	}
	switch {
	case want.LessThan(was):
		return errors.New("a node is not taken back to an older version")
	case want.EqualTo(was):
		return errors.New("another build of the same version is not brought to a node in place")
	case want.Major() != was.Major():
		return errors.New("a node is not brought to another major version in place")
	case want.Minor() > was.Minor()+1:
		return errors.New("kubeadm can't skip a minor version; go to the next one first")
	default:
		return nil
	}
}

// parse reads a version as Cluster API writes it.
func parse(text string) (*version.Version, error) {
	if !strings.HasPrefix(text, "v") {
		return nil, errors.New("it does not begin with v")
	}
	return version.ParseSemantic(text)
}

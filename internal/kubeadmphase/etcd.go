package kubeadmphase

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/capi-refit/refit/internal/skew"
)

// etcds are the tags of etcd's image that kubeadm takes for a minor version of Kubernetes where the configuration names none: the oldest that
// its patch releases take, and one that none is known to go past. They are SupportedEtcdVersion in cmd/kubeadm/app/constants/constants.go of
// the module k8s.io/kubernetes:
//
//	v1.31.0  3.5.15-0    v1.32.2  3.5.16-0    v1.33.6  3.5.24-0    v1.34.0 3.6.4-0    v1.35.0 3.6.6-0    v1.36.1 3.6.8-0
//	v1.31.14 3.5.24-0    v1.32.13 3.5.24-0    v1.33.13 3.5.24-0    v1.34.4 3.6.5-0    v1.35.6 3.6.6-0    v1.36.3 3.6.8-0
//
// The oldest of 1.33 is what v1.34.0 says of it. Patches of 1.34 and 1.35 that come may take what v1.36 takes: with a bound that is too high
// a change is left that kubeadm would make, and with one that is too low one is claimed that it would not.
var etcds = map[uint]struct{ oldest, newest string }{
	31: {"3.5.15-0", "3.5.24-0"},
	32: {"3.5.16-0", "3.5.24-0"},
	33: {"3.5.21-0", "3.5.24-0"},
	34: {"3.6.4-0", "3.6.8-0"},
	35: {"3.6.6-0", "3.6.8-0"},
	36: {"3.6.8-0", "3.6.8-0"},
}

// Etcd returns why kubeadm would not bring a node from one tag of etcd's image to another, or nil: it fails when it can't compare them, and
// leaves etcd as it is when the one that is wanted is older (performEtcdStaticPodUpgrade). A tag is empty where the configuration names none
// and kubeadm chooses one by the version of Kubernetes, which is empty if it is not known. The error is for people.
func Etcd(kubernetes, was, want string) error {
	for _, tag := range []string{was, want} {
		if tag == "" {
			continue
		}
		if _, err := parseTag(tag); err != nil {
			return fmt.Errorf("%w, so kubeadm can't compare it with another, and fails whenever it makes etcd's static pod again", err)
		}
	}
	switch {
	case was == "" && want == "":
		return nil
	case was == "":
		return named(kubernetes, want)
	case want == "":
		return unnamed(kubernetes, was)
	}
	if older(want, was) {
		return fmt.Errorf("kubeadm does not take etcd back from %s to %s, and leaves it as it is; etcd can't go back to an earlier minor version "+
			"with its data at all: restore a snapshot instead", was, want)
	}
	return nil
}

// RunningEtcd returns why kubeadm would not bring etcd to a tag on a node that runs another one, or nil.
func RunningEtcd(runs, want string) error {
	if runs == "" {
		return errors.New("the image of the etcd that runs has no tag, so kubeadm can't compare it with another, and fails")
	}
	return Etcd("", runs, cmp.Or(want, runs)) // what kubeadm chooses is compared when the specs are judged
}

// named: the node runs what kubeadm has chosen, which is one of several.
func named(kubernetes, want string) error {
	chosen, ok := chosenFor(kubernetes)
	if !ok {
		return fmt.Errorf("which etcd the node runs is not in the specs, and which one kubeadm of %s has chosen is not known here, "+
			"so it can't be told whether %s would be older", cmp.Or(kubernetes, "an unknown version"), want)
	}
	if older(want, chosen.newest) {
		return fmt.Errorf("which etcd the node runs is not in the specs; kubeadm of Kubernetes %s has chosen up to %s, and does not go back to %s",
			kubernetes, chosen.newest, want)
	}
	return nil
}

// unnamed: kubeadm chooses, and has to choose a newer one. Of the same one refit could not tell that the choice is made.
func unnamed(kubernetes, was string) error {
	chosen, ok := chosenFor(kubernetes)
	if ok && older(was, chosen.oldest) {
		return nil
	}
	return fmt.Errorf("without a tag kubeadm chooses one by the version of Kubernetes, which may be %s or an older one, to which it does not go back; "+
		"name the tag to go to instead", was)
}

func chosenFor(kubernetes string) (chosen struct{ oldest, newest string }, ok bool) {
	v, err := skew.Parse(kubernetes)
	if err != nil || v.Major() != 1 {
		return chosen, false
	}
	chosen, ok = etcds[v.Minor()]
	return chosen, ok
}

// older reports whether a tag is before another. Both can be read.
func older(tag, than string) bool {
	a, err := parseTag(tag)
	b, otherErr := parseTag(than)
	return err == nil && otherErr == nil && a.LessThan(b)
}

// parseTag reads the tag of an image of etcd, as kubeadm does: in it "_" stands for "+", and it may begin with "v".
func parseTag(tag string) (*version.Version, error) {
	v, err := version.ParseSemantic(strings.Replace(tag, "_", "+", 1))
	if err != nil {
		return nil, fmt.Errorf("the tag %q is not a version such as 3.6.8-0", tag)
	}
	return v, nil
}

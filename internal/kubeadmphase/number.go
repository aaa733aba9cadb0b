package kubeadmphase

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// numberForm is that of a version of Kubernetes: semantic versioning with a "v". The metadata of a build doesn't count for the order.
// It is compiled when there is one to read.
var numberForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^v(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z.-]+)?$`)
})

// Number is a version that can be compared.
type Number struct {
	Major, Minor, Patch int
	// pre are the parts of what comes before a release, such as "rc.1". Empty: it is a release.
	pre []string
}

// Parse reads a version of Kubernetes, or the tag of an image that stands for it.
func Parse(text string) (Number, error) {
	parts := numberForm().FindStringSubmatch(strings.ReplaceAll(text, "_", "+"))
	if parts == nil {
		return Number{}, fmt.Errorf("%q is not a version of Kubernetes", text)
	}
	var n Number
	for i, field := range []*int{&n.Major, &n.Minor, &n.Patch} {
		var err error
		if *field, err = strconv.Atoi(parts[i+1]); err != nil {
			return Number{}, fmt.Errorf("%q is not a version of Kubernetes", text)
		}
	}
	if parts[4] != "" {
		n.pre = strings.Split(parts[4], ".")
	}
	return n, nil
}

// Compare is negative if n is before other, by the order of semantic versioning.
func (n Number) Compare(other Number) int {
	return cmp.Or(
		cmp.Compare(n.Major, other.Major), cmp.Compare(n.Minor, other.Minor), cmp.Compare(n.Patch, other.Patch),
		comparePre(n.pre, other.pre),
	)
}

// ParseTag reads the tag of an image of etcd, as kubeadm does: in it "_" stands for "+", and a "v" in front may be missing.
func ParseTag(tag string) (Number, error) {
	n, err := Parse("v" + strings.TrimPrefix(tag, "v"))
	if err != nil {
		return Number{}, fmt.Errorf("the tag %q is not a version such as 3.6.8-0", tag)
	}
	return n, nil
}

// comparePre compares what comes before a release: that is before the release itself.
func comparePre(a, b []string) int {
	switch {
	case len(a) == 0 || len(b) == 0:
		return cmp.Compare(len(b), len(a))
	default:
		return slices.CompareFunc(a, b, comparePart)
	}
}

// comparePart compares two parts: numbers by value, and before words.
func comparePart(a, b string) int {
	x, xErr := strconv.ParseUint(a, 10, 63)
	y, yErr := strconv.ParseUint(b, 10, 63)
	switch {
	case xErr == nil && yErr == nil:
		return cmp.Compare(x, y)
	case xErr == nil:
		return -1
	case yErr == nil:
		return 1
	default:
		return strings.Compare(a, b)
	}
}

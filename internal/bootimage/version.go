package bootimage

import (
	"cmp"
	"errors"
	"regexp"
	"slices"
	"strings"
)

// defaultPattern finds a version of three numbers.
var defaultPattern = regexp.MustCompile(`v?(\d+\.\d+\.\d+)`)

// version is numbers, those first that count most, as decimal digits without zeros in front: some images have dates in theirs,
// and nothing bounds them.
type version []string

// parseVersion reads numbers with dots between them, and maybe a v in front.
func parseVersion(text string) (version, bool) {
	numbers := strings.Split(strings.TrimPrefix(text, "v"), ".")
	for i, n := range numbers {
		if n == "" || strings.Trim(n, "0123456789") != "" {
			return nil, false
		}
		numbers[i] = cmp.Or(strings.TrimLeft(n, "0"), "0")
	}
	return numbers, true
}

// compare returns -1 when v is older than o, 1 when it is newer, and 0 when they are the same. Numbers that are missing are 0.
func (v version) compare(o version) int {
	for i := range max(len(v), len(o)) {
		a, b := v.at(i), o.at(i)
		if c := cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)); c != 0 {
			return c
		}
	}
	return 0
}

func (v version) at(i int) string {
	if i < len(v) {
		return v[i]
	}
	return "0"
}

// readPattern reads an expression whose first group is a version.
func readPattern(expression string) (*regexp.Regexp, error) {
	pattern, err := regexp.Compile(expression)
	if err != nil {
		return nil, err
	}
	if pattern.NumSubexp() == 0 {
		return nil, errors.New("it has no group, which is the version")
	}
	return pattern, nil
}

// versionOf finds the version of an image in its name. Of the fields that a name is made of the first counts that has one, and in
// it the last match: hosts and directories come before the name of a file.
func versionOf(pattern *regexp.Regexp, name string) (version, bool) {
	for part := range strings.SplitSeq(name, separator) {
		if _, value, found := strings.Cut(part, "="); found {
			part = value
		}
		for _, match := range slices.Backward(pattern.FindAllStringSubmatch(part, -1)) {
			if v, ok := parseVersion(match[1]); ok {
				return v, true
			}
		}
	}
	return nil, false
}

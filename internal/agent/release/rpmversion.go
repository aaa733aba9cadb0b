package release

import (
	"cmp"
	"strings"
)

// older reports whether a version of a package of rpm's, with or without an epoch, is older than another one.
func older(a, b string) bool {
	epochA, a := epoch(a)
	epochB, b := epoch(b)
	if c := compareSegments(epochA, epochB); c != 0 {
		return c < 0
	}
	versionA, releaseA, _ := strings.Cut(a, "-")
	versionB, releaseB, _ := strings.Cut(b, "-")
	return cmp.Or(compareSegments(versionA, versionB), compareSegments(releaseA, releaseB)) < 0
}

// epoch cuts off the epoch of a version, "0" if it has none.
func epoch(v string) (of, rest string) {
	if of, rest, ok := strings.Cut(v, ":"); ok {
		return of, rest
	}
	return "0", v
}

// compareSegments compares as rpm does (rpm-version(7)): segments of digits by number, those of letters by their order, digits are newer
// than letters, a tilde is older than anything, the end too, and a caret newer than the end and older than anything else.
func compareSegments(a, b string) int {
	for {
		a, b = strings.TrimLeftFunc(a, separator), strings.TrimLeftFunc(b, separator)
		if c, marked := compareMarks(a, b); marked {
			return c
		}
		if a == "" || b == "" {
			return cmp.Compare(len(a), len(b))
		}
		numeric := digit(rune(a[0]))
		if numeric != digit(rune(b[0])) {
			if numeric {
				return 1
			}
			return -1
		}
		var x, y string
		x, a = segment(a, numeric)
		y, b = segment(b, numeric)
		if c := compareSegment(x, y, numeric); c != 0 {
			return c
		}
	}
}

// compareMarks compares what begins with a tilde or a caret on one side at least.
func compareMarks(a, b string) (c int, marked bool) {
	for _, mark := range []string{"~", "^"} {
		inA, inB := strings.HasPrefix(a, mark), strings.HasPrefix(b, mark)
		switch {
		case inA && inB:
			return compareSegments(a[1:], b[1:]), true
		case inA:
			return sideWith(mark, b), true
		case inB:
			return -sideWith(mark, a), true
		}
	}
	return 0, false
}

// sideWith compares what begins with a mark with what does not.
func sideWith(mark, other string) int {
	if mark == "^" && other == "" {
		return 1
	}
	return -1
}

func compareSegment(a, b string, numeric bool) int {
	if numeric {
		a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
		if c := cmp.Compare(len(a), len(b)); c != 0 {
			return c
		}
	}
	return cmp.Compare(a, b)
}

// segment cuts off as many digits, or letters, as there are.
func segment(s string, numeric bool) (of, rest string) {
	rest = strings.TrimLeftFunc(s, func(r rune) bool {
		if numeric {
			return digit(r)
		}
		return letter(r)
	})
	return s[:len(s)-len(rest)], rest
}

func digit(r rune) bool     { return r >= '0' && r <= '9' }
func letter(r rune) bool    { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }
func separator(r rune) bool { return !digit(r) && !letter(r) && r != '~' && r != '^' }

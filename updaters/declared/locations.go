package declared

import (
	"github.com/capi-refit/refit/internal/fieldset"
)

// Locations are where a field of an infrastructure machine differs: the names of the fields that lead there below spec, with
// list items left out, so that they can be compared with dotted paths. There is at least one.
func Locations(oc fieldset.ObjectChange, f fieldset.Field) [][]string { return locations(oc, f) }

// Below reports whether a location is at one of the dotted paths or below it.
func Below(location []string, paths []string) bool { return below(location, paths) }

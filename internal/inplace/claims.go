package inplace

import (
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/updaters"
)

// Claims are who makes the fields of a change, and who else would.
type Claims struct {
	Change   fieldset.Change
	Decision updaters.Decision
	// Also has for each field of the decision the names of the UpdaterRegistrations that would claim it, too, in the order in which they are asked.
	Also [][]string
	// Unsaid says of whom it is not known what else they would claim.
	Unsaid []error
}

package policykind

import (
	"strconv"
	"strings"
)

// Versions returns which policies there are in a list, and which of their generations.
func Versions[T Policy](list []T) string {
	var b strings.Builder
	for _, one := range list {
		h := one.Head()
		b.WriteString(string(h.UID))
		b.WriteByte('/')
		b.WriteString(strconv.FormatInt(h.Generation, 10))
		b.WriteByte(' ')
	}
	return b.String()
}

package handlers

import (
	"fmt"
	"strings"

	"github.com/capi-refit/refit/updaters"
)

// account is what is told of a decision. It is made once, since the same is asked for by many.
type account struct {
	message string
	left    []string     // names the fields that can't be updated in place: some of them, and how many more there are
	labels  []fieldLabel // of these fields, all of them
}

// maxNamed is how many fields are named where all that can't be updated in place are told.
const maxNamed = 20

// tellOf returns what is told of a decision about a machine that is made by kubeadm, or is not.
func tellOf(d updaters.Decision, byKubeadm bool) account {
	var t account
	for _, f := range d {
		if f.Covered() {
			continue
		}
		t.labels = append(t.labels, fieldLabel{f.Field.Object, labelOf(f.Field, byKubeadm)})
		if len(t.left) < maxNamed {
			t.left = append(t.left, describe(f))
		}
	}
	t.message = t.summary(len(d))
	if more := len(t.labels) - len(t.left); more > 0 {
		t.left = append(t.left, fmt.Sprintf("and %d more", more))
	}
	return t
}

// summary says in one line what was decided about so many fields.
func (t account) summary(changed int) string {
	left := len(t.labels)
	switch {
	case changed == 0:
		return "nothing differs"
	case left == 0:
		return fmt.Sprintf("all %d changed fields can be updated in place", changed)
	case left == 1:
		return fmt.Sprintf("1 of %d changed fields can't be updated in place: %s", changed, t.left[0])
	default:
		return fmt.Sprintf("%d of %d changed fields can't be updated in place, among them %s", left, changed, t.left[0])
	}
}

// describe names a field that can't be updated in place, and says why.
func describe(v updaters.Verdict) string {
	return fmt.Sprintf("%s of the %s: %s", cut(v.Field.String()), v.Field.Object, cut(v.Reason))
}

// maxText is how much of a path or of a reason is told, in bytes. What is longer has been made up, or has a value in it that was.
const maxText = 1024

func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}

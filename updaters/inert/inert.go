// Package inert is the updater for fields that take nothing on a running node, and the register of those that are never
// changed on one, with the reasons.
package inert

import (
	"context"
	"strings"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/kubeadmconfig"
)

// Name is the updater's name.
const Name = "inert"

// Updater judges the fields of the table.
type Updater struct{ futureOnly bool }

var _ updaters.Updater = (*Updater)(nil)

// New returns an Updater. With futureOnly it claims fields that only matter to machines made later, such as the commands
// that run around kubeadm; a running node is then left as it is.
//
// It is to be registered before all others: between reasons the one that was given last is shown, and theirs say more.
func New(futureOnly bool) *Updater { return &Updater{futureOnly: futureOnly} }

// Name implements updaters.Updater.
func (*Updater) Name() string { return Name }

// Claim implements updaters.Updater.
func (u *Updater) Claim(ctx context.Context, c fieldset.Change) (updaters.Claim, error) {
	var claim updaters.Claim
	for _, oc := range c {
		if oc.Object == fieldset.BootstrapConfig && !kubeadmconfig.Is(oc.Desired) {
			continue
		}
		for _, f := range oc.Fields {
			if err := ctx.Err(); err != nil {
				return updaters.Claim{}, err
			}
			e, ok := Lookup(oc.Object, kubeadmconfig.Location(f)...)
			switch {
			case !ok:
			case e.Verdict == NoAction, e.Verdict == FutureOnly && u.futureOnly:
				none := []disruption.Action{{Type: disruption.None}}
				claim.Covered = append(claim.Covered, updaters.Covered{Field: f, Actions: none})
			default:
				claim.Left = append(claim.Left, updaters.Left{Field: f, Reason: e.why(kubeadmconfig.Location(f))})
			}
		}
	}
	return claim, nil
}

// why is why a field is left. The path of one that can be declared is shown as a declaration has it, which is not as people are shown the field.
func (e Entry) why(location []string) string {
	if e.Object != fieldset.InfrastructureMachine || len(location) == 0 {
		return e.Why
	}
	return e.Why + ", as " + strings.Join(location, ".")
}

// Lookup returns the entry for the field of an object to which the names lead, items of lists left out. The longest path
// that matches wins.
func Lookup(o fieldset.Object, names ...string) (Entry, bool) {
	path := strings.Join(names, ".")
	var best Entry
	found := false
	for _, e := range table {
		if e.Object == o && e.matches(path) && (!found || len(e.Path) > len(best.Path)) {
			best, found = e, true
		}
	}
	return best, found
}

func (e Entry) matches(path string) bool {
	below := e.Path == "" || len(path) > len(e.Path) && path[len(e.Path)] == '.' && strings.HasPrefix(path, e.Path)
	return path == e.Path || below && (e.Below || e.Verdict == Never)
}

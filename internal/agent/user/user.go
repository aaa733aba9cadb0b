// Package user brings accounts to the node: the account itself, its groups and password, its rule for sudo, and the keys by which one
// logs in to it.
package user

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// Kind is the kind of resource.
type Kind struct{ host host.Host }

var _ kind.Kind = (*Kind)(nil)

// New returns the kind for a node.
func New(h host.Host) *Kind { return &Kind{host: h} }

// nameForm is what useradd accepts everywhere. Names become those of files, and begin rules of sudo, where a capital letter
// would begin an alias.
var nameForm = regexp.MustCompile(`^[a-z_][a-zA-Z0-9_.-]{0,31}$`)

// view is what the node shows of a user.
type view struct {
	db      database
	account account
	keys    keyFile
	// keysUnsafe says why the keys can't be touched. Empty: they can.
	keysUnsafe      string
	sudo, cloudSudo host.Saved
}

// look reads all that the node shows of a user. u says where the home would be if there is no account.
func (k *Kind) look(u node.User) (view, error) {
	db, err := k.database()
	if err != nil {
		return view{}, err
	}
	v := view{db: db, account: db.account(u.Name)}
	if !v.account.Exists {
		if v.account, err = k.account(u); err != nil {
			return v, err
		}
	}
	var risk distrust
	if v.keys, err = k.readKeyFile(v.account); errors.As(err, &risk) {
		v.keysUnsafe, err = risk.reason, nil
	}
	if err != nil {
		return v, err
	}
	if v.sudo, err = k.host.Save(sudoersPath(u.Name)); err != nil {
		return v, err
	}
	v.cloudSudo, err = k.host.Save(cloudInitSudoers)
	return v, err
}

// account returns an account that does not exist: where its home would be, and whom what is there belongs to.
func (k *Kind) account(u node.User) (account, error) {
	home, err := k.homeOf(u)
	if err != nil {
		return account{}, err
	}
	a := account{Home: home, UID: host.KeepOwner, GID: host.KeepOwner}
	if info := k.stat(home); info != nil {
		a.UID, a.GID = ownerOf(info)
	}
	return a, nil
}

// before is what Undo needs, and which aspects Make is to bring about.
type before struct {
	Aspects   []aspect `json:"aspects"`
	Account   account  `json:"account"`
	NewGroups []string `json:"newGroups,omitempty"`
	// OwnGroup is the number of the group that has the user's name, if there was one before the account was made: userdel takes it away.
	OwnGroup  string     `json:"ownGroup,omitempty"`
	Keys      keyFile    `json:"keys"`
	Sudo      host.Saved `json:"sudo"`
	CloudSudo host.Saved `json:"cloudSudo"`
	// Probe is what sudo lets refit's own user run, and has to let it run afterwards, too. Empty: nothing, or sudo was not asked.
	Probe []string `json:"probe,omitempty"`
}

func (b before) brings(a aspect) bool { return slices.Contains(b.Aspects, a) }

// Plan implements kind.Kind. A user whom the specs no longer list is locked out; the account and its home stay.
func (k *Kind) Plan(ctx context.Context, q kind.Question) (kind.Answer, error) {
	was, desired := userOf(q.Was), userOf(q.Desired)
	if desired == nil && was == nil || desired != nil && desired.Unmanaged {
		return kind.Answer{}, nil
	}
	who := was
	if desired != nil {
		who = desired
	}
	if !nameForm.MatchString(who.Name) {
		return kind.Answer{Blocked: fmt.Sprintf("%q is not a name that useradd accepts everywhere; it has to match %s", who.Name, nameForm)}, nil
	}
	v, err := k.look(*who)
	if err != nil {
		return kind.Answer{}, err
	}
	p := plan{question: q, goal: goalOf(was, desired), view: v, who: *who}
	p.decide()
	if len(p.scope) == 0 && !p.creates {
		return kind.Answer{Drift: p.drift}, nil
	}
	return k.answer(ctx, p)
}

func userOf(r *node.Resource) *node.User {
	if r == nil {
		return nil
	}
	return r.User
}

// plan is what becomes of a question about a user.
type plan struct {
	question kind.Question
	goal     goal
	view     view
	who      node.User
	// creates reports that the account is made; scope is what is brought about, of what differs; drift is what is left as it is.
	creates bool
	scope   []aspect
	drift   []string
}

// decide tells what the specs have changed from what somebody on the node has.
func (p *plan) decide() {
	if p.goal.removed {
		p.scope = p.goal.differences(p.view)
		return
	}
	if !p.view.account.Exists {
		if p.question.Changed(func(was, desired *node.Resource) bool { return reflect.DeepEqual(was.User, desired.User) }) {
			p.creates, p.scope = true, aspects
		} else {
			p.drift = []string{"missing"}
		}
		return
	}
	for _, a := range p.goal.differences(p.view) {
		if p.question.Changed(func(was, desired *node.Resource) bool { return sameAspect(a, *was.User, *desired.User) }) {
			p.scope = append(p.scope, a)
		} else {
			p.drift = append(p.drift, string(a))
		}
	}
}

func (k *Kind) answer(ctx context.Context, p plan) (kind.Answer, error) {
	answer := kind.Answer{Drift: p.drift}
	if answer.Blocked = k.blocked(ctx, p); answer.Blocked != "" {
		return answer, nil
	}
	var err error
	if answer.Actions, err = p.actions(); err != nil {
		answer.Blocked = err.Error()
		return answer, nil
	}
	answer.Operation = node.Write
	if p.goal.removed {
		answer.Operation = node.Remove
	}
	answer.Conflict = p.conflict()
	answer.Notes = k.notes(ctx, p)
	b := before{
		Aspects: p.scope, Account: p.view.account, Keys: p.view.keys, Sudo: p.view.sudo, CloudSudo: p.view.cloudSudo,
	}
	if p.creates || slices.Contains(p.scope, aspectGroups) {
		b.NewGroups = p.view.db.missingGroups(p.groups())
	}
	if r := row(p.view.db.groups, p.goal.name); p.creates && r != nil {
		b.OwnGroup = r[2]
	}
	if p.touchesWayIn() && k.sudoAllows(ctx, p.goal.name, p.probe()) {
		b.Probe = p.probe()
	}
	answer.Before, err = json.Marshal(b)
	return answer, err
}

// touchesWayIn reports whether the change is to what lets refit's own user become root.
func (p plan) touchesWayIn() bool {
	return p.goal.name == p.question.Login.User && p.goal.name != rootName && (slices.Contains(p.scope, aspectSudo) || slices.Contains(p.scope, aspectGroups))
}

// groups returns the user with the groups that have to be on the node. The primary group counts for a new account only.
func (p plan) groups() node.User {
	u := node.User{Groups: p.goal.groups}
	if p.creates {
		u.PrimaryGroup = p.who.PrimaryGroup
	}
	return u
}

// actions returns what the change takes. Keys have a rule of their own.
func (p plan) actions() ([]disruption.Action, error) {
	var lists [][]disruption.Action
	take := func(d disruption.Domain) error {
		actions, err := p.question.Rules.Domain(d)
		lists = append(lists, actions)
		return err
	}
	keys := slices.Contains(p.scope, aspectKeys)
	if p.creates || !keys || len(p.scope) > 1 {
		if err := take(disruption.Users); err != nil {
			return nil, err
		}
	}
	if keys {
		if err := take(disruption.SSHKeys); err != nil {
			return nil, err
		}
	}
	return disruption.Merge(lists...), nil
}

// conflict reports whether the node shows something else than the specs said before, in what is brought about.
func (p plan) conflict() bool {
	was := userOf(p.question.Was)
	if was == nil || was.Unmanaged || p.goal.removed {
		return false
	}
	if !p.view.account.Exists {
		return true
	}
	differed := goalOf(was, was).differences(p.view)
	return slices.ContainsFunc(p.scope, func(a aspect) bool { return slices.Contains(differed, a) })
}

func (k *Kind) notes(ctx context.Context, p plan) []string {
	var notes []string
	if p.creates || slices.Contains(p.scope, aspectGroups) {
		if missing := p.view.db.missingGroups(p.groups()); len(missing) > 0 {
			notes = append(notes, fmt.Sprintf("user %s: the node does not have the groups %s, so they are made",
				p.goal.name, strings.Join(missing, ", ")))
		}
	}
	if slices.Contains(p.scope, aspectKeys) {
		if where := k.keysElsewhere(ctx, p.goal.name); where != "" {
			notes = append(notes, fmt.Sprintf("user %s: sshd_config has sshd read keys from %s; refit writes them to ~/.ssh/%s only",
				p.goal.name, where, keysName))
		}
	}
	return notes
}

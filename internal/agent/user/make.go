package user

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/node"
)

// Make implements kind.Kind. Who loses access loses it first, and who gets it gets it last.
func (k *Kind) Make(ctx context.Context, c kind.Change) (string, error) {
	b, who, err := read(c)
	if err != nil {
		return "", err
	}
	g := goalOf(userOf(c.Was), userOf(c.Desired))
	v, err := k.look(who)
	if err != nil {
		return "", err
	}
	if b.brings(aspectSudo) && g.sudoDiffers(v) { // before anything is changed
		if err := k.checkSudo(ctx, g, v); err != nil {
			return "", err
		}
	}
	if v, err = k.bringAccount(ctx, b, g, v, who); err != nil {
		return "", err
	}
	if err := k.bringRest(b, g, v); err != nil {
		return "", err
	}
	if len(b.Probe) > 0 && !k.sudoAllows(ctx, g.name, b.Probe) {
		return "", fmt.Errorf("refit logs in to the node as %s, and by the rules as they are now sudo would not let it run %s, which it did before: %s",
			g.name, strings.Join(b.Probe, " "), another)
	}
	return "", nil
}

// bringRest brings about the keys and the rule of sudo.
func (k *Kind) bringRest(b before, g goal, v view) error {
	if b.brings(aspectKeys) && v.account.Exists && g.keysDiffer(v) {
		if err := k.bringKeys(g, v); err != nil {
			return err
		}
	}
	if b.brings(aspectSudo) && g.sudoDiffers(v) {
		return k.bringSudo(g, v)
	}
	return nil
}

func read(c kind.Change) (before, node.User, error) {
	var b before
	if err := json.Unmarshal(c.Before, &b); err != nil {
		return b, node.User{}, errors.New("what the user was before can't be read")
	}
	if u := userOf(c.Desired); u != nil {
		return b, *u, nil
	}
	return b, *userOf(c.Was), nil
}

// bringAccount makes the account, or makes it what it has to be, and returns what the node then shows.
func (k *Kind) bringAccount(ctx context.Context, b before, g goal, v view, who node.User) (view, error) {
	if err := k.makeGroups(ctx, b.NewGroups, v.db); err != nil {
		return v, err
	}
	if !v.account.Exists && !g.removed {
		if err := k.create(ctx, g, v, who); err != nil {
			return v, err
		}
		var err error
		if v, err = k.look(who); err != nil {
			return v, err
		}
		if !v.account.Exists {
			return v, fmt.Errorf("useradd has succeeded, but %s is not in /etc/passwd: look at /etc/nsswitch.conf", g.name)
		}
	}
	var scope []aspect
	for _, a := range g.differences(v) {
		if b.brings(a) {
			scope = append(scope, a)
		}
	}
	return v, k.modify(ctx, g, v.account, scope)
}

func (k *Kind) makeGroups(ctx context.Context, names []string, db database) error {
	for _, name := range names {
		if db.hasGroup(name) {
			continue
		}
		if err := k.run(ctx, "groupadd", name); err != nil {
			return err
		}
	}
	return nil
}

// create makes an account with a locked password. A home that is there already was that of an account of the same name, which then
// gets its number back, because its files belong to that.
func (k *Kind) create(ctx context.Context, g goal, v view, who node.User) error {
	args := []string{"-m"}
	if who.HomeDir != "" {
		args = append(args, "-d", who.HomeDir)
	}
	switch {
	case who.PrimaryGroup != "":
		args = append(args, "-g", who.PrimaryGroup)
	case v.db.hasGroup(g.name): // useradd would not make a second one
		args = append(args, "-g", g.name)
	}
	if uid := v.account.UID; uid > 0 && v.db.userOf(uid) == "" {
		args = append(args, "-u", strconv.Itoa(uid))
	}
	if len(g.groups) > 0 {
		args = append(args, "-G", strings.Join(g.groups, ","))
	}
	if g.gecos != "" {
		args = append(args, "-c", g.gecos)
	}
	if g.shell != "" {
		args = append(args, "-s", g.shell)
	}
	return k.run(ctx, "useradd", append(args, g.name)...)
}

// modify brings about what usermod and chpasswd do.
func (k *Kind) modify(ctx context.Context, g goal, is account, scope []aspect) error {
	in := func(a aspect) bool { return slices.Contains(scope, a) }
	var args []string
	put := func(a aspect, option ...string) {
		if in(a) {
			args = append(args, option...)
		}
	}
	put(aspectShell, "-s", g.shell)
	put(aspectGecos, "-c", g.gecos)
	put(aspectGroups, "-G", strings.Join(g.supplementary(is), ","))
	put(aspectExpiry, "-e", g.expiry())
	password := in(aspectPassword)
	if in(aspectLock) && !password {
		option := lockOption(*g.lock, is)
		put(aspectLock, option...)
		password = option == nil
	}
	if len(args) > 0 {
		if err := k.run(ctx, "usermod", append(args, g.name)...); err != nil {
			return err
		}
	}
	if password {
		return k.setPassword(ctx, g.name, g.wantedPassword(is, scope))
	}
	return nil
}

// lockOption returns the option of usermod that locks or unlocks a password, which leaves the day on which it was changed as it is, or
// nothing if there is none: usermod takes away one "!" only.
func lockOption(lock bool, is account) []string {
	switch {
	case lock:
		return []string{"-L"}
	case is.Password == "!"+is.hash():
		return []string{"-U"}
	}
	return nil
}

// expiry returns the day on which the account ends, "" for none.
func (g goal) expiry() string {
	if g.expired != nil && *g.expired {
		return expiredDay
	}
	return ""
}

// setPassword sets the field of /etc/shadow as a whole, so that a password that is to be locked never counts. Whoever is on the
// node sees arguments, so a hash goes another way; what is no hash is no secret.
func (k *Kind) setPassword(ctx context.Context, name, field string) error {
	if (account{Password: field}).hash() == "" {
		return k.run(ctx, "usermod", "-p", field, name)
	}
	c := host.Command{Name: "chpasswd", Args: []string{"-e"}, Stdin: []byte(name + ":" + field + "\n")}
	_, err := k.host.Run(ctx, c)
	return err
}

func (k *Kind) bringKeys(g goal, v view) error {
	if v.keysUnsafe != "" {
		return errors.New(v.keysUnsafe)
	}
	if !v.keys.File.Exists && len(g.keys) == 0 {
		return nil
	}
	content := editKeys(string(v.keys.Content), g.keys, g.keysGone)
	return k.writeKeyFile(v.account, []byte(content), host.State{UID: v.account.UID, GID: v.account.GID, Mode: keysMode})
}

// Undo implements kind.Kind. An account that was made goes; its home stays, since somebody may have put something into it. The day on
// which a password was last changed is not put back.
func (k *Kind) Undo(ctx context.Context, c kind.Change) error {
	b, who, err := read(c)
	if err != nil {
		return err
	}
	if b.brings(aspectSudo) {
		if err := errors.Join(k.host.PutBack(sudoersPath(who.Name), b.Sudo), k.host.PutBack(cloudInitSudoers, b.CloudSudo)); err != nil {
			return err
		}
	}
	v, err := k.look(who)
	if err != nil {
		return err
	}
	if b.brings(aspectKeys) && goalOf(userOf(c.Was), userOf(c.Desired)).touchesKeys() {
		if err := k.restoreKeyFile(v.account, b.Keys); err != nil {
			return err
		}
	}
	if err := k.restoreAccount(ctx, b, v.account, who.Name); err != nil {
		return err
	}
	return k.restoreGroups(ctx, b, who.Name)
}

func (k *Kind) restoreAccount(ctx context.Context, b before, is account, name string) error {
	was := b.Account
	switch {
	case !is.Exists && !was.Exists:
		return nil
	case !was.Exists:
		return k.run(ctx, "userdel", name)
	case !is.Exists:
		return fmt.Errorf("the account %s is gone, which refit has not removed: make it again", name)
	}
	return k.restoreFields(ctx, b, is, name)
}

// restoreFields puts back the fields of an account that is there.
func (k *Kind) restoreFields(ctx context.Context, b before, is account, name string) error {
	was := b.Account
	var args []string
	put := func(a aspect, option, was, is string) {
		if b.brings(a) && was != is {
			args = append(args, option, was)
		}
	}
	put(aspectShell, "-s", was.Shell, is.Shell)
	put(aspectGecos, "-c", was.Gecos, is.Gecos)
	put(aspectGroups, "-G", strings.Join(was.Groups, ","), strings.Join(is.Groups, ","))
	put(aspectExpiry, "-e", was.Expires, is.Expires)
	if len(args) > 0 {
		if err := k.run(ctx, "usermod", append(args, name)...); err != nil {
			return err
		}
	}
	if (b.brings(aspectPassword) || b.brings(aspectLock)) && was.Password != is.Password {
		return k.setPassword(ctx, name, was.Password)
	}
	return nil
}

// restoreGroups removes groups that were made for the user, unless somebody else has come to have them, and makes the one again
// that userdel has taken for the user's own.
func (k *Kind) restoreGroups(ctx context.Context, b before, user string) error {
	db, err := k.database()
	if err != nil {
		return err
	}
	if b.OwnGroup != "" && !db.hasGroup(user) {
		if err := k.run(ctx, "groupadd", "-g", b.OwnGroup, user); err != nil {
			return err
		}
	}
	for _, name := range b.NewGroups {
		if !db.hasGroup(name) || len(db.members(name)) > 0 || db.isPrimary(name) {
			continue
		}
		if err := k.run(ctx, "groupdel", name); err != nil {
			return err
		}
	}
	return nil
}

// isPrimary reports whether a group is the primary one of some account.
func (d database) isPrimary(group string) bool {
	gid := row(d.groups, group)[2]
	return slices.ContainsFunc(d.users, func(r []string) bool { return r[3] == gid })
}

// run is for programs whose messages name users, groups and shells, and no secrets.
func (k *Kind) run(ctx context.Context, program string, args ...string) error {
	_, err := k.host.RunTelling(ctx, host.Command{Name: program, Args: args})
	return err
}

package attack

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/capi-refit/refit/internal/agent"
	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/agent/user"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// What the user has in /home/app beside what root is after: links to what only root may, and more.
var (
	aside      = map[string]string{"link": "../../root-only"}
	everything = map[string]string{"link": "../../root-only/x", "fifo": aPipe, "socket": aSocket, "dir": aDir}
)

var rootsOwn = host.State{Mode: 0o644}

func TestAUserWhoExchangesADirectoryGetsNothingIntoRootsDirectories(t *testing.T) {
	t.Run("when root makes the directory and writes a file in it", func(t *testing.T) {
		v := newVictim(t)
		v.attacked(play{Dir: "/home/app", Name: "conf", Others: aside}, func(int) error {
			err := v.host.WriteFile("/home/app/conf/authorized_keys", []byte("ssh-ed25519 mallory"), rootsOwn)
			v.away("/home/app/conf")
			return err
		})
	})
	t.Run("when root makes directories in it", func(t *testing.T) {
		v := newVictim(t)
		v.attacked(play{Dir: "/home/app", Name: "conf", Is: aDir, Others: aside}, func(try int) error {
			return v.host.WriteFile(fmt.Sprintf("/home/app/conf/%d/deep/er/x", try), nil, rootsOwn)
		})
	})
	t.Run("when it is two above the file", func(t *testing.T) {
		v := newVictim(t)
		v.attacked(play{Dir: "/home/app", Name: "up", Is: aDir, Others: aside}, func(int) error {
			return v.host.WriteFile("/home/app/up/conf/x", []byte("of the specs"), host.State{UID: mallory, GID: mallory, Mode: 0o666})
		})
	})
	t.Run("when it is the file itself", func(t *testing.T) {
		v := newVictim(t)
		v.attacked(play{Dir: "/home/app", Name: "x", Is: aFile, Others: everything},
			func(int) error {
				return v.host.WriteFile("/home/app/x", []byte("of the specs"), host.State{UID: mallory, GID: mallory, Mode: 0o666})
			})
	})
	t.Run("when it is the file that root has begun", func(t *testing.T) {
		v := newVictim(t)
		v.attacked(play{Dir: "/home/app", Name: ".refit-*.tmp", Others: map[string]string{"link": "../../root-only/x"}}, func(int) error {
			err := v.host.WriteFile("/home/app/x", make([]byte, 1<<18), host.State{UID: mallory, GID: mallory, Mode: 0o666})
			v.away("/home/app/x") // a link by now, perhaps
			return err
		})
	})
	t.Run("when root removes the file", func(t *testing.T) {
		v := newVictim(t)
		v.attacked(play{Dir: "/home/app", Name: "conf", Is: aDir, Others: aside}, func(int) error {
			return v.host.RemoveFile("/home/app/conf/x")
		})
	})
	t.Run("when the file that root removes is exchanged", func(t *testing.T) {
		v := newVictim(t)
		v.attacked(play{Dir: "/home/app", Name: "x", Is: aFile, Others: map[string]string{"link": "../../root-only/x"}}, func(int) error {
			return v.host.RemoveFile("/home/app/x")
		})
	})
}

func TestAUserWhoExchangesADirectoryHasRootReadNothingElse(t *testing.T) {
	for name, p := range map[string]play{
		"the directory": {Name: "conf", Is: aDir, Others: aside},
		"the file":      {Name: "x", Is: aFile, Others: everything},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVictim(t)
			at := "/home/app/x"
			if name == "the directory" {
				at = "/home/app/conf/x"
			}
			p.Dir = "/home/app"
			v.attacked(p, func(int) error {
				data, _, err := v.host.ReadFile(at)
				require.NotContains(v, string(data), "of root")
				return err
			})
		})
	}
}

// Each run writes and puts back two files, keeps copies of what was there, and looks at them a few times.
func TestAUserWhoExchangesADirectoryMisleadsNoRollback(t *testing.T) {
	v := newVictim(t)
	a, err := agent.New(agent.Config{
		Root: v.root, Clock: stoppedClock{}, Units: &brokenUnits{}, NoSync: true, Settle: -1, Launcher: agent.LauncherFunc(func(context.Context, string, string) error { return nil }),
	})
	require.NoError(t, err)
	rules := disruption.Rules{Files: disruption.Table{{Path: "/home", Actions: []disruption.Action{{Type: disruption.Restart, Unit: "app.service"}}}}}
	putBack := 0
	v.attackedTimes(tries/5, play{Dir: "/home/app", Name: "conf", Is: aDir, For: time.Millisecond, Others: aside}, func(try int) error {
		_, err := a.Apply(t.Context(), node.Request{
			Protocol: node.Protocol, Machine: node.MachineID{Namespace: "default", Name: "m", UID: "u"}, Token: int64(try + 1), Digest: fmt.Sprintf("%064x", try),
			OnConflict: node.Overwrite, Rules: rules,
			Resources: []node.Resource{
				{File: &node.File{Path: "/home/app/conf/x", Content: fmt.Appendf(nil, "try %d", try), Mode: "0666"}},
				{File: &node.File{Path: fmt.Sprintf("/home/app/conf/%d/y", try), Content: []byte("new")}},
			},
		})
		if err != nil {
			return err
		}
		status, err := a.Run(t.Context())
		if err != nil {
			return err
		}
		if strings.Contains(status.Message, "could not be put back") {
			return errors.New(status.Message)
		}
		putBack++
		return nil
	})
	require.NotZero(t, putBack)
}

func TestAUserWhoExchangesTheHomeGetsNoKeysElsewhere(t *testing.T) {
	v := newVictim(t)
	k := user.New(v.host)
	brought := 0
	v.attacked(play{Dir: "/home/app", Name: "conf", Is: aDir, For: 100 * time.Microsecond, Others: aside}, func(try int) error {
		key, err := ssh.NewPublicKey(ed25519.PublicKey(fmt.Appendf(nil, "%032d", try)))
		require.NoError(v, err)
		want := &node.Resource{User: &node.User{Name: "app", SSHAuthorizedKeys: []string{string(ssh.MarshalAuthorizedKey(key))}}}
		answer, err := k.Plan(t.Context(), kind.Question{Desired: want, Known: true, Rules: disruption.BuiltinRules()})
		if err != nil {
			return err
		}
		if answer.Blocked != "" {
			return errors.New(answer.Blocked)
		}
		if answer.Operation == "" {
			return errors.New("the user has a line like that")
		}
		change := kind.Change{Desired: want, Before: answer.Before}
		if _, err := k.Make(t.Context(), change); err != nil {
			return err
		}
		brought++
		return k.Undo(t.Context(), change)
	})
	require.NotZero(t, brought)
}

// The user owns the home, and gives the name .ssh to a directory in it that only root can look into.
func TestADirectoryOfRootsStaysClosedWhenKeysArePutBack(t *testing.T) {
	v := newVictim(t)
	for dir, uid := range map[string]int{"/home/app/conf": mallory, "/home/app/conf/.ssh": mallory, "/home/app/conf/private": 0} {
		require.NoError(t, os.MkdirAll(v.path(dir), 0o700))
		require.NoError(t, os.Chown(v.path(dir), uid, uid))
	}
	v.put("/home/app/conf/private/secret", "of root")
	k := user.New(v.host)
	key, err := ssh.NewPublicKey(ed25519.PublicKey(make([]byte, ed25519.PublicKeySize)))
	require.NoError(t, err)
	want := &node.Resource{User: &node.User{Name: "app", SSHAuthorizedKeys: []string{string(ssh.MarshalAuthorizedKey(key))}}}
	answer, err := k.Plan(t.Context(), kind.Question{Desired: want, Known: true, Rules: disruption.BuiltinRules()})
	require.NoError(t, err)
	require.Empty(t, answer.Blocked)
	change := kind.Change{Desired: want, Before: answer.Before}
	_, err = k.Make(t.Context(), change)
	require.NoError(t, err)

	require.NoError(t, os.Rename(v.path("/home/app/conf/.ssh"), v.path("/home/app/conf/mine")))
	require.NoError(t, os.Rename(v.path("/home/app/conf/private"), v.path("/home/app/conf/.ssh")))
	_ = k.Undo(t.Context(), change)
	info, err := os.Stat(v.path("/home/app/conf/.ssh"))
	require.NoError(t, err)
	stat, ok := info.Sys().(*syscall.Stat_t)
	require.True(t, ok)
	require.Zero(t, stat.Uid)
	require.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
}

// useradd makes a home and gives it away by its path.
func TestNoHomeIsMadeInADirectoryOfAnotherUser(t *testing.T) {
	v := newVictim(t)
	v.put("/usr/sbin/useradd", "")
	v.put("/usr/sbin/usermod", "")
	v.put("/usr/sbin/chpasswd", "")
	k := user.New(v.host)
	plan := func(home string) string {
		answer, err := k.Plan(t.Context(), kind.Question{
			Desired: &node.Resource{User: &node.User{Name: "new", HomeDir: home}}, Known: true, Rules: disruption.BuiltinRules(),
		})
		require.NoError(t, err)
		return answer.Blocked
	}
	require.Contains(t, plan("/home/app/new"), "/home/app belongs to user 4711")
	require.Empty(t, plan("/home/new"))
}

// stoppedClock does not wait.
type stoppedClock struct{}

func (stoppedClock) Now() time.Time                                  { return time.Unix(1e9, 0) }
func (stoppedClock) Wait(ctx context.Context, _ time.Duration) error { return ctx.Err() }

// brokenUnits is a service manager in which every other restart fails: that with the new files, and not that with the old ones.
type brokenUnits struct{ restarts int }

func (*brokenUnits) Show(context.Context, string) (host.UnitState, error) {
	return host.UnitState{LoadState: "loaded", ActiveState: "active", Type: "simple"}, nil
}

func (b *brokenUnits) Do(_ context.Context, verb, unit string) error {
	if verb != "restart" {
		return nil
	}
	if b.restarts++; b.restarts%2 == 1 {
		return fmt.Errorf("%s can't be restarted", unit)
	}
	return nil
}

func (*brokenUnits) System(context.Context) (string, error) { return "running", nil }

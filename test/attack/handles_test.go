package attack

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"github.com/capi-refit/refit/internal/agent"
	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/agent/user"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

const (
	// tries is how often root does something while the user exchanges names.
	tries = 2000
	// mallory is the number of that user.
	mallory = 4711
	// playbook is the variable that makes this test program the user's.
	playbook = "REFIT_ATTACK_EXCHANGE"
)

// play is what the user does: exchange the name of something for each of the others in turn.
type play struct {
	Dir  string
	Name string
	// Is is what has the name in between. Empty: root makes it.
	Is string
	// For is how long it has the name in between.
	For    time.Duration
	Others map[string]string // what else gets the name: one of the kinds below, or where a link leads
}

// What the user makes. A directory has a file x in it, and a directory .ssh.
const aDir, aFile, aPipe, aSocket = "dir", "file", "fifo", "socket"

// TestWhatTheUserRuns is the user's program, and not a test: the others start it as a user without rights.
func TestWhatTheUserRuns(t *testing.T) {
	text := os.Getenv(playbook)
	if text == "" {
		t.Skip("it is run by the other tests")
	}
	var p play
	require.NoError(t, json.Unmarshal([]byte(text), &p))
	require.NoError(t, os.Chdir(p.Dir))
	for { // until it is killed
		for name, what := range p.Others {
			p.exchange(name, what)
		}
	}
}

// exchange has the name be that of something else for a moment.
func (p play) exchange(name, what string) {
	for as, is := range map[string]string{name: what, p.Name: p.Is} {
		if is != "" && !lies(as, is) {
			_ = os.Rename(as, fmt.Sprintf("junk-%d", time.Now().UnixNano())) // one of root's with files in it can't be removed
			lay(as, is)
		}
	}
	const step = 20 * time.Microsecond // as long as root takes for what it does, about
	for _, long := range []time.Duration{step, max(step, p.For)} {
		_ = unix.Renameat2(unix.AT_FDCWD, p.Name, unix.AT_FDCWD, name, unix.RENAME_EXCHANGE)
		for began := time.Now(); time.Since(began) < long; {
		}
	}
}

// lies says whether something is what the user has made.
func lies(name, what string) bool {
	info, err := os.Lstat(name)
	if err != nil {
		return false
	}
	types := map[string]fs.FileMode{aDir: fs.ModeDir, aFile: 0, aPipe: fs.ModeNamedPipe, aSocket: fs.ModeSocket}
	want, known := types[what]
	if !known {
		want = fs.ModeSymlink
	}
	return info.Mode().Type() == want
}

func lay(name, what string) {
	switch what {
	case aPipe:
		_ = unix.Mkfifo(name, 0o666)
	case aSocket:
		_ = unix.Mknod(name, unix.S_IFSOCK|0o666, 0)
	case aDir:
		_ = os.MkdirAll(name+"/.ssh", 0o755)
		_ = os.MkdirAll(name+"/conf", 0o755)
		_ = os.WriteFile(name+"/x", []byte("of the user"), 0o666)
	case aFile:
		_ = os.WriteFile(name, []byte("of the user"), 0o666)
	default:
		_ = os.Symlink(what, name)
	}
}

// victim is a directory that stands for a node. /home/app on it is the user's, /root-only is root's alone.
type victim struct {
	*testing.T
	root string
	host host.Host
	// before is what is in /root-only.
	before string
}

func newVictim(t *testing.T) *victim {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can start a program as another user, and give files away; make e2e-updates runs this in a container, as root")
	}
	root, err := os.MkdirTemp("", "refit-attack-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	require.NoError(t, os.Chmod(root, 0o755))
	v := &victim{T: t, root: root, host: host.Host{Root: host.Root{Dir: root}, Disk: host.Disk{NoSync: true}}}
	v.put("/etc/passwd", "root:x:0:0::/root:/bin/sh\napp:x:4711:4711::/home/app/conf:/bin/sh\n", 0)
	v.put("/etc/shadow", "root:*:1:0:99999:7:::\napp:!:1:0:99999:7:::\n", 0)
	v.put("/etc/group", "root:x:0:\napp:x:4711:\n", 0)
	v.put("/root-only/x", "of root", 0)
	v.put("/root-only/conf/x", "of root", 0)
	v.put("/root-only/.ssh/authorized_keys", "of root", 0)
	require.NoError(t, os.Chmod(v.path("/root-only"), 0o700))
	require.NoError(t, os.MkdirAll(v.path("/home/app"), 0o755))
	require.NoError(t, os.Chown(v.path("/home/app"), mallory, mallory))
	v.before = v.rootOnly()
	return v
}

func (v *victim) path(p string) string { return filepath.Join(v.root, p) }

func (v *victim) put(p, content string, uid int) {
	v.Helper()
	require.NoError(v, os.MkdirAll(filepath.Dir(v.path(p)), 0o755))
	require.NoError(v, os.WriteFile(v.path(p), []byte(content), 0o600))
	require.NoError(v, os.Chown(v.path(p), uid, uid))
}

// rootOnly tells all of /root-only: names, modes, owners and contents.
func (v *victim) rootOnly() string {
	v.Helper()
	var all strings.Builder
	err := filepath.WalkDir(v.path("/root-only"), func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return errors.New("the owner is not known")
		}
		content := []byte(nil)
		if info.Mode().IsRegular() {
			content, err = os.ReadFile(p)
		}
		fmt.Fprintln(&all, strings.TrimPrefix(p, v.root), info.Mode(), stat.Uid, stat.Gid, string(content))
		return err
	})
	require.NoError(v, err)
	return all.String()
}

// attacked has the user do p while root does something, again and again, until that was done often enough, and both succeeded and was
// refused at times: by then the user has had the name exchanged at the very moment.
func (v *victim) attacked(p play, do func(try int) error) {
	v.Helper()
	v.attackedTimes(tries, p, do)
}

func (v *victim) attackedTimes(times int, p play, do func(try int) error) {
	v.Helper()
	p.Dir = v.path(p.Dir)
	v.start(p)
	refused := 0
	var last error
	for try := 0; try < times || refused < times/50 || try-refused < times/50; try++ {
		if err := do(try); err != nil {
			refused++
			last = err
		}
		require.Equal(v, v.before, v.rootOnly(), "try %d has reached what only root may", try)
		require.Less(v, try, 100*times, "the user does not get to do anything")
	}
	v.Logf("%d refused, the last one because %v", refused, last)
}

// start runs this test program as the user. It is copied to where the user can read it.
func (v *victim) start(p play) {
	v.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	require.NoError(v, err)
	program := v.path("/program")
	require.NoError(v, os.WriteFile(program, self, 0o755))
	text, err := json.Marshal(p)
	require.NoError(v, err)
	cmd := exec.Command(program, "-test.run=^TestWhatTheUserRuns$")
	cmd.Dir = "/"
	cmd.Env = []string{playbook + "=" + string(text), "GOMAXPROCS=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: mallory, Gid: mallory}}
	require.NoError(v, cmd.Start())
	v.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// away removes something of the user's, so that root makes it again. What a link leads to stays.
func (v *victim) away(p string) {
	v.Helper()
	for {
		err := os.RemoveAll(v.path(p))
		if err == nil {
			return
		}
	}
}

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
	v.put("/home/app/conf/private/secret", "of root", 0)
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
	v.put("/usr/sbin/useradd", "", 0)
	v.put("/usr/sbin/usermod", "", 0)
	v.put("/usr/sbin/chpasswd", "", 0)
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

package attack

import (
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
	"golang.org/x/sys/unix"

	"github.com/capi-refit/refit/internal/agent/host"
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
	Dir string
	// Name is that of the file or directory, or a pattern of names that root makes up.
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
			if strings.Contains(p.Name, "*") {
				p.replace(what)
			} else {
				p.exchange(name, what)
			}
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

// replace takes away what has one of the names, and has every other one be that of something else.
func (p play) replace(what string) {
	names, _ := filepath.Glob(p.Name) // the pattern is one
	for _, name := range names {
		now := time.Now().UnixNano()
		if lies(name, aFile) && os.Rename(name, fmt.Sprintf("junk-%d", now)) == nil && now%2 == 0 {
			lay(name, what)
		}
	}
}

// lies reports whether something is what the user has made.
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
	v.put("/etc/passwd", "root:x:0:0::/root:/bin/sh\napp:x:4711:4711::/home/app/conf:/bin/sh\n")
	v.put("/etc/shadow", "root:*:1:0:99999:7:::\napp:!:1:0:99999:7:::\n")
	v.put("/etc/group", "root:x:0:\napp:x:4711:\n")
	v.put("/root-only/x", "of root")
	v.put("/root-only/conf/x", "of root")
	v.put("/root-only/.ssh/authorized_keys", "of root")
	require.NoError(t, os.Chmod(v.path("/root-only"), 0o700))
	require.NoError(t, os.MkdirAll(v.path("/home/app"), 0o755))
	require.NoError(t, os.Chown(v.path("/home/app"), mallory, mallory))
	v.before = v.rootOnly()
	return v
}

func (v *victim) path(p string) string { return filepath.Join(v.root, p) }

func (v *victim) put(p, content string) {
	v.Helper()
	require.NoError(v, os.MkdirAll(filepath.Dir(v.path(p)), 0o755))
	require.NoError(v, os.WriteFile(v.path(p), []byte(content), 0o600))
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

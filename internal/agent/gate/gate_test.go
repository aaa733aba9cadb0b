package gate

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/capi-refit/refit/internal/node"
)

// site is a directory that stands for a node with a gate.
type site struct {
	t       *testing.T
	root    string
	signing ed25519.PrivateKey
	cfg     Config
	mu      sync.Mutex
	// ran are the contents and the arguments of what the gate became.
	ran []string
	log []string
}

func newSite(t *testing.T) *site {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	s := &site{t: t, root: t.TempDir(), signing: private}
	require.NoError(t, os.Chmod(s.root, 0o755)) // whatever the umask is
	s.cfg = Config{Architecture: "amd64", Log: func(line string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.log = append(s.log, line)
	}}
	s.cfg.Exec = func(f *os.File, args, env []string) error {
		data, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<20))
		s.ran = append(s.ran, string(data)+" "+strings.Join(args, " "))
		assert.Equal(t, []string{searchPath, "HOME=/root", "LANG=C.UTF-8"}, env)
		return err
	}
	key, err := ssh.NewPublicKey(public)
	require.NoError(t, err)
	s.write(filepath.Join(trustDir, trustName), ssh.MarshalAuthorizedKey(key))
	return s
}

func (s *site) path(name string) string { return filepath.Join(s.root, name) }

func (s *site) write(name string, data []byte) {
	s.t.Helper()
	require.NoError(s.t, os.MkdirAll(filepath.Dir(s.path(name)), 0o755))
	require.NoError(s.t, os.WriteFile(s.path(name), data, 0o600))
}

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func (s *site) signed(agent string, index int64) *node.AgentSignature {
	s.t.Helper()
	sig, err := node.SignAgent(s.signing, node.AgentStatement{OS: "linux", Architecture: "amd64", Version: "v1", RollbackIndex: index, SHA256: digestOf(agent)})
	require.NoError(s.t, err)
	return &sig
}

func (s *site) send(stdin io.Reader) node.Answer {
	var out bytes.Buffer
	status := Main(s.t.Context(), s.cfg, []string{"--root", s.root, Command}, stdin, &out)
	var a node.Answer
	assert.NoError(s.t, json.Unmarshal(out.Bytes(), &a))
	assert.Equal(s.t, a.Error != nil, status != 0)
	return a
}

func (s *site) ask(r node.GateRequest, body string) node.Answer {
	r.Gate = node.GateProtocol
	line, err := json.Marshal(r)
	assert.NoError(s.t, err)
	return s.send(strings.NewReader(string(line) + "\n" + body))
}

func (s *site) push(agent string, index int64) node.Answer {
	s.t.Helper()
	return s.ask(node.GateRequest{Do: node.GatePush, Size: int64(len(agent)), Signature: s.signed(agent, index)}, agent)
}

func (s *site) run(agent string) node.Answer {
	return s.ask(node.GateRequest{Do: node.GateRun, Agents: map[string]string{"amd64": digestOf(agent)}, Verb: "plan"}, "input")
}

func TestGate(t *testing.T) {
	s := newSite(t)
	a := s.ask(node.GateRequest{Do: node.GateHello}, "")
	require.Equal(t, &node.GateInfo{Protocol: 1, OS: "linux", Architecture: "amd64"}, a.Gate)
	require.Equal(t, node.ReasonNoAgent, s.run("one").Error.Reason)
	for i, agent := range []string{"zero", "one", "two", "three"} {
		require.Nil(t, s.push(agent, 0).Error)
		past := time.Now().Add(time.Duration(i-10) * time.Minute)
		require.NoError(t, os.Chtimes(s.path(stateDir+"/refit-node-"+digestOf(agent)), past, past))
	}
	require.ElementsMatch(t, []string{digestOf("one"), digestOf("two"), digestOf("three")}, s.ask(node.GateRequest{Do: node.GateHello}, "").Gate.Agents,
		"the newest three stay")
	s.run("three")
	require.Equal(t, []string{"three refit-node --root " + s.root + " plan"}, s.ran)

	require.Nil(t, s.push("two", 4).Error, "one that is there is taken with a higher index")
	require.Equal(t, int64(4), s.ask(node.GateRequest{Do: node.GateHello}, "").Gate.RollbackIndex)
	require.Equal(t, node.ReasonNoAgent, s.run("three").Error.Reason)
	require.Equal(t, node.ReasonRefused, s.push("three", 3).Error.Reason)
	require.Contains(t, s.log[len(s.log)-1], "refused: the agent's rollback index is 3")

	s.write(filepath.Join(stateDir, indexName), []byte("many\n"))
	require.Contains(t, s.push("four", 9).Error.Message, "does not hold a number", "it is not taken for none")
}

// agents returns the digests of the agents that are there.
func (s *site) agents() []string { return s.ask(node.GateRequest{Do: node.GateHello}, "").Gate.Agents }

func TestOldAgentsThatAreBroughtAgainDoNotDriveOutTheCurrentOne(t *testing.T) {
	s := newSite(t)
	for _, agent := range []string{"current", "old 1", "old 2"} {
		require.Nil(t, s.push(agent, 0).Error)
	}
	require.Nil(t, s.run("current").Error)
	require.Contains(t, s.agents(), digestOf("current"))

	t.Run("even if the node's index was set back", func(t *testing.T) {
		require.Nil(t, s.push("mended", 2).Error)
		s.write(filepath.Join(stateDir, indexName), []byte("0\n"))
		for _, agent := range []string{"old 3", "old 4", "old 5", "old 6"} {
			require.Nil(t, s.push(agent, 0).Error)
			require.Contains(t, s.agents(), digestOf(agent), "what was just taken can be run")
			s.write(filepath.Join(stateDir, indexName), []byte("0\n"))
		}
		require.Contains(t, s.agents(), digestOf("mended"))
		require.Len(t, s.agents(), kept)
	})
}

func TestAnAgentIsTakenThoughAnotherHasLostItsSignature(t *testing.T) {
	s := newSite(t)
	require.Nil(t, s.push("old", 0).Error)
	require.NoError(t, os.Remove(s.path(stateDir+"/refit-node-"+digestOf("old")+signatureSuffix)))
	for _, agent := range []string{"one", "two", "three"} {
		require.Nil(t, s.push(agent, 0).Error)
	}
	require.ElementsMatch(t, []string{digestOf("one"), digestOf("two"), digestOf("three")}, s.agents(), "the one that can't be run goes first")
}

func TestASilentCallerIsDropped(t *testing.T) {
	s := newSite(t)
	s.cfg.Patience = 10 * time.Millisecond
	stdin, caller := io.Pipe()
	require.Contains(t, s.send(stdin).Error.Message, "nothing came for 10ms")
	require.NoError(t, stdin.Close())
	require.NoError(t, caller.Close())

	line, err := json.Marshal(node.GateRequest{Gate: 1, Do: node.GatePush, Size: 3, Signature: s.signed("one", 0)})
	require.NoError(t, err)
	stdin, caller = io.Pipe()
	go func() { _, _ = caller.Write(append(line, "\non"...)) }()
	require.Contains(t, s.send(stdin).Error.Message, "nothing came for 10ms")
	require.NoError(t, stdin.Close())
	s.cfg.Patience = 0
	require.Nil(t, s.push("one", 0).Error, "and holds up nobody")
}

func TestManyBringTheAgentAtOnce(t *testing.T) {
	s := newSite(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { assert.Nil(t, s.push("one", 0).Error) })
	}
	all.Wait()
	entries, err := os.ReadDir(s.path(stateDir))
	require.NoError(t, err)
	require.Len(t, entries, 4, "the agent, its signature, the index and the lock")
}

func TestDirectories(t *testing.T) {
	mkdir := func(path string, mode os.FileMode) error {
		return errors.Join(os.MkdirAll(path, 0o755), os.Chmod(path, mode))
	}
	for name, tc := range map[string]struct {
		spoil func(s *site) error
		says  string
	}{
		"through a link that is safe": {func(s *site) error {
			return errors.Join(mkdir(s.path("data/refit"), 0o755), mkdir(s.path("var/lib"), 0o755), os.Symlink(s.path("data/refit"), s.path("var/lib/refit")))
		}, ""},
		"through a link to where others may write": {func(s *site) error {
			return errors.Join(mkdir(s.path("data/refit"), 0o755), mkdir(s.path("data"), 0o777), mkdir(s.path("var/lib"), 0o755),
				os.Symlink(s.path("data/refit"), s.path("var/lib/refit")))
		}, "data belongs to user 0 and has mode 0777"},
		"through links one after another, some of them relative": {func(s *site) error {
			return errors.Join(mkdir(s.path("data/refit"), 0o755), mkdir(s.path("var/lib"), 0o755),
				os.Symlink("../../data/link", s.path("var/lib/refit")), os.Symlink("refit", s.path("data/link")))
		}, ""},
		"through a link in a directory that others may write, to one that is safe": {func(s *site) error {
			return errors.Join(mkdir(s.path("data/refit"), 0o755), mkdir(s.path("var/lib"), 0o777), os.Symlink(s.path("data/refit"), s.path("var/lib/refit")))
		}, "var/lib belongs to user 0 and has mode 0777"},
		"a link to itself": {func(s *site) error {
			return errors.Join(mkdir(s.path("var/lib"), 0o755), os.Symlink("refit", s.path("var/lib/refit")))
		}, "too many symbolic links"},
		"a file":                             {func(s *site) error { s.write("var/lib/refit", nil); return nil }, "not a directory"},
		"a directory that a group may write": {func(s *site) error { return mkdir(s.path("var/lib"), 0o775) }, "var/lib belongs to user 0 and has mode 0775"},
		"a directory in which nobody can exchange what is another's": {func(s *site) error { return mkdir(s.path("var/lib"), 0o777|os.ModeSticky) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			require.NoError(t, tc.spoil(s))
			a := s.push("one", 0)
			if tc.says == "" {
				require.Nil(t, a.Error)
				return
			}
			require.NotNil(t, a.Error)
			require.Contains(t, a.Error.Message, tc.says)
		})
	}
}

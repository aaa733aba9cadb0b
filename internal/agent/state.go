package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// stateRoot is where the agent keeps its state on the node.
const stateRoot = "/var/lib/refit"

// private is how the files of the state are: they can hold what the specs take from Secrets.
var private = host.State{UID: host.KeepOwner, GID: host.KeepOwner, Mode: 0o600}

// stateDir reads and writes the agent's state.
type stateDir struct {
	// root is that of the node.
	root host.Root
	dir  string
	disk host.Disk
}

// lastRun is how the last run stands. Which step a run under way is at is in the journal only.
type lastRun struct {
	Machine node.MachineID `json:"machine"`
	// Fence is the highest token that had been claimed when the run ended. Who claimed it knows of this run.
	Fence int64 `json:"fence"`
	// Debt is what the node has not done yet so that it runs with the files that are there, or nil.
	Debt *debt `json:"debt,omitempty"`
	// Left are files that failed runs have left as they are, by path.
	Left map[string]host.State `json:"left,omitempty"`
	// Guarded reports that the run is rolled back unless a login is confirmed.
	Guarded bool `json:"guarded,omitempty"`
	// Boot is the boot of the node in which the run has begun, if that can be told.
	Boot string `json:"boot,omitempty"`
	// Offset is where in the journal the run begins.
	Offset int64       `json:"offset"`
	Status node.Status `json:"status"`
}

// work is all that a run needs to be taken up again by another process.
type work struct {
	Machine node.MachineID `json:"machine"`
	Digest  string         `json:"digest"`
	Token   int64          `json:"token"`
	Plan    node.Plan      `json:"plan"`
	// Rules and Login are what the request said of them.
	Rules disruption.Rules `json:"rules"`
	Login node.Login       `json:"login,omitzero"`
	// WayIn is what the run touches of that by which the server comes in, if it does.
	WayIn string `json:"wayIn,omitempty"`
	// Acts is the first thing that the run does to the running node beside writing files, if it does: it may close the way in, too.
	Acts string `json:"acts,omitempty"`
	// Left are those that failed runs before have left as they are.
	Left map[string]host.State `json:"left,omitempty"`
	// Contents of the files that are written.
	Contents map[string][]byte `json:"contents"`
	// Keep lists the paths of which an original has to be kept.
	Keep []string `json:"keep,omitempty"`
	// Expect is what the node shows when all is done.
	Expect map[string]host.State `json:"expect"`
	// Owners are those of files whose numbers are not known before the run has made them.
	Owners map[string]string `json:"owners,omitempty"`
	// Others are the changes of other kinds, by what they are called.
	Others map[string]kind.Change `json:"others,omitempty"`
	// Updaters is what worked before registered updaters did their part on the node. Nil: none did.
	Updaters *beforeUpdaters `json:"updaters,omitempty"`
	// Next is the record when all is done.
	Next record `json:"next"`
}

func (s stateDir) path(name ...string) string {
	return filepath.Join(append([]string{s.dir}, name...)...)
}

// create makes the directory itself, for nobody else to look into.
func (s stateDir) create() error {
	if err := s.disk.Mkdirs(s.dir, 0o700); err != nil {
		return err
	}
	if err := checkState(s.root); err != nil { // others can have made it just now, where they can write above it
		return err
	}
	return s.disk.MakePrivate(s.dir)
}

// checkState returns an error if others than root can change what is in the directory of the state, be it by a directory above. What they
// have put there would be run as root, or be taken for what was applied last.
func checkState(root host.Root) error {
	err := root.CheckOwned(stateRoot)
	if err == nil {
		err = root.CheckEntriesOwned(stateRoot)
	}
	var notOwned *host.NotOwnedError
	if errors.As(err, &notOwned) {
		return fmt.Errorf("%w. If it can't be told what they have changed, move %s away: refit makes it again, and takes the node for one "+
			"that it has not updated yet", err, stateRoot)
	}
	return err
}

func (s stateDir) loadRecord() (*record, error) {
	rec := &record{}
	ok, err := s.load("record.json", rec)
	if err != nil || !ok {
		return nil, err
	}
	return rec, nil
}

func (s stateDir) loadStatus() (*lastRun, error) {
	last := &lastRun{}
	ok, err := s.load("status.json", last)
	if err != nil || !ok {
		return nil, err
	}
	return last, nil
}

func (s stateDir) loadWork() (*work, error) {
	w := &work{}
	ok, err := s.load("run.json", w)
	if err == nil && !ok {
		err = fmt.Errorf("%s is missing although a run is under way", s.path("run.json"))
	}
	return w, err
}

// loadToken returns the highest token that was claimed. A token that can't be read is not taken for none.
func (s stateDir) loadToken() (int64, error) {
	data, err := s.disk.ReadFile(s.path("token"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	token, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s does not hold a number", s.path("token"))
	}
	return token, nil
}

func (s stateDir) saveToken(token int64) error {
	return s.disk.Write(s.path("token"), strings.NewReader(strconv.FormatInt(token, 10)+"\n"), private)
}

func (s stateDir) load(name string, v any) (bool, error) {
	data, err := s.disk.ReadFile(s.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return false, fmt.Errorf("%s can't be read: %w", s.path(name), err)
	}
	return true, nil
}

func (s stateDir) save(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.disk.Write(s.path(name), bytes.NewReader(data), private)
}

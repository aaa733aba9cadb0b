package agent

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
)

// keptRuns is how many runs' backups stay on the node, of those that have overwritten something.
const keptRuns = 3

// kept describes a copy. It is written after the copy, so where it is the copy is complete.
type kept struct {
	Path  string     `json:"path"`
	State host.State `json:"state"`
	// Extended is nil in what agents before this one have kept.
	Extended host.Extended `json:"extended"`
}

// copies is a directory with copies of files, each under the digest of its path.
type copies struct {
	name  string // below the state directory
	state stateDir
}

func (s stateDir) originals() copies { return copies{name: "originals", state: s} }

func (s stateDir) backups(digest string, token int64) copies {
	return copies{name: filepath.Join("backups", fmt.Sprintf("%s-%d", digest, token)), state: s}
}

// nodePath returns where on the node the copy of p is, for people.
func (c copies) nodePath(p string) string { return filepath.Join(stateRoot, c.name, pathKey(p)) }

func pathKey(p string) string {
	sum := sha256.Sum256([]byte(p))
	return hex.EncodeToString(sum[:])
}

// get returns what the copy of p is of, and whether there is a copy. One of a file that was not there counts.
func (c copies) get(p string) (host.State, bool, error) {
	k, ok, err := c.note(p)
	return k.State, ok, err
}

func (c copies) note(p string) (kept, bool, error) {
	var k kept
	ok, err := c.state.load(filepath.Join(c.name, pathKey(p)+".json"), &k)
	return k, ok, err
}

// keep copies what is at p, or notes that nothing is.
func (c copies) keep(on host.Root, p string) error {
	if err := c.state.disk.Mkdirs(c.state.path(c.name), 0o700); err != nil {
		return err
	}
	f, state, err := on.Open(p)
	if err != nil {
		return err
	}
	var x host.Extended
	if f != nil {
		defer f.Close()
		if x, err = host.ExtendedOf(f); err != nil {
			return err
		}
		h := sha256.New()
		if err := c.state.disk.Write(c.data(p), io.TeeReader(f, h), private); err != nil {
			return fmt.Errorf("keep a copy of %s: %w", p, err)
		}
		state.SHA256 = hex.EncodeToString(h.Sum(nil))
	}
	return c.state.save(filepath.Join(c.name, pathKey(p)+".json"), kept{Path: p, State: state, Extended: x})
}

// take takes over the copy of p from others, if there is one.
func (c copies) take(from copies, p string) error {
	note, ok, err := from.note(p)
	if err != nil || !ok {
		return err
	}
	if err := c.state.disk.Mkdirs(c.state.path(c.name), 0o700); err != nil {
		return err
	}
	if note.State.Exists {
		f, err := c.state.disk.OpenFile(from.data(p), os.O_RDONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := c.state.disk.Write(c.data(p), f, private); err != nil {
			return err
		}
	}
	return c.state.save(filepath.Join(c.name, pathKey(p)+".json"), note)
}

// putBack makes p what it was when it was copied, if it is not so already.
func (c copies) putBack(on host.Host, p string) error {
	was, ok, err := c.note(p)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("the copy of %s is missing", p)
	}
	state := was.State
	if now, err := on.Observe(p); err == nil && now == state {
		return nil
	}
	if !state.Exists {
		return on.RemoveFile(p)
	}
	f, err := c.state.disk.OpenFile(c.data(p), os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return on.WriteBack(p, f, state, was.Extended)
}

// recordCopy is the name of the copy of the record, which no digest of a path has.
const recordCopy = "record.json"

// keptRecord is the record as it was before a run. Nil: there was none.
type keptRecord struct {
	Record *record `json:"record"`
}

// keepRecord copies the record.
func (c copies) keepRecord() error {
	rec, err := c.state.loadRecord()
	if err != nil {
		return err
	}
	if err := c.state.disk.Mkdirs(c.state.path(c.name), 0o700); err != nil {
		return err
	}
	return c.state.save(filepath.Join(c.name, recordCopy), keptRecord{rec})
}

// putBackRecord makes the record what it was when it was copied. Without a copy it is left: agents before this one have made none.
func (c copies) putBackRecord() error {
	var was keptRecord
	ok, err := c.state.load(filepath.Join(c.name, recordCopy), &was)
	if err != nil || !ok {
		return err
	}
	if was.Record == nil {
		return c.state.disk.Remove(c.state.path("record.json"))
	}
	return c.state.save("record.json", was.Record)
}

func (c copies) data(p string) string { return c.state.path(c.name, pathKey(p)) }

// read returns the content of the copy of p: nil if there was no file, or if there is no copy.
func (c copies) read(p string) ([]byte, error) {
	state, ok, err := c.get(p)
	if err != nil || !ok || !state.Exists {
		return nil, err
	}
	return c.state.disk.ReadFile(c.data(p))
}

// sweepOriginals removes the originals of paths that rec does not list.
func (s stateDir) sweepOriginals(rec *record) error {
	wanted := map[string]bool{}
	if rec != nil {
		for p := range rec.Files {
			wanted[pathKey(p)] = true
		}
	}
	entries, err := s.disk.ReadDir(s.path("originals"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !wanted[strings.TrimSuffix(e.Name(), ".json")] {
			if err := s.disk.Remove(s.path("originals", e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// pruneBackups removes the backups of all but the last runs that have overwritten something, of which people may have been told. What the
// others have noted is for going back only, and they have ended. Tokens tell which are the last of the same moment only: one that comes out
// of an etcd that was set back is lower than those before.
func (s stateDir) pruneBackups() error {
	entries, err := s.disk.ReadDir(s.path("backups"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b host.Info) int {
		return cmp.Or(b.ModTime().Compare(a.ModTime()), cmp.Compare(tokenOf(b.Name()), tokenOf(a.Name())))
	})
	left := keptRuns
	for _, e := range entries {
		if !e.IsDir() { // it is none of the agent's
			continue
		}
		dir := s.path("backups", e.Name())
		holds, err := s.holdsCopies(dir)
		if err != nil {
			return err
		}
		if holds && left > 0 {
			left--
			continue
		}
		if err := s.disk.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}

// holdsCopies reports whether a directory has a copy of a file, beside what is noted of files and of the record.
func (s stateDir) holdsCopies(dir string) (bool, error) {
	entries, err := s.disk.ReadDir(dir)
	return slices.ContainsFunc(entries, func(e host.Info) bool { return filepath.Ext(e.Name()) != ".json" }), err
}

func tokenOf(backup string) int64 {
	token, _ := strconv.ParseInt(backup[strings.LastIndex(backup, "-")+1:], 10, 64)
	return token
}

package agent

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/capi-refit/refit/internal/node"
)

const (
	journalFile = "journal.jsonl"
	journalOld  = "journal.jsonl.1"
	// maxJournal is where the journal is rotated. It is looked at between runs only, so a run's entries stay together.
	maxJournal = 4 << 20
	// reserveFile takes up room for what a run has to note on a disk that is full, so that a node on which the way in is closed can reboot
	// with what was put back.
	reserveFile = "reserve"
	maxReserve  = 64 << 10
)

// The events of a journal.
const (
	eventClaimed    = "claimed"
	eventAdopted    = "adopted"
	eventNoted      = "works-noted"
	eventRunStarted = "run-started"
	eventStarted    = "step-started"
	eventAsked      = "reboot-asked"
	eventAwaited    = "login-awaited"
	eventDone       = "step-done"
	eventFailed     = "step-failed"
	eventRolledBack = "rolled-back"
	eventRunDone    = "run-done"
)

// appendJournal adds an entry and returns how long the journal then is. When it returns, the entry survives a loss of
// power.
func (s stateDir) appendJournal(e node.JournalEntry) (int64, error) {
	line, err := json.Marshal(e)
	if err != nil {
		return 0, err
	}
	f, err := s.disk.OpenFile(s.path(journalFile), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if torn(f, info.Size()) {
		line = append([]byte{'\n'}, line...)
	}
	n, err := f.Write(append(line, '\n'))
	if err != nil {
		return 0, err
	}
	if !s.disk.NoSync {
		err = syscall.Fdatasync(int(f.Fd()))
	}
	return info.Size() + int64(n), err
}

// reserve takes up room on the disk.
func (s stateDir) reserve() error {
	return s.disk.Write(s.path(reserveFile), io.LimitReader(rand.Reader, maxReserve), private)
}

// spend gives up that room, and reports whether there was any.
func (s stateDir) spend() bool {
	_, err := s.disk.Lstat(s.path(reserveFile))
	return err == nil && s.disk.Remove(s.path(reserveFile)) == nil
}

// torn reports whether the last line was cut off, by a full disk or a loss of power. It then counts as not written.
func torn(f *os.File, size int64) bool {
	if size == 0 {
		return false
	}
	last := make([]byte, 1)
	_, err := f.ReadAt(last, size-1)
	return err == nil && last[0] != '\n'
}

// rotateJournal bounds the journal. One older part is kept.
func (s stateDir) rotateJournal() error {
	info, err := s.disk.Lstat(s.path(journalFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || info.Size() < maxJournal {
		return err
	}
	return s.disk.Rename(s.path(journalFile), s.path(journalOld))
}

// journalFrom returns the entries from offset on. Lines that were cut off are left out.
func (s stateDir) journalFrom(offset int64) ([]node.JournalEntry, error) {
	f, err := s.disk.OpenFile(s.path(journalFile), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	var entries []node.JournalEntry
	for line := range bytes.Lines(data) {
		var e node.JournalEntry
		if bytes.HasSuffix(line, []byte{'\n'}) && json.Unmarshal(line, &e) == nil && e.Event != "" {
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// Journal copies the journal to w, oldest entries first.
func (a *Agent) Journal(w io.Writer) error {
	for _, name := range []string{journalOld, journalFile} {
		data, err := a.state.disk.ReadFile(a.state.path(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	return nil
}

// progress is how far a run has come, as its part of the journal shows.
type progress struct {
	started, done map[string]bool
	failed        *node.JournalEntry       // the first failure, which is the cause of the others
	last          string                   // the step that was begun last
	boots         map[string]string        // in which boot a step was begun, of those for which it counts
	askedUntil    map[string]time.Duration // how long the node has been up when a reboot that systemd has agreed to counts as lost
	awaited       *node.JournalEntry       // the login
	errors        map[string]string        // with what a step has failed last
	times         []node.StepTime          // of the steps, in the order in which they were begun first
	notes         []string
	rolledBack    bool
	finished      bool
}

func (s stateDir) progress(offset int64) (progress, error) {
	entries, err := s.journalFrom(offset)
	p := progress{started: map[string]bool{}, done: map[string]bool{}, boots: map[string]string{}, askedUntil: map[string]time.Duration{}, errors: map[string]string{}}
	for _, e := range entries {
		p.add(e)
	}
	return p, err
}

func (p *progress) add(e node.JournalEntry) {
	p.addTime(e)
	switch e.Event {
	case eventStarted:
		p.started[e.Step] = true
		p.last = e.Step
		p.boots[e.Step] = cmp.Or(e.Boot, p.boots[e.Step])
	case eventAsked:
		p.askedUntil[e.Step] = e.Until // 0 where an older agent has asked
	case eventAwaited:
		p.started[e.Step] = true
		p.last, p.awaited = e.Step, &e
	case eventDone:
		p.done[e.Step] = true
		if e.Note != "" {
			p.notes = append(p.notes, e.Note)
		}
	case eventFailed:
		p.errors[e.Step] = e.Error
		if p.failed == nil {
			p.failed = &e
		}
	case eventRolledBack:
		p.rolledBack = true
	case eventRunDone:
		p.finished = true
	}
}

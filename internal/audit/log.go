package audit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// DefaultMaxSize is where a log goes on in a new file, in bytes.
const DefaultMaxSize = 64 << 20

// ErrNotRecorded is returned when a line can't be written. What it would have told of must not happen.
var ErrNotRecorded = errors.New("the audit log can't be written")

// Options of a Log.
type Options struct {
	// Instance is the process, as each entry names it.
	Instance string
	// MaxSize is where the log goes on in a new file, in bytes: DefaultMaxSize if it is 0. The file before gets the number of
	// its last entry behind its name.
	MaxSize int64
	// Keep is how many files before the present one are kept. 0: all of them.
	Keep int
	// Logger is told of each entry, so that a pipeline of logs has them too. By default nobody is.
	Logger logr.Logger
}

// Log is an audit log that is written. It may be used by several goroutines, and by one process at a time.
type Log struct {
	path  string
	clock clock.PassiveClock
	opts  Options

	mu    sync.Mutex
	file  logFile
	chain chain
	// size of the file, as far as chain has read or written it.
	size int64
	// broken reports that a write has failed, so that it is not known what is behind size.
	broken bool
	// moved reports that file no longer is at path, and that a new one is to be made there.
	moved bool
}

// logFile is what a Log needs of an *os.File.
type logFile interface {
	io.WriteCloser
	io.ReaderAt
	Sync() error
}

// Open opens the log at path, which it makes if it is not there, and continues its chain. A log that does not hold together is
// an error: put it aside, for somebody to look at, and a new one is begun. A write that was interrupted is none.
func Open(path string, c clock.PassiveClock, o Options) (*Log, error) {
	o.MaxSize = cmp.Or(o.MaxSize, DefaultMaxSize)
	l := &Log{path: path, clock: c, opts: o}
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	return l, nil
}

func (l *Log) open() error {
	file, err := openLocked(l.path)
	if err != nil {
		return err
	}
	before, err := latestBefore(l.path)
	if err == nil && before != "" {
		err = l.readFile(before)
	}
	if err == nil {
		l.file, l.chain.line = file, 0
		err = l.catchUp()
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	return nil
}

// openLocked opens a file for nobody else to write.
func openLocked(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lock(file); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: another process writes it: %w; each process needs a log of its own", path, err), file.Close())
	}
	// Else a power failure could take the file away, with all that it says.
	if err := syncDir(filepath.Dir(path)); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func syncDir(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (l *Log) readFile(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := l.chain.read(file, func(Entry) {}); err != nil {
		return fmt.Errorf("%s: %w; keep it for somebody to look at, move it away, and start again", name, err)
	}
	return nil
}

// catchUp reads what is behind size.
func (l *Log) catchUp() error {
	next, count := l.chain.clone(), &counter{r: io.NewSectionReader(l.file, l.size, 1<<62)}
	if err := next.read(count, func(Entry) {}); err != nil {
		return fmt.Errorf("%s: %w; keep it for somebody to look at, move it away, and start again", l.path, err)
	}
	l.chain, l.broken = next, false
	l.size += count.n
	return nil
}

// counter counts what is read.
type counter struct {
	r io.Reader
	n int64
}

// Read implements io.Reader.
func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

func (c *chain) clone() chain {
	out := *c
	out.since = bytes.Clone(c.since)
	return out
}

// Append writes an entry, and returns it as it was written. It is on the disk when Append returns. The error is
// ErrNotRecorded; then it is not known whether there is something of the entry in the log, and later ones take that into
// account.
func (l *Log) Append(e Entry) (Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, err := l.append(e)
	if err != nil {
		return Entry{}, fmt.Errorf("%w: %w", ErrNotRecorded, err)
	}
	return e, nil
}

func (l *Log) append(e Entry) (Entry, error) {
	if l.file == nil {
		return e, errors.New("it is closed")
	}
	if l.broken {
		if err := l.catchUp(); err != nil {
			return e, err
		}
	}
	if l.size >= l.opts.MaxSize && l.chain.torn == 0 {
		if err := l.rotate(); err != nil {
			return e, err
		}
	}
	if l.chain.torn > 0 {
		if _, err := l.write(Entry{Event: EventTorn, Torn: l.chain.torn}); err != nil {
			return e, err
		}
	}
	e.Torn = 0
	return l.write(e)
}

// write writes an entry at once, behind whatever an interrupted write has left.
func (l *Log) write(e Entry) (Entry, error) {
	next := l.chain.clone()
	var data []byte
	if next.open {
		data = append(data, tornMark...)
		next.since = append(next.since, tornMark...)
	}
	e.Seq, e.Prev, e.Instance, e.Time = next.seq+1, hashOf(next.since), l.opts.Instance, l.clock.Now().UTC()
	line, err := json.Marshal(e)
	if err != nil {
		return e, err
	}
	line = append(line, '\n')
	data = append(data, line...)
	l.broken = true
	if _, err := l.file.Write(data); err != nil {
		return e, fmt.Errorf("write %s: %w", l.path, err)
	}
	if err := l.file.Sync(); err != nil {
		return e, fmt.Errorf("bring %s to the disk: %w", l.path, err)
	}
	next.accept(e, line)
	l.chain, l.broken = next, false
	l.size += int64(len(data))
	l.opts.Logger.Info("Recorded", "entry", e, "hash", l.chain.sum())
	return e, nil
}

// rotate has the log go on in a new file. If it is interrupted there is no file at path, or an empty one, and the one before is
// found by its name.
func (l *Log) rotate() error {
	if !l.moved {
		if err := os.Rename(l.path, numbered(l.path, l.chain.seq)); err != nil {
			return fmt.Errorf("go on in a new file: %w", err)
		}
		l.moved = true
	}
	file, err := openLocked(l.path)
	if err != nil {
		return fmt.Errorf("go on in a new file: %w", err)
	}
	_ = l.file.Close() // all of it is on the disk
	l.file, l.size, l.chain.line, l.moved = file, 0, 0, false
	l.prune()
	return nil
}

// prune removes the oldest files, of more than are to be kept. One that can't be removed is tried again when the next one is full.
func (l *Log) prune() {
	names, err := filesBefore(l.path)
	if l.opts.Keep <= 0 || len(names) <= l.opts.Keep {
		return
	}
	for _, name := range names[:len(names)-l.opts.Keep] {
		err = errors.Join(err, os.Remove(name))
		l.opts.Logger.Info("Removed an old file, as there are more than are to be kept", "file", name, "keep", l.opts.Keep)
	}
	if err != nil {
		l.opts.Logger.Error(err, "Could not remove old files")
	}
}

// numbered is the name of a file whose last entry is seq. The names sort as the numbers do.
func numbered(path string, seq int64) string { return fmt.Sprintf("%s.%012d", path, seq) }

// latestBefore returns the file before the one at path, or "" if there is none.
func latestBefore(path string) (string, error) {
	names, err := filesBefore(path)
	if err != nil || len(names) == 0 {
		return "", err
	}
	return names[len(names)-1], nil
}

// filesBefore returns the files before the one at path, the oldest first.
func filesBefore(path string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), filepath.Base(path)+".")
		if ok && len(number) == 12 && strings.Trim(number, "0123456789") == "" {
			names = append(names, filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
	slices.Sort(names)
	return names, nil
}

// Head returns the end of the log. Noted where who can write the log can't, it shows later whether anything was cut off.
func (l *Log) Head() Head {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.chain.head()
}

// Close closes the log. Nothing can be recorded from then on.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return fs.ErrClosed
	}
	file := l.file
	l.file = nil
	return file.Close()
}

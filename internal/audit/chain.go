package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// chain is how far a log was read or written.
type chain struct {
	seq int64
	// since are all bytes from the beginning of the last entry on, of which the first ones, entry of them, are its line.
	since []byte
	entry int
	// instance is the one that has written the last entry.
	instance string
	// torn counts the lines since then that are no entries, open says that the last one has no newline.
	torn int
	open bool
	// line is the number of the last line of the file.
	line int
}

// BreakError says where a log was tampered with.
type BreakError struct {
	// Line counts from 1, in the file.
	Line int
	// What is wrong there.
	What string
}

// Error implements error.
func (e *BreakError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.What) }

// read reads a file to its end, and has each see its entries. A break is a *BreakError.
func (c *chain) read(r io.Reader, each func(Entry)) error {
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := readLine(in)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if len(line) > 0 {
			if err := c.take(line, each); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
	}
}

// readLine returns a line with its newline, and io.EOF behind the last one.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
		if len(line) > maxLine {
			return nil, fmt.Errorf("a line is longer than %d bytes: this is no audit log", maxLine)
		}
	}
}

// take takes the next line of a file.
func (c *chain) take(line []byte, each func(Entry)) error {
	if c.open {
		return c.rest(line)
	}
	c.line++
	body, complete := line[:len(line)-1], line[len(line)-1] == '\n'
	if !complete {
		// It is not over, whatever it says: the newline is the last byte of a write.
		c.tear(line)
		c.open = true
		return nil
	}
	if bytes.HasSuffix(line, tornMark) {
		c.tear(line)
		return nil
	}
	e, err := parse(body)
	if err != nil {
		return c.breaks("it is no entry (%s); it was changed, or inserted", err)
	}
	if err := c.check(e); err != nil {
		return err
	}
	c.accept(e, line)
	each(e)
	return nil
}

// rest takes what was written behind a line without a newline since that was read.
func (c *chain) rest(line []byte) error {
	c.since = append(c.since, line...)
	if line[len(line)-1] != '\n' {
		return nil
	}
	if c.open = false; !bytes.HasSuffix(c.since, tornMark) {
		return c.breaks("another process has written it")
	}
	return nil
}

// tornMark ends a line that an interrupted write has left, so that no such line is an entry.
var tornMark = []byte(" (torn)\n")

func (c *chain) tear(line []byte) {
	c.torn++
	c.since = append(c.since, line...)
}

func (c *chain) accept(e Entry, line []byte) {
	c.seq, c.torn, c.open = e.Seq, 0, false
	c.since, c.entry, c.instance = append(c.since[:0], line...), len(line), e.Instance
}

// sum is the SHA-256 of the line of the last entry. Unlike the hash of head it does not change any more.
func (c *chain) sum() string { return hashOf(c.since[:c.entry]) }

func (c *chain) breaks(format string, args ...any) error {
	return &BreakError{Line: c.line, What: fmt.Sprintf(format, args...)}
}

// check says why an entry does not continue the chain.
func (c *chain) check(e Entry) error {
	if c.torn != e.Torn || (e.Event == EventTorn) != (e.Torn > 0) {
		return c.breaks("%d lines before it are left of interrupted writes, and it tells of %d; they, or it, were changed, removed or inserted", c.torn, e.Torn)
	}
	if c.continues(e) {
		return nil
	}
	follows, next := e.Prev == hashOf(c.since), c.seq+1
	switch {
	case follows && e.Seq == next:
		return nil
	case follows:
		return c.breaks("it has number %d and should have %d; it was changed", e.Seq, next)
	case e.Seq > next:
		return c.breaks("entry %d should be here, and this is %d; what is missing was removed, or moved", next, e.Seq)
	case e.Seq < next:
		return c.breaks("entry %d comes after entry %d; it was inserted, repeated or moved", e.Seq, c.seq)
	default:
		return c.breaks("it does not follow from the line before, which was changed after this one was written, or else this one was")
	}
}

// continues reports whether an entry is the first one that is read, of a log that has begun in another file.
func (c *chain) continues(e Entry) bool {
	return c.seq == 0 && c.torn == 0 && e.Seq > 1 && e.Prev != ""
}

func (c *chain) head() Head { return Head{Seq: c.seq, Hash: hashOf(c.since)} }

// Report is what a log that was verified shows.
type Report struct {
	// Entries is their number.
	Entries int
	// First is the Seq of the first one. If it is not 1 there is a file before, which was not looked at.
	First int64
	// From and To are the times of the first and of the last one.
	From, To time.Time
	// Unfinished are the Seqs of commands of which the end is not told: they are under way, or refit ended before they did.
	Unfinished []int64
	// Interrupted counts the writes that were interrupted.
	Interrupted int
	// Heads are the published ones that the log has the entries of.
	Heads []SignedHead
	// Lost are the Seqs of entries which tell that the log was cut off or replaced before them.
	Lost []int64
	// Pending reports that the log ends in the middle of a line. It is being written, or the process has crashed.
	Pending bool
	Head    Head
}

// File is a part of a log.
type File struct {
	Name string
	io.Reader
}

// Verify checks the files of a log, the oldest first. The error of a file has its name, and a break is a *BreakError. The
// Report is of what was read before the error.
func Verify(files ...File) (Report, error) {
	return readFiles(files, func(*chain) {})
}

// readFiles checks files, and has each see the chain after each entry.
func readFiles(files []File, each func(*chain)) (Report, error) {
	var c chain
	s := summary{open: map[int64]bool{}}
	var err error
	for i, f := range files {
		c.line = 0
		err = c.read(f, func(e Entry) {
			s.add(e)
			each(&c)
		})
		if err == nil && c.torn > 0 && i < len(files)-1 {
			err = c.breaks("it is left of an interrupted write, and the log does not go on behind it")
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", f.Name, err)
			break
		}
	}
	s.Unfinished = slices.Sorted(maps.Keys(s.open))
	s.Pending = c.torn > 0
	s.Head = c.head()
	return s.Report, err
}

// summary makes a Report of entries.
type summary struct {
	Report
	// open are the commands of which no end was told so far.
	open map[int64]bool
}

func (s *summary) add(e Entry) {
	if s.Entries++; s.Entries == 1 {
		s.First, s.From = e.Seq, e.Time
	}
	s.To = e.Time
	s.Interrupted += e.Torn
	switch e.Event {
	case EventSent:
		s.open[e.Seq] = true
	case EventDone:
		delete(s.open, e.Of)
	case EventLost:
		s.Lost = append(s.Lost, e.Seq)
	default:
	}
}

package audit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
)

var start = time.Date(2026, 10, 3, 20, 0, 0, 0, time.UTC)

func open(t require.TestingT, path string, o Options) *Log {
	o.Instance = "refit-0"
	l, err := Open(path, clocktesting.NewFakePassiveClock(start), o)
	require.NoError(t, err)
	return l
}

func add(t require.TestingT, l *Log, n int) {
	for range n {
		_, err := l.Append(Entry{
			Event: EventSent, Verb: "apply", Address: "10.0.0.1:22", Request: strings.Repeat("ab", 32), Token: 7,
			Machine: &Machine{Namespace: "fleet", Name: "w1", UID: "u1"},
		})
		require.NoError(t, err)
	}
}

func tear(t require.TestingT, path, what string) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	require.NoError(t, err)
	_, err = f.WriteString(what)
	require.NoError(t, errors.Join(err, f.Close()))
}

func read(t require.TestingT, path string) []byte {
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}

func verify(data []byte) (Report, error) { return Verify(File{"log", bytes.NewReader(data)}) }

func TestLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l := open(t, path, Options{})
	add(t, l, 2)
	require.Equal(t, `{"seq":1,"time":"2026-10-03T20:00:00Z","event":"sent","instance":"refit-0","machine":{"namespace":"fleet","name":"w1","uid":"u1"},`+
		`"address":"10.0.0.1:22","verb":"apply","request":"`+strings.Repeat("ab", 32)+`","token":7,"prev":""}`,
		strings.SplitN(string(read(t, path)), "\n", 2)[0])
	head := l.Head()
	require.NoError(t, l.Close())
	require.ErrorIs(t, l.Close(), os.ErrClosed)
	_, err := l.Append(Entry{Event: EventSent})
	require.ErrorIs(t, err, ErrNotRecorded)

	l = open(t, path, Options{})
	require.Equal(t, head, l.Head())
	add(t, l, 1)
	report, err := verify(read(t, path))
	require.NoError(t, err)
	require.Equal(t, Report{Entries: 3, First: 1, From: start, To: start, Unfinished: []int64{1, 2, 3}, Head: l.Head()}, report)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	_, err = Open(path, nil, Options{})
	require.ErrorContains(t, err, "another process writes it")
	require.NoError(t, l.Close())
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken")
	require.NoError(t, os.WriteFile(broken, []byte("hello\n"), 0o600))
	long := filepath.Join(dir, "long")
	require.NoError(t, os.WriteFile(long, bytes.Repeat([]byte("x"), maxLine+100_000), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "next.000000000007"), []byte("hello\n"), 0o600))
	for path, says := range map[string]string{
		broken:                         "broken: line 1: it is no entry",
		long:                           "this is no audit log",
		filepath.Join(dir, "no", "no"): "no such file",
		filepath.Join(dir, "next"):     "next.000000000007: line 1: it is no entry",
	} {
		_, err := Open(path, nil, Options{})
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, "open the audit log: ")
	}
}

func TestConcurrentAppends(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l := open(t, path, Options{MaxSize: 10_000})
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() { add(t, l, 20) })
	}
	wg.Wait()
	names, err := filepath.Glob(path + "*")
	require.NoError(t, err)
	require.Greater(t, len(names), 2, "it was rotated")
	var files []File
	for _, name := range append(names[1:], names[0]) {
		files = append(files, File{name, bytes.NewReader(read(t, name))})
	}
	report, err := Verify(files...)
	require.NoError(t, err)
	require.Equal(t, 200, report.Entries)
	require.Equal(t, l.Head(), report.Head)
}

// TestTornWrites crashes at each byte of a write, and again at each byte of the repair.
func TestTornWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l := open(t, path, Options{})
	add(t, l, 3)
	require.NoError(t, l.Close())
	whole := read(t, path)
	two := len(bytes.Join(bytes.SplitAfter(whole, []byte("\n"))[:2], nil))
	for cut := two; cut <= len(whole); cut = next(cut, two, len(whole)) {
		require.NoError(t, os.WriteFile(path, whole[:cut], 0o600))
		torn := cut != two && cut != len(whole)
		report, err := verify(whole[:cut])
		require.NoError(t, err)
		require.Equal(t, torn, report.Pending, "cut at %d", cut)
		l := open(t, path, Options{})
		add(t, l, 1)
		require.NoError(t, l.Close())
		repaired := read(t, path)
		require.True(t, bytes.HasPrefix(repaired, whole[:cut]), "nothing is taken away")
		report, err = verify(repaired)
		require.NoError(t, err)
		require.Equal(t, torn, report.Interrupted == 1)
		if cut%6 != 0 || !torn {
			continue
		}
		for again := cut; again < len(repaired); again += 17 {
			require.NoError(t, os.WriteFile(path, repaired[:again], 0o600))
			l := open(t, path, Options{})
			add(t, l, 1)
			require.NoError(t, l.Close())
			report, err := verify(read(t, path))
			require.NoError(t, err, "cut at %d and %d", cut, again)
			require.GreaterOrEqual(t, report.Interrupted, 1)
		}
	}
}

// next goes by single bytes at both ends.
func next(cut, from, to int) int {
	if cut < from+5 || cut > to-10 {
		return cut + 1
	}
	return cut + 9
}

// logWith makes a log, interrupted now and then.
func logWith(t require.TestingT, dir string, entries int, tears []int) []byte {
	path := filepath.Join(dir, "audit.jsonl")
	require.NoError(t, os.RemoveAll(path))
	for range entries {
		l := open(t, path, Options{})
		add(t, l, 1)
		require.NoError(t, l.Close())
		if len(tears) > 0 {
			if tears[0] > 0 {
				tear(t, path, `{"seq":9,"time":"2026-10-03T`[:tears[0]])
			}
			tears = tears[1:]
		}
	}
	l := open(t, path, Options{})
	add(t, l, 2)
	require.NoError(t, l.Close())
	return read(t, path)
}

// TestTampering has one line changed, removed, inserted or moved.
func TestTampering(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		data := logWith(t, dir, rapid.IntRange(1, 4).Draw(t, "entries"), rapid.SliceOfN(rapid.IntRange(0, 20), 4, 4).Draw(t, "tears"))
		before, err := verify(data)
		require.NoError(t, err)
		lines := bytes.SplitAfter(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
		lines[len(lines)-1] = append(bytes.Clone(lines[len(lines)-1]), '\n')
		at := rapid.IntRange(0, len(lines)-1).Draw(t, "at")
		rest := append([][]byte{}, lines[at+1:]...)
		changed := append([][]byte{}, lines[:at]...)
		kind := rapid.SampledFrom([]string{"change", "remove", "insert", "move"}).Draw(t, "kind")
		switch kind {
		case "change":
			line := bytes.Clone(lines[at])
			i := rapid.IntRange(0, len(line)-1).Draw(t, "byte")
			line[i] ^= byte(rapid.IntRange(1, 255).Draw(t, "with"))
			changed = append(append(changed, line), rest...)
		case "remove":
			changed = append(changed, rest...)
		case "insert":
			copied := lines[rapid.IntRange(0, len(lines)-1).Draw(t, "what")]
			changed = append(append(changed, copied, lines[at]), rest...)
		case "move":
			if at == len(lines)-1 {
				t.Skip("nothing is behind it")
			}
			changed = append(append(changed, lines[at+1], lines[at]), rest[1:]...)
		}
		after, err := verify(bytes.Join(changed, nil))
		if at == len(lines)-1 && kind != "insert" && err == nil {
			require.NotEqual(t, before.Head, after.Head, "the end shows in the head only")
			return
		}
		if at == 0 && err == nil {
			require.NotEqual(t, before.First, after.First, "the beginning shows in the first number")
			return
		}
		require.Error(t, err, "%s %d", kind, at)
	})
}

func TestBreaksAreExplained(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l := open(t, path, Options{})
	add(t, l, 5)
	require.NoError(t, l.Close())
	lines := strings.SplitAfter(strings.TrimSuffix(string(read(t, path)), "\n"), "\n")
	lines[4] += "\n"
	for name, c := range map[string]struct {
		change func([]string) []string
		says   string
	}{
		"changed":  {func(l []string) []string { l[1] = strings.Replace(l[1], "w1", "w2", 1); return l }, "log: line 3: it does not follow from the line before"},
		"removed":  {func(l []string) []string { return append(l[:1:1], l[3:]...) }, "log: line 2: entry 2 should be here, and this is 4"},
		"repeated": {func(l []string) []string { return append(l, l[2]) }, "log: line 6: entry 3 comes after entry 5"},
		"inserted": {func(l []string) []string { l[2] = "# a remark\n" + l[2]; return l }, "log: line 3: it is no entry"},
		"numbered": {func(l []string) []string { l[3] = strings.Replace(l[3], `"seq":4`, `"seq":7`, 1); return l }, "line 4: it has number 7 and should have 4"},
		"spaced":   {func(l []string) []string { l[4] = strings.Replace(l[4], `"seq":`, `"seq": `, 1); return l }, "line 5: it is no entry (it is not written as refit writes)"},
		"a torn line that is none": {func(l []string) []string {
			l[1] = "x (torn)\n"
			return l
		}, "line 3: 1 lines before it are left of interrupted writes, and it tells of 0"},
		"more behind an entry": {func(l []string) []string { l[1] = strings.TrimSpace(l[1]) + " 1\n"; return l }, "line 2: it is no entry (something is behind the entry)"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := verify([]byte(strings.Join(c.change(append([]string{}, lines...)), "")))
			require.ErrorContains(t, err, c.says)
			var broken *BreakError
			require.ErrorAs(t, err, &broken)
		})
	}
	_, err := Verify(File{"a", strings.NewReader(lines[0] + "{")}, File{"b", strings.NewReader(lines[1])})
	require.ErrorContains(t, err, "a: line 2: it is left of an interrupted write")
	report, err := verify([]byte(strings.Join(lines[2:], "")))
	require.NoError(t, err)
	require.EqualValues(t, 3, report.First, "what was before is in another file")
}

// faulty is a disk that fails.
type faulty struct {
	logFile
	// room is how many bytes can be written; -1 is no bound.
	room  int
	stuck error
}

func (f *faulty) Write(p []byte) (int, error) {
	if f.room < 0 || len(p) <= f.room {
		if f.room > 0 {
			f.room -= len(p)
		}
		return f.logFile.Write(p)
	}
	n, err := f.logFile.Write(p[:f.room])
	f.room -= n
	return n, errors.Join(err, errors.New("no space left on device"))
}

func (f *faulty) Sync() error {
	if f.stuck != nil {
		return f.stuck
	}
	return f.logFile.Sync()
}

func TestFailingDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l := open(t, path, Options{})
	disk := &faulty{logFile: l.file, room: 700}
	l.file = disk
	failed := 0
	for range 5 {
		if _, err := l.Append(Entry{Event: EventSent, Verb: "apply", Address: strings.Repeat("x", 100)}); err != nil {
			require.ErrorIs(t, err, ErrNotRecorded)
			require.ErrorContains(t, err, "no space left on device")
			failed++
		}
		disk.room = max(disk.room, 3) // a little at a time, so that the repair is interrupted as well
	}
	require.Positive(t, failed)
	disk.room = -1
	add(t, l, 1)
	disk.stuck = errors.New("input/output error")
	_, err := l.Append(Entry{Event: EventSent})
	require.ErrorIs(t, err, ErrNotRecorded)
	require.ErrorContains(t, err, "bring "+path+" to the disk")
	disk.stuck = nil
	add(t, l, 1)
	report, err := verify(read(t, path))
	require.NoError(t, err)
	require.Positive(t, report.Interrupted)
	require.Equal(t, l.Head(), report.Head)

	tear(t, path, "not by refit\n")
	disk.stuck = errors.New("input/output error")
	_, err = l.Append(Entry{Event: EventSent})
	require.Error(t, err)
	disk.stuck = nil
	_, err = l.Append(Entry{Event: EventSent})
	require.ErrorIs(t, err, ErrNotRecorded)
	require.ErrorContains(t, err, "it is no entry")
}

func TestRotation(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.jsonl")
	l := open(t, path, Options{MaxSize: 1})
	add(t, l, 3)
	require.NoError(t, l.Close())

	// A crash between the renaming and the new file.
	require.NoError(t, os.Rename(path, numbered(path, 3)))
	l = open(t, path, Options{MaxSize: 1})
	require.EqualValues(t, 3, l.Head().Seq)
	add(t, l, 1)

	// No new file can be made: nothing is recorded, and nothing is written where it does not belong.
	require.NoError(t, os.Mkdir(numbered(path, 4), 0o700))
	_, err := l.Append(Entry{Event: EventSent})
	require.ErrorIs(t, err, ErrNotRecorded)
	require.NoError(t, os.Remove(numbered(path, 4)))
	l.moved = true
	require.NoError(t, os.Rename(path, numbered(path, 4)))
	require.NoError(t, os.Mkdir(path, 0o700))
	_, err = l.Append(Entry{Event: EventSent})
	require.ErrorIs(t, err, ErrNotRecorded)
	require.NoError(t, os.Remove(path))
	add(t, l, 1)

	var files []File
	for seq := range 4 {
		name := numbered(path, int64(seq+1))
		files = append(files, File{name, bytes.NewReader(read(t, name))})
	}
	report, err := Verify(append(files, File{path, bytes.NewReader(read(t, path))})...)
	require.NoError(t, err)
	require.Equal(t, 5, report.Entries)
	require.Equal(t, l.Head(), report.Head)
	_, err = Verify(File{"b", bytes.NewReader(read(t, numbered(path, 2)))}, File{"a", bytes.NewReader(read(t, numbered(path, 1)))})
	require.ErrorContains(t, err, "a: line 1: entry 1 comes after entry 2")
}

func TestHead(t *testing.T) {
	require.Equal(t, "0 ", Head{}.String())
	require.Equal(t, "log: line 3: bad", fmt.Errorf("log: %w", &BreakError{3, "bad"}).Error())
}

func FuzzVerify(f *testing.F) {
	dir := f.TempDir()
	f.Add(logWith(f, dir, 2, []int{0, 9}))
	f.Fuzz(func(t *testing.T, data []byte) {
		report, err := verify(data)
		if err == nil && report.Entries == 0 && len(data) > 0 {
			require.True(t, report.Pending, "bytes that are no entries don't go unnoticed")
		}
	})
}

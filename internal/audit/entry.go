package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Event is what an Entry tells.
type Event string

// The events.
const (
	// EventSent: the command is about to be sent.
	EventSent Event = "sent"
	// EventDone: it has ended, or nobody waits for it any more.
	EventDone Event = "done"
	// EventTorn: a write was interrupted before. What it has left is between this line and the entry before it.
	EventTorn Event = "torn"
	// EventOverridden: an update is about to start that policies, or a stop, would have held back.
	EventOverridden Event = "overridden"
	// EventPermitted: an update is about to start that a policy of the strategy Manual has left to somebody, who has permitted it.
	EventPermitted Event = "permitted"
	// EventLost: the log is not the one whose head was published. It was cut off, or replaced, while refit did not run.
	EventLost Event = "lost"
)

// Entry is a line of the log. Append fills in Seq, Time, Instance, Torn and Prev.
type Entry struct {
	// Seq is 1 for the first entry, and one more for each further one, over all files of a log.
	Seq   int64     `json:"seq"`
	Time  time.Time `json:"time"`
	Event Event     `json:"event"`
	// Instance is the process that writes.
	Instance string `json:"instance,omitempty"`
	// Machine is whose node it is. It is missing where a command is sent without a request for a Machine.
	Machine *Machine `json:"machine,omitempty"`
	// Address is where the node was reached. Where it is not known which one it was, they are all named, with commas between.
	Address string `json:"address,omitempty"`
	// Verb is what is asked of the node: that of a node.Command, or VerbOther.
	Verb string `json:"verb,omitempty"`
	// Request is the SHA-256 of the bytes that are sent, in hex; of VerbOther that of the command line.
	Request string `json:"request,omitempty"`
	// Token is the fencing token. 0: there is none.
	Token int64 `json:"token,omitempty"`
	// Of is the Seq of the entry that tells that the command was sent. Only EventDone has it, as the following.
	Of int64 `json:"of,omitempty"`
	// Outcome is OutcomeOK or the kind of an error.
	Outcome string `json:"outcome,omitempty"`
	// Millis is how long the command took.
	Millis int64 `json:"millis,omitempty"`
	// Note is for people. Only EventOverridden has it: which overrides let the update start, who gave which reason, and which stops they
	// pass; and EventPermitted: who has permitted it.
	Note string `json:"note,omitempty"`
	// Torn is the number of lines before this one that are no entries.
	Torn int `json:"torn,omitempty"`
	// Lost is what was published of the log and is not in it. Only EventLost has it.
	Lost *Lost `json:"lost,omitempty"`
	// Prev is the SHA-256, in hex, of all bytes from the beginning of the entry before to the beginning of this one: of the line
	// before with its newline, and with what an interrupted write has left. Without an entry before it is empty.
	Prev string `json:"prev"`
}

// Lost tells what a log lacks.
type Lost struct {
	// What has happened: LostTruncated, LostReplaced or LostHead.
	What string `json:"what"`
	// Seq and Hash are those of the head that was published.
	Seq  int64  `json:"seq"`
	Hash string `json:"hash"`
}

// What has happened to a log.
const (
	// LostTruncated: it ends before the entry of its head.
	LostTruncated = "truncated"
	// LostReplaced: it has another entry in that place, or the file with it is not there.
	LostReplaced = "replaced"
	// LostHead: the head is not signed by refit's key, so that the log can't be compared with it.
	LostHead = "head not signed"
)

// Machine names a Machine.
type Machine struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// maxLine bounds a line that is read. Those that are written are much shorter: names and addresses have bounds of their own.
const maxLine = 1 << 20

// Head is the end of a chain, for comparison with one that is noted elsewhere.
type Head struct {
	// Seq is that of the last entry, 0 if there is none.
	Seq int64
	// Hash is what the next entry has as its Prev. It is empty if there is no entry.
	Hash string
}

// String returns the head as people note it.
func (h Head) String() string { return fmt.Sprintf("%d %s", h.Seq, h.Hash) }

func hashOf(data []byte) string {
	if len(data) == 0 {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// parse reads a line without its newline.
func parse(line []byte) (Entry, error) {
	var e Entry
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&e); err != nil {
		return e, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return e, errors.New("something is behind the entry")
	}
	// Only what would be written as it stands there is an entry: no two lines mean the same.
	if again, err := json.Marshal(e); err != nil || !bytes.Equal(again, line) {
		return e, errors.New("it is not written as refit writes")
	}
	return e, nil
}

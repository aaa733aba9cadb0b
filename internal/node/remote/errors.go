package remote

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"syscall"
	"unicode"
)

// What went wrong on the way to a node, so that a caller can decide how to go on. Ask in this order: a *HostKeyError first,
// then ErrUnauthorized, then the rest; a Dial that tried several addresses may be several of them.
var (
	// ErrUnreachable means that no connection came about: nothing listens, nothing answers, or not in time. Machines boot
	// and networks break, so trying again later makes sense.
	ErrUnreachable = errors.New("unreachable")

	// ErrUnauthorized means that the host is the right one and refuses us: user, key, or sudo. Trying again makes no sense
	// until somebody changes that, with one exception: for some seconds after a reboot pam_nologin turns people away.
	ErrUnauthorized = errors.New("not authorized")

	// ErrConnectionLost means that the connection ended while a command ran. What became of the command is not known:
	// dial again and ask for the status. Commands of the agent can be repeated.
	ErrConnectionLost = errors.New("connection lost")
)

// Attempt is how one address of a node was tried.
type Attempt struct {
	Address string
	Err     error
}

// DialError says for each address of a node why it did not work.
type DialError struct {
	User     string
	Attempts []Attempt
}

// Error implements error.
func (e *DialError) Error() string {
	tried := make([]string, 0, len(e.Attempts))
	for _, a := range e.Attempts {
		tried = append(tried, fmt.Sprintf("%s: %v", a.Address, a.Err))
	}
	return fmt.Sprintf("can't connect as %q: %s", e.User, strings.Join(tried, "; "))
}

// Unwrap gives the error of each address.
func (e *DialError) Unwrap() []error {
	errs := make([]error, 0, len(e.Attempts))
	for _, a := range e.Attempts {
		errs = append(errs, a.Err)
	}
	return errs
}

// HostKeyError means that a host did not prove to be the one that is meant. Nothing was sent to it, not even a user name.
// Trying again makes no sense until a person has looked at it.
type HostKeyError struct {
	// Host is the address that was dialled, host:port, or the alias that stands for it.
	Host string
	// Got is type and fingerprint of the key that was shown. Empty: none of a kind that we know was offered.
	Got string
	// Want describes what would have been accepted.
	Want string
	// Reason is empty for a plain mismatch.
	Reason string
}

// Error implements error.
func (e *HostKeyError) Error() string {
	got, reason := e.Got, e.Reason
	if got == "" {
		got = "no key of a known type"
	}
	if reason == "" {
		reason = "the machine was made again, or another one answers at this address"
	}
	return fmt.Sprintf("host key of %s refused: it showed %s, expected %s (%s); nothing was sent to it; "+
		"compare with `ssh-keygen -lf` of /etc/ssh/ssh_host_*_key.pub on the machine's console, and correct the record of its host key if it is the right machine",
		e.Host, got, e.Want, reason)
}

// CommandError means that a command ran on the node and did not end well.
type CommandError struct {
	// Status is the exit status; 128 and more for a signal.
	Status int
	// Stderr is the end of what the command wrote to its stderr.
	Stderr string
}

// Error implements error.
func (e *CommandError) Error() string {
	if e.Stderr == "" {
		return fmt.Sprintf("command ended with status %d", e.Status)
	}
	return fmt.Sprintf("command ended with status %d: %s", e.Status, e.Stderr)
}

// PushError means that the agent could not be brought to the node. Nothing was left there that could be run.
type PushError struct {
	// Dir is the agent directory.
	Dir string
	// Reason says why, and what can be done.
	Reason string
	Err    error
}

// Error implements error.
func (e *PushError) Error() string {
	return fmt.Sprintf("can't bring the agent to %s on the node: %s: %v", e.Dir, e.Reason, e.Err)
}

// Unwrap gives the error beneath.
func (e *PushError) Unwrap() error { return e.Err }

// AnswerError means that something ran and that it did not answer as an agent does.
type AnswerError struct {
	Reason string
	// Excerpt is the beginning of what came.
	Excerpt string
}

// Error implements error.
func (e *AnswerError) Error() string {
	if e.Excerpt == "" {
		return "no valid answer of the agent: " + e.Reason
	}
	return fmt.Sprintf("no valid answer of the agent: %s: it begins with %q", e.Reason, e.Excerpt)
}

// printable makes foreign output fit for one line of an error: a node must not be able to write to a person's terminal.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	return strings.Join(strings.Fields(s), " ")
}

// ownEnd is refit's own end of a connection, in an error of package net. Its port is another one each time, and with it a message would be.
var ownEnd = regexp.MustCompile(`\S+->`)

// peerError returns the text of an error of a connection without what is different each time: whether its end is met in connecting,
// reading or writing is chance.
func peerError(err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return "the host ended the connection"
	}
	return ownEnd.ReplaceAllString(err.Error(), "")
}

// begin returns at most n bytes of s, made printable.
func begin(s string, n int) string {
	if len(s) > n {
		return printable(s[:n]) + "…"
	}
	return printable(s)
}

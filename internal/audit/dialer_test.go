package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
)

// theNode is a node and the way to it. It fails with what it is told, one command after another.
type theNode struct {
	fails  []error
	answer string
	ran    int
	during func()
	refuse error
}

func (n *theNode) Dial(context.Context, remote.Target) (remote.Conn, error) {
	if n.refuse != nil {
		return nil, n.refuse
	}
	return n, nil
}

func (n *theNode) Run(_ context.Context, command string, _ io.Reader, stdout io.Writer) error {
	n.ran++
	if n.during != nil {
		n.during()
	}
	if len(n.fails) > 0 {
		err := n.fails[0]
		n.fails = n.fails[1:]
		if err != nil {
			return err
		}
	}
	if stdout != nil {
		answer := n.answer
		if command == "uname -m" {
			answer = "x86_64\n"
		}
		_, _ = io.WriteString(stdout, answer)
	}
	return nil
}

func (n *theNode) Close() error { return nil }

func (n *theNode) Address() remote.Address { return remote.Address{Host: "10.0.0.9"} }

// plain is a connection that does not tell where it goes.
type plain struct{ remote.Conn }

type plainDialer struct{ remote.Dialer }

func (d plainDialer) Dial(ctx context.Context, t remote.Target) (remote.Conn, error) {
	c, err := d.Dialer.Dial(ctx, t)
	return plain{c}, err
}

func entries(t *testing.T, path string) []Entry {
	t.Helper()
	var all []Entry
	for line := range strings.Lines(string(read(t, path))) {
		var e Entry
		require.NoError(t, json.Unmarshal([]byte(line), &e))
		all = append(all, e)
	}
	return all
}

const secret = "c29tZXRoaW5nLXNlY3JldA"

func agents(t *testing.T) *remote.Agents {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "refit-node-linux-amd64"), []byte("agent"), 0o600))
	a, err := remote.LoadAgents(dir)
	require.NoError(t, err)
	return a
}

func TestDialer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	clock := clocktesting.NewFakePassiveClock(start)
	l, err := Open(path, clock, Options{Instance: "refit-0"})
	require.NoError(t, err)
	missing := &remote.CommandError{Status: 127, Stderr: secret}
	n := &theNode{
		fails: []error{missing, nil, nil, nil}, answer: `{"status":{"state":"Idle"}}`,
		during: func() {
			all := entries(t, path)
			require.Equal(t, EventSent, all[len(all)-1].Event, "it is in the log before it runs")
			clock.SetTime(clock.Now().Add(1500 * time.Millisecond))
		},
	}
	c, err := (&Dialer{Dialer: n, Log: l}).Dial(t.Context(), remote.Target{})
	require.NoError(t, err)
	client, err := remote.NewClient(c, remote.ClientOptions{Agents: agents(t)})
	require.NoError(t, err)
	machine := node.MachineID{Namespace: "fleet", Name: "w1", UID: "u1"}
	request := node.Request{
		Machine: machine, Digest: "d1", Token: 42,
		Resources: []node.Resource{{File: &node.File{Path: "/etc/secret", Content: []byte(secret)}}},
	}
	_, err = client.Apply(t.Context(), request)
	require.NoError(t, err)
	_, err = client.Status(t.Context(), node.StatusRequest{Machine: machine})
	require.NoError(t, err)
	_, err = client.Identity(t.Context())
	require.Error(t, err, "that was no answer to it")

	all := entries(t, path)
	var got []string
	for _, e := range all {
		name := "-"
		if e.Machine != nil {
			name = e.Machine.Name
		}
		require.Equal(t, "10.0.0.9:22", e.Address)
		require.Len(t, e.Request, 64)
		got = append(got, fmt.Sprintf("%d %s %s %s %d of %d %s %d", e.Seq, e.Event, e.Verb, name, e.Token, e.Of, e.Outcome, e.Millis))
	}
	require.Equal(t, []string{
		"1 sent apply w1 42 of 0  0", "2 done apply w1 42 of 1 exit 127 1500",
		"3 sent architecture w1 0 of 0  0", "4 done architecture w1 0 of 3 ok 1500",
		"5 sent push w1 0 of 0  0", "6 done push w1 0 of 5 ok 1500",
		"7 sent apply w1 42 of 0  0", "8 done apply w1 42 of 7 ok 1500",
		"9 sent status w1 0 of 0  0", "10 done status w1 0 of 9 ok 1500",
		"11 sent version - 0 of 0  0", "12 done version - 0 of 11 ok 1500",
	}, got)
	request.Protocol = node.Protocol
	bytes, err := json.Marshal(request)
	require.NoError(t, err)
	require.Equal(t, hashOf(bytes), all[0].Request)
	require.Equal(t, hashOf([]byte("agent")), all[4].Request)
	require.NotContains(t, string(read(t, path)), secret)
	report, err := verify(read(t, path))
	require.NoError(t, err)
	require.Empty(t, report.Unfinished)
}

func TestOutcomes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l := open(t, path, Options{})
	c, err := (&Dialer{Dialer: plainDialer{&theNode{fails: []error{
		remote.ErrUnauthorized, fmt.Errorf("%w: %s", remote.ErrConnectionLost, secret), remote.ErrUnreachable, context.DeadlineExceeded,
		context.Canceled, errors.New(secret), &remote.CommandError{Status: 3, Stderr: secret},
	}}}, Log: l}).Dial(t.Context(), remote.Target{Addresses: []remote.Address{{Host: "a"}, {Host: "b", Port: 2}}})
	require.NoError(t, err)
	for range 7 {
		require.Error(t, c.Run(t.Context(), "echo "+secret, nil, nil))
	}
	var got []string
	for _, e := range entries(t, path) {
		require.Equal(t, VerbOther, e.Verb)
		require.Equal(t, "a:22,b:2", e.Address)
		require.Equal(t, hashOf([]byte("echo "+secret)), e.Request)
		if e.Event == EventDone {
			got = append(got, e.Outcome)
		}
	}
	require.Equal(t, []string{
		OutcomeUnauthorized, OutcomeLost, OutcomeUnreachable, OutcomeTimedOut, OutcomeCancelled, OutcomeError, "exit 3",
	}, got)
	require.NotContains(t, string(read(t, path)), secret)
}

func TestWhatCantBeRecordedIsNotSent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l := open(t, path, Options{})
	disk := &faulty{logFile: l.file, room: -1}
	l.file = disk
	n := &theNode{}
	c, err := (&Dialer{Dialer: n, Log: l}).Dial(t.Context(), remote.Target{})
	require.NoError(t, err)
	disk.room = 10
	require.ErrorIs(t, c.Run(t.Context(), "true", nil, nil), ErrNotRecorded)
	require.Zero(t, n.ran)

	disk.room = -1
	n.during = func() { disk.room = 10 }
	require.NoError(t, c.Run(t.Context(), "true", nil, nil), "what the node says is true")
	require.Equal(t, 1, n.ran)
	disk.room = -1
	n.during = nil
	require.NoError(t, c.Run(t.Context(), "true", nil, nil))
	report, err := verify(read(t, path))
	require.NoError(t, err)
	require.Len(t, report.Unfinished, 1)
	require.Equal(t, 2, report.Interrupted)

	n.refuse = remote.ErrUnreachable
	_, err = (&Dialer{Dialer: n, Log: l}).Dial(t.Context(), remote.Target{})
	require.ErrorIs(t, err, remote.ErrUnreachable)
}

package remote_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/capi-refit/refit/internal/node/nodetest"
	"github.com/capi-refit/refit/internal/node/remote"
)

func TestMain(m *testing.M) {
	// A channel that is opened while its connection ends is never answered: see Run.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("golang.org/x/crypto/ssh.(*mux).openChannel"))
}

func start(t *testing.T, o nodetest.Options) *nodetest.Node {
	t.Helper()
	n, err := nodetest.Start(o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, n.Close()) })
	return n
}

func target(t *testing.T, n *nodetest.Node) remote.Target {
	t.Helper()
	to, err := n.Target()
	require.NoError(t, err)
	return to
}

func dial(t *testing.T, to remote.Target) remote.Conn {
	t.Helper()
	c, err := remote.SSHDialer{}.Dial(t.Context(), to)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func newSigner(t *testing.T) ssh.Signer {
	t.Helper()
	key, err := nodetest.NewKey()
	require.NoError(t, err)
	s, err := ssh.ParsePrivateKey(key)
	require.NoError(t, err)
	return s
}

func line(s ssh.Signer) string { return string(ssh.MarshalAuthorizedKey(s.PublicKey())) }

// must is for constructors in tables.
func must(keys remote.HostKeys, err error) remote.HostKeys {
	if err != nil {
		panic(err)
	}
	return keys
}

func TestRun(t *testing.T) {
	c := dial(t, target(t, start(t, nodetest.Options{})))

	var out bytes.Buffer
	require.NoError(t, c.Run(t.Context(), "cat; echo there", strings.NewReader("here, "), &out))
	assert.Equal(t, "here, there\n", out.String())

	var failed *remote.CommandError
	require.ErrorAs(t, c.Run(t.Context(), "echo 'so\033[31m bad' >&2; exit 3", nil, nil), &failed)
	assert.Equal(t, &remote.CommandError{Status: 3, Stderr: "so[31m bad"}, failed)

	require.NoError(t, c.Run(t.Context(), "true", strings.NewReader(strings.Repeat("unread ", 1<<20)), nil),
		"a command may end well without having read its stdin")

	require.ErrorIs(t, c.Run(t.Context(), "yes", nil, full{}), errFull, "a stdout that fails ends the command")
}

var errFull = errors.New("full")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestRunConcurrently(t *testing.T) {
	n := start(t, nodetest.Options{})
	c := dial(t, target(t, n))
	var all sync.WaitGroup
	for range 30 {
		all.Go(func() {
			var out bytes.Buffer
			assert.NoError(t, c.Run(t.Context(), "cat", strings.NewReader("x"), &out))
			assert.Equal(t, "x", out.String())
		})
	}
	all.Wait()
	assert.Equal(t, 1, n.Connections())
}

func TestHostKeys(t *testing.T) {
	ca, otherCA := newSigner(t), newSigner(t)
	plain := start(t, nodetest.Options{})
	certified := start(t, nodetest.Options{HostCA: ca, Principals: []string{"node-1"}})
	unnamed := start(t, nodetest.Options{HostCA: ca})
	other := line(newSigner(t))
	address := func(n *nodetest.Node) string { return knownhosts.Normalize(n.Address().String()) }

	for name, test := range map[string]struct {
		node  *nodetest.Node
		keys  remote.HostKeys
		alias string
		// want is part of the error's message; empty: accepted.
		want string
	}{
		"known_hosts with the key":          {node: plain, keys: must(remote.KnownHosts(plain.KnownHosts()))},
		"known_hosts with a hashed host":    {node: plain, keys: must(remote.KnownHosts([]byte(knownhosts.HashHostname(address(plain)) + " " + plain.HostKey())))},
		"known_hosts with another key":      {node: plain, keys: must(remote.KnownHosts([]byte(address(plain) + " " + other))), want: "known_hosts line 1"},
		"known_hosts without the host":      {node: plain, keys: must(remote.KnownHosts([]byte("elsewhere " + plain.HostKey()))), want: "no line for this host"},
		"known_hosts with another port":     {node: plain, keys: must(remote.KnownHosts([]byte("127.0.0.1 " + plain.HostKey()))), want: "no line for this host"},
		"known_hosts, empty":                {node: plain, keys: must(remote.KnownHosts(nil)), want: "no line for this host"},
		"known_hosts that revokes the key":  {node: plain, keys: must(remote.KnownHosts([]byte(string(plain.KnownHosts()) + "@revoked * " + plain.HostKey()))), want: "line 2 revokes"},
		"known_hosts under an alias":        {node: plain, alias: "node-1", keys: must(remote.KnownHosts([]byte("node-1 " + plain.HostKey())))},
		"known_hosts with an authority":     {node: certified, alias: "node-1", keys: must(remote.KnownHosts([]byte("@cert-authority node-* " + line(ca))))},
		"known_hosts with another one":      {node: certified, alias: "node-1", keys: must(remote.KnownHosts([]byte("@cert-authority * " + line(otherCA)))), want: "no authorities for hostname"},
		"an authority and its certificate":  {node: certified, alias: "node-1", keys: must(remote.HostAuthorities([]byte(line(otherCA) + line(ca))))},
		"an authority for another host":     {node: certified, alias: "node-2", keys: must(remote.HostAuthorities([]byte(line(ca)))), want: `principal "node-2"`},
		"another authority":                 {node: certified, alias: "node-1", keys: must(remote.HostAuthorities([]byte(line(otherCA)))), want: "no authorities"},
		"a certificate that names no host":  {node: unnamed, alias: "node-1", keys: must(remote.HostAuthorities([]byte(line(ca)))), want: "names no host"},
		"an authority, but a plain key":     {node: plain, keys: must(remote.HostAuthorities([]byte(line(ca)))), want: "the host has keys for ssh-ed25519 only"},
		"the recorded key":                  {node: plain, keys: must(remote.TrustOnFirstUse(plain.HostKey(), nil))},
		"another key than the recorded one": {node: plain, keys: must(remote.TrustOnFirstUse(other, nil)), want: "recorded at the first connection"},
	} {
		t.Run(name, func(t *testing.T) {
			to := target(t, test.node)
			to.HostKeys, to.HostKeyAlias = test.keys, test.alias
			before := len(test.node.Commands())
			c, err := remote.SSHDialer{}.Dial(t.Context(), to)
			if test.want == "" {
				require.NoError(t, err)
				require.NoError(t, c.Close())
				return
			}
			var refused *remote.HostKeyError
			require.ErrorAs(t, err, &refused)
			require.ErrorContains(t, err, test.want)
			require.ErrorContains(t, err, "nothing was sent to it")
			assert.NotErrorIs(t, err, remote.ErrUnreachable)
			assert.Len(t, test.node.Commands(), before)
		})
	}
}

func TestHostKeyOfAKnownKind(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	ec, err := ssh.NewSignerFromKey(key)
	require.NoError(t, err)
	n := start(t, nodetest.Options{HostKeys: []ssh.Signer{ec}})

	for name, known := range map[string]string{"ed25519 is known": n.HostKey(), "ecdsa is known": line(ec)} {
		t.Run(name, func(t *testing.T) {
			to := target(t, n)
			to.HostKeys = must(remote.KnownHosts([]byte(knownhosts.Normalize(n.Address().String()) + " " + known)))
			dial(t, to)
		})
	}
}

func TestHostKeysThatCantBeRead(t *testing.T) {
	for name, test := range map[string]struct {
		err  func() error
		want string
	}{
		"known_hosts": {func() error { _, err := remote.KnownHosts([]byte("\nhost ssh-ed25519 nonsense")); return err }, "known_hosts: line 2: "},
		"large known_hosts": {func() error {
			_, err := remote.KnownHosts([]byte("nonsense\n" + strings.Repeat("#\n", 1<<18)))
			return err
		}, "known_hosts: line 1: "},
		"authorities":       {func() error { _, err := remote.HostAuthorities([]byte("nonsense")); return err }, "key 1 can't be read"},
		"no authorities":    {func() error { _, err := remote.HostAuthorities([]byte("\n")); return err }, "there is none"},
		"a recorded key":    {func() error { _, err := remote.TrustOnFirstUse("nonsense", nil); return err }, "can't be read"},
		"nothing to record": {func() error { _, err := remote.TrustOnFirstUse("", nil); return err }, "nothing records"},
		"no host keys known": {func() error {
			_, err := remote.SSHDialer{}.Dial(t.Context(), remote.Target{Addresses: []remote.Address{{}}, User: "x"})
			return err
		}, "always verified"},
	} {
		t.Run(name, func(t *testing.T) { assert.ErrorContains(t, test.err(), test.want) })
	}
}

func TestFirstUse(t *testing.T) {
	n := start(t, nodetest.Options{})
	to := target(t, n)

	var recorded string
	to.HostKeys = must(remote.TrustOnFirstUse("", func(_ context.Context, key string) error {
		assert.Empty(t, n.Commands(), "the key is recorded before anything is run")
		recorded = key
		return nil
	}))
	require.NoError(t, dial(t, to).Run(t.Context(), "true", nil, nil))
	assert.Equal(t, strings.TrimSpace(n.HostKey()), recorded)

	to.HostKeys = must(remote.TrustOnFirstUse(recorded, nil))
	dial(t, to)

	require.NoError(t, n.ChangeHostKey())
	_, err := remote.SSHDialer{}.Dial(t.Context(), to)
	var refused *remote.HostKeyError
	require.ErrorAs(t, err, &refused)

	to.HostKeys = must(remote.TrustOnFirstUse("", func(context.Context, string) error { return errFull }))
	_, err = remote.SSHDialer{}.Dial(t.Context(), to)
	require.ErrorIs(t, err, errFull, "what can't be recorded is not used")
	assert.Len(t, n.Commands(), 1)
}

func TestDialFails(t *testing.T) {
	n := start(t, nodetest.Options{})
	mute := start(t, nodetest.Options{})
	mute.Freeze()
	refusing := start(t, nodetest.Options{})
	refusing.Refuse(true)
	dropping := start(t, nodetest.Options{})
	dropping.DropAfter(900)
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed, err := remote.ParseAddress(nobody.Addr().String())
	require.NoError(t, err)
	require.NoError(t, nobody.Close())
	stranger, err := nodetest.NewKey()
	require.NoError(t, err)

	for name, test := range map[string]struct {
		node   *nodetest.Node
		change func(*remote.Target)
		is     error
		want   string
	}{
		"nothing listens":       {node: n, change: func(to *remote.Target) { to.Addresses = []remote.Address{closed} }, is: remote.ErrUnreachable, want: "refused"},
		"the host resets":       {node: refusing, is: remote.ErrUnreachable},
		"the host hangs up":     {node: dropping, is: remote.ErrUnreachable},
		"the host says nothing": {node: mute, change: func(to *remote.Target) { to.Timeouts.Handshake = 50 * time.Millisecond }, is: remote.ErrUnreachable, want: "within 50ms"},
		"another user":          {node: n, change: func(to *remote.Target) { to.User = "nobody" }, is: remote.ErrUnauthorized, want: `refuses user "nobody"`},
		"another key":           {node: n, change: func(to *remote.Target) { to.PrivateKey = stranger }, is: remote.ErrUnauthorized, want: "authorized_keys"},
		"a key that is none":    {node: n, change: func(to *remote.Target) { to.PrivateKey = []byte("-----BEGIN SECRET-----") }, want: "can't be read"},
		"no key":                {node: n, change: func(to *remote.Target) { to.PrivateKey = nil }, want: "no private key"},
		"no address":            {node: n, change: func(to *remote.Target) { to.Addresses = nil }, want: "no address"},
		"no user":               {node: n, change: func(to *remote.Target) { to.User = "" }, want: "no user"},
	} {
		t.Run(name, func(t *testing.T) {
			to := target(t, test.node)
			if test.change != nil {
				test.change(&to)
			}
			_, err := remote.SSHDialer{}.Dial(t.Context(), to)
			require.ErrorContains(t, err, test.want)
			if test.is != nil {
				require.ErrorIs(t, err, test.is)
			}
			assert.NotContains(t, err.Error(), "SECRET")
			assert.NotContains(t, err.Error(), "PRIVATE")
			assert.Empty(t, test.node.Commands())
		})
	}
}

func TestAllAddressesAreTried(t *testing.T) {
	refusing, stranger, n := start(t, nodetest.Options{}), start(t, nodetest.Options{}), start(t, nodetest.Options{})
	refusing.Refuse(true)
	to := target(t, n)
	to.Addresses = []remote.Address{refusing.Address(), stranger.Address()}

	_, err := remote.SSHDialer{}.Dial(t.Context(), to)
	var all *remote.DialError
	require.ErrorAs(t, err, &all)
	require.Len(t, all.Attempts, 2)
	require.ErrorIs(t, err, remote.ErrUnreachable)
	var refused *remote.HostKeyError
	require.ErrorAs(t, err, &refused)
	require.ErrorContains(t, err, refusing.Address().String())
	require.ErrorContains(t, err, stranger.Address().String())

	to.Addresses = append(to.Addresses, n.Address())
	require.NoError(t, dial(t, to).Run(t.Context(), "true", nil, nil))
}

// A name counts by the address that it leads to.
func TestAddressesAreBounded(t *testing.T) {
	n, jump := start(t, nodetest.Options{}), start(t, nodetest.Options{Name: "jump", Forward: true})
	port := n.Address().Port
	inside, elsewhere := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for name, tc := range map[string]struct {
		host   string
		within []netip.Prefix
		jump   bool
		ok     bool
	}{
		"an address inside":                        {host: "127.0.0.1", within: inside, ok: true},
		"an address outside":                       {host: "127.0.0.1", within: elsewhere},
		"a name that leads inside":                 {host: "localhost", within: inside, ok: true},
		"a name that leads outside":                {host: "localhost", within: elsewhere},
		"an address inside behind a jump host":     {host: "127.0.0.1", within: inside, jump: true, ok: true},
		"an address outside behind a jump host":    {host: "127.0.0.1", within: elsewhere, jump: true},
		"a name that leads inside behind the same": {host: "localhost", within: inside, jump: true},
	} {
		t.Run(name, func(t *testing.T) {
			to := target(t, n)
			to.Addresses, to.Within = []remote.Address{{Host: tc.host, Port: port}}, tc.within
			to.HostKeyAlias = "n1"
			keys, err := remote.TrustOnFirstUse(n.HostKey(), nil)
			require.NoError(t, err)
			to.HostKeys = keys
			if tc.jump {
				through := target(t, jump)
				to.Jump = &through
			}
			before := n.Connections() + jump.Connections()
			c, err := remote.SSHDialer{}.Dial(t.Context(), to)
			if tc.ok {
				require.NoError(t, err)
				require.NoError(t, c.Close())
				return
			}
			require.ErrorContains(t, err, "in none of the ranges")
			require.ErrorIs(t, err, remote.ErrUnreachable)
			require.Equal(t, before, n.Connections()+jump.Connections(), "nothing is connected to")
		})
	}
}

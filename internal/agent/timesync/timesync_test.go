package timesync

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

func on(servers ...string) *node.NTP { return &node.NTP{Enabled: true, Servers: servers} }

func off(servers ...string) *node.NTP { return &node.NTP{Servers: servers} }

func restart(unit string) []disruption.Action {
	return []disruption.Action{{Type: disruption.Restart, Unit: unit}}
}

var none = []disruption.Action{{Type: disruption.None}}

func TestTimesyncd(t *testing.T) {
	n := newNode(t, t.TempDir()).withTimesyncd()
	before := n.snapshot()
	q := ask(nil, on("a.example", "10.0.0.2"))
	a := n.make(q)
	require.Equal(t, restart(timesyncdU), a.Actions)
	require.Equal(t, dropInAbout+"[Time]\nNTP=\nNTP=a.example 10.0.0.2\n", n.Get(dropIn))
	require.NoError(t, n.kind.Undo(context.Background(), change(q, a)))
	require.Equal(t, before, n.snapshot())

	n.make(q)
	require.Equal(t, restart(timesyncdU), n.make(ask(on("a.example", "10.0.0.2"), on("b.example"))).Actions)
	require.Empty(t, n.units.took())

	require.Equal(t, none, n.make(ask(on("b.example"), off("b.example"))).Actions, "what is stopped is not restarted")
	require.Equal(t, []string{"disable " + timesyncdU, "stop " + timesyncdU}, n.units.took())
	require.Equal(t, none, n.make(ask(off("b.example"), on("c.example"))).Actions, "what is started reads its configuration")
	require.Equal(t, []string{"enable " + timesyncdU, "start " + timesyncdU}, n.units.took())

	a = n.make(ask(on("c.example"), nil))
	require.Equal(t, node.Remove, a.Operation)
	require.Equal(t, restart(timesyncdU), a.Actions)
	require.Equal(t, before, n.snapshot(), "the servers are the node's own again")
}

func TestTimesyncdAfterCloudInit(t *testing.T) {
	const laidDown = "# cloud-init generated file\n[Time]\nNTP=a.example b.example \n"
	n := newNode(t, t.TempDir()).withTimesyncd()
	n.Put(cloudInitDropIn, laidDown)
	was := on("a.example", "b.example")
	require.Equal(t, kind.Answer{}, n.plan(ask(was, was)), "as bootstrap laid it down")
	q := ask(was, on("b.example"))
	a := n.make(q)
	require.False(t, a.Conflict)
	require.Equal(t, "(missing)", n.Get(cloudInitDropIn), "a server that is gone is gone")
	require.NoError(t, n.kind.Undo(context.Background(), change(q, a)))
	require.Equal(t, laidDown, n.Get(cloudInitDropIn))
	n.make(ask(was, on()))
	require.Equal(t, "(missing)", n.Get(cloudInitDropIn))

	n.Put(cloudInitDropIn, "[Time]\nNTP=somebodys.example\n")
	require.True(t, n.make(ask(was, on("c.example"))).Conflict)
	require.Equal(t, "[Time]\nNTP=somebodys.example\n", n.Get(cloudInitDropIn), "what refit's file takes the place of stays")
}

func TestTimesyncdEffective(t *testing.T) {
	n := newNode(t, t.TempDir()).withTimesyncd()
	n.Put(timesyncdConf, "[Time]\nNTP=main.example\n[Other]\nNTP=x\n")
	n.Put("/usr/lib/systemd/timesyncd.conf.d/10-vendor.conf", "[Time]\nNTP=vendor.example\n")
	n.Put("/usr/lib/systemd/timesyncd.conf.d/20-hidden.conf", "[Time]\nNTP=hidden.example\n")
	n.Put("/run/systemd/timesyncd.conf.d/30-run.conf", "[Time]\n NTP = run.example main.example\nFallbackNTP=y\n;NTP=\n")
	n.Put("/run/systemd/timesyncd.conf.d/README", "[Time]\nNTP=readme.example\n")
	require.NoError(t, os.MkdirAll(n.Path("/etc/systemd/timesyncd.conf.d"), 0o755))
	require.NoError(t, os.Symlink("/dev/null", n.Path("/etc/systemd/timesyncd.conf.d/20-hidden.conf")))
	c, err := n.kind.readTimesyncd()
	require.NoError(t, err)
	require.Equal(t, []string{"main.example", "vendor.example", "run.example"}, c.effective())
	n.Put("/etc/systemd/timesyncd.conf.d/25-reset.conf", "[Time]\nNTP=\n")
	c, err = n.kind.readTimesyncd()
	require.NoError(t, err)
	require.Equal(t, []string{"run.example", "main.example"}, c.effective())
}

func TestChrony(t *testing.T) {
	for name, tc := range map[string]struct{ unit, conf string }{
		"Debian's":  {"chrony.service", debianConf},
		"Red Hat's": {"chronyd.service", redHatConf},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, t.TempDir()).withChrony(tc.unit, tc.conf).withTimesyncd()
			n.units.States[timesyncdU] = host.UnitState{LoadState: "loaded", ActiveState: "inactive", UnitFileState: "disabled"}
			before := n.snapshot()
			q := ask(nil, on("a.example", "b.example", "a.example"))
			a := n.make(q)
			require.Equal(t, restart(tc.unit), a.Actions, "the rule means the unit that the node has")
			require.Equal(t, "# Welcome to the chrony configuration file.\nconfdir /etc/chrony/conf.d\n\n#refit# pool 2.debian.pool.ntp.org iburst\n"+
				"#refit#  Server  10.0.0.1 prefer\nmakestep 1 3\n"+blockBegin+"\n"+blockAbout+"\nserver a.example iburst\nserver b.example iburst\n"+blockEnd+"\n", n.Get(tc.conf))
			require.NoError(t, n.kind.Undo(context.Background(), change(q, a)))
			require.Equal(t, before, n.snapshot())
			n.make(q)
			n.make(ask(on("a.example", "b.example"), on("c.example")))
			n.make(ask(on("c.example"), nil))
			require.Equal(t, before, n.snapshot(), "the distribution's lines are back exactly")
		})
	}
}

func TestChronyAfterCloudInit(t *testing.T) {
	n := newNode(t, t.TempDir()).withChrony("chrony.service", debianConf)
	n.Put(debianConf, "# servers\nserver a.example iburst\nserver b.example iburst\nmakestep 1 3\n")
	was := on("a.example", "b.example")
	require.Equal(t, kind.Answer{}, n.plan(ask(was, was)), "as bootstrap laid it down")
	q := ask(was, on())
	a := n.plan(q)
	note, err := n.kind.Make(context.Background(), change(q, a))
	require.NoError(t, err)
	require.Contains(t, note, "lists no server any more")
	require.Equal(t, "# servers\nmakestep 1 3\n", n.Get(debianConf))
	require.NoError(t, n.kind.Undo(context.Background(), change(q, a)))
	n.make(ask(was, on("c.example")))
	require.Equal(t, "# servers\nmakestep 1 3\n"+blockOf([]string{"c.example"}), n.Get(debianConf))
}

func TestPlan(t *testing.T) {
	timesyncd := func(n *testNode) { n.withTimesyncd() }
	state := func(edit func(s *host.UnitState)) func(n *testNode) {
		return func(n *testNode) {
			n.withTimesyncd()
			s := running
			edit(&s)
			n.units.States[timesyncdU] = s
		}
	}
	masked := state(func(s *host.UnitState) { s.LoadState, s.ActiveState, s.UnitFileState = "masked", "inactive", "masked" })
	stopped := state(func(s *host.UnitState) { s.ActiveState, s.UnitFileState = "inactive", "disabled" })
	tests := map[string]struct {
		prepare      func(n *testNode)
		was, desired *node.NTP
		rules        func(r disruption.Rules)
		unknown      bool
		blocked      string
		drift        []string
		actions      []disruption.Action // nil for no operation
		switches     bool
	}{
		"nothing is said":                         {prepare: timesyncd},
		"what is there already":                   {prepare: timesyncd, desired: on(), unknown: true},
		"no program":                              {desired: on("a"), blocked: "the node has no program that keeps its time: install"},
		"no program, and none was before":         {was: on("a"), desired: on("a"), drift: []string{"missing"}},
		"no program, and nothing is to keep time": {desired: off()},
		"no program, and the specs are silent":    {was: on("a")},
		"ntpd": {
			prepare: func(n *testNode) { n.Put("/usr/sbin/ntpd", "") }, desired: off(), blocked: "keeps its time by ntpd, which refit does not know",
		},
		"no systemd": {
			prepare: func(n *testNode) { n.withTimesyncd(); n.kind.host.Units = nil }, desired: off(), blocked: "no systemctl",
		},
		"a unit without its program": {
			prepare: func(n *testNode) { n.units.States[timesyncdU] = running }, desired: on("a"), blocked: "no program that keeps its time",
		},
		"a server that is two":            {prepare: timesyncd, desired: on("a b"), blocked: `"a b" is not the name or the address of a server`},
		"a server that is a line":         {prepare: timesyncd, desired: on("a\nb"), blocked: `is not the name or the address of a server`},
		"a server that is an address":     {prepare: timesyncd, desired: on("2001:db8::1", "::1"), actions: restart(timesyncdU)},
		"masked":                          {prepare: masked, desired: on(), blocked: "is masked on the node, so it can't be started: unmask it"},
		"masked, and nothing is to run":   {prepare: masked, desired: off()},
		"stopped by somebody":             {prepare: stopped, was: on(), desired: on(), drift: []string{"enabled", "active"}},
		"stopped by somebody, new server": {prepare: stopped, was: on(), desired: on("a"), drift: []string{"enabled", "active"}, actions: none, switches: true},
		"other servers by somebody":       {prepare: timesyncd, was: on("a"), desired: on("a"), drift: []string{"servers"}},
		"no rule":                         {prepare: timesyncd, desired: on("a"), rules: func(r disruption.Rules) { delete(r.Domains, disruption.NTP) }, blocked: "no rule says what a change of NTP takes"},
		"to be stopped":                   {prepare: timesyncd, was: on(), desired: off(), actions: none, switches: true},
		"a rule of the operator's": {
			prepare: timesyncd, desired: on("a"),
			rules:   func(r disruption.Rules) { r.Domains[disruption.NTP] = []disruption.Action{{Type: disruption.Drain}} },
			actions: []disruption.Action{{Type: disruption.Drain}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, t.TempDir())
			if tc.prepare != nil {
				tc.prepare(n)
			}
			q := ask(tc.was, tc.desired)
			q.Known = !tc.unknown
			if tc.rules != nil {
				tc.rules(q.Rules)
			}
			a := n.plan(q)
			require.Equal(t, tc.drift, a.Drift)
			require.Equal(t, tc.actions, a.Actions)
			require.Equal(t, tc.actions != nil, a.Operation != "")
			require.Equal(t, tc.switches, a.Switches, "the program is started or stopped")
			if tc.blocked == "" {
				require.Empty(t, a.Blocked)
			} else {
				require.Contains(t, a.Blocked, tc.blocked)
			}
		})
	}
}

var lawServers = []string{"a.example", "b.example", "10.0.0.1", "2.debian.pool.ntp.org"}

func drawNTP(t *rapid.T, label string) *node.NTP {
	if rapid.IntRange(0, 4).Draw(t, label+" listed") == 0 {
		return nil
	}
	return &node.NTP{
		Enabled: rapid.Bool().Draw(t, label+" enabled"),
		Servers: rapid.SliceOfN(rapid.SampledFrom(lawServers), 0, 3).Draw(t, label+" servers"),
	}
}

func TestLaws(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		root, err := os.MkdirTemp(dir, "node")
		require.NoError(rt, err)
		n := newNode(rt, root)
		if rapid.Bool().Draw(rt, "chrony") {
			n.withChrony("chrony.service", debianConf)
		} else {
			n.withTimesyncd()
			if rapid.Bool().Draw(rt, "cloud-init's") {
				n.Put(cloudInitDropIn, "[Time]\nNTP=a.example b.example\n")
			}
		}
		n.settle(drawNTP(rt, "first"))
		was, desired := drawNTP(rt, "was"), drawNTP(rt, "desired")
		q := ask(was, desired)
		before := n.snapshot()
		a := n.plan(q)
		require.Equal(rt, a, n.plan(q))
		require.Equal(rt, before, n.snapshot(), "planning changes nothing")
		if a.Operation == "" {
			return
		}
		c := change(q, a)
		n.crash(rt, func() error { _, err := n.kind.Make(context.Background(), c); return err })
		made := n.snapshot()
		_, err = n.kind.Make(context.Background(), c)
		require.NoError(rt, err)
		require.Equal(rt, made, n.snapshot(), "twice is once")
		n.shows(q, a.Drift)
		n.crash(rt, func() error { return n.kind.Undo(context.Background(), c) })
		require.Equal(rt, before, n.snapshot(), "what is undone is as before")
		require.NoError(rt, n.kind.Undo(context.Background(), c))
		require.Equal(rt, before, n.snapshot())
	})
}

// settle has the node show something to begin with.
func (n *testNode) settle(first *node.NTP) {
	q := ask(nil, first)
	if a := n.plan(q); a.Operation != "" {
		_, err := n.kind.Make(context.Background(), change(q, a))
		require.NoError(n.t, err)
	}
}

// crash does something with a systemctl that dies at some call, and again.
func (n *testNode) crash(t *rapid.T, do func() error) {
	n.units.dies, n.units.after = rapid.IntRange(-1, 2).Draw(t, "dies"), rapid.Bool().Draw(t, "after")
	err := do()
	n.units.dies = -1
	if err != nil {
		require.NoError(t, do())
	}
}

func FuzzEditChrony(f *testing.F) {
	f.Add(distribution, uint8(1), uint8(0))
	f.Add(distribution+blockOf([]string{"x"})+"#refit# pool y\n#refit# z\npeer a.example", uint8(2), uint8(1))
	f.Add(blockBegin+"\n"+blockBegin+"\nserver a.example\n"+blockEnd+"\n"+blockEnd, uint8(0), uint8(0))
	f.Add("#refit# #refit# server q", uint8(0), uint8(0))
	f.Fuzz(func(t *testing.T, text string, wanted, gone uint8) {
		g := goal{servers: pick(wanted), gone: pick(gone)}
		once := editChrony(text, g)
		require.Equal(t, once, editChrony(once, g), "the second time changes nothing")
		require.True(t, showsChrony(once, g))
		require.Equal(t, foreign(text, g.gone), foreign(once, g.gone), "no line of others is lost, none is moved")
		back := editChrony(once, goal{gone: g.servers})
		require.Equal(t, foreign(text, slices.Concat(g.gone, g.servers)), foreign(back, nil), "without servers, the lines of others count again")
		require.NotContains(t, fmt.Sprint(markers(back)), blockBegin)
	})
}

func pick(bits uint8) []string {
	var out []string
	for i, s := range lawServers {
		if bits&(1<<i) != 0 {
			out = append(out, s)
		}
	}
	return out
}

// foreign returns the lines that are neither refit's nor of servers that are gone, as they were before refit came.
func foreign(text string, gone []string) []string {
	var out []string
	for _, l := range readChrony(text) {
		if s := serverOf(l.text); !l.block && (s == "" || !slices.Contains(gone, s)) {
			out = append(out, strings.TrimRight(l.text, "\n"))
		}
	}
	return out
}

func markers(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if isMarker(line, blockBegin) || isMarker(line, blockEnd) {
			out = append(out, line)
		}
	}
	return out
}

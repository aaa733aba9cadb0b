package disruption

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func asks(name string, edit func(*Probe)) Probe {
	p := Probe{Name: name, Timeout: DefaultProbeTimeout, Retries: DefaultProbeRetries}
	edit(&p)
	return p
}

func TestProbesAreChecked(t *testing.T) {
	exec := func(argv ...string) func(*Probe) { return func(p *Probe) { p.Exec = argv } }
	get := func(url string) func(*Probe) { return func(p *Probe) { p.HTTP = &HTTPProbe{URL: url} } }
	tcp := func(address string) func(*Probe) { return func(p *Probe) { p.TCP = address } }
	condition := func(kind, status string) func(*Probe) {
		return func(p *Probe) { p.Condition = &ConditionProbe{Type: kind, Status: status} }
	}
	for name, edit := range map[string]func(*Probe){
		"a name":      exec("check"),
		"a path":      exec("/usr/local/bin/check", "", "--all"),
		"http":        get("http://127.0.0.1:8080/healthz?deep=1"),
		"https":       get("https://[::1]/"),
		"a port":      tcp("[::1]:65535"),
		"a unit":      func(p *Probe) { p.Unit = "app.service" },
		"a condition": condition("example.com/DiskOK", "Unknown"),
		"the limits":  func(p *Probe) { p.Unit, p.Timeout, p.Retries = "a.timer", 5*time.Minute, 10 },
	} {
		require.NoError(t, asks("app", edit).Validate(), name)
	}
	for wrong, edit := range map[string]func(*Probe){
		"is not a name":                     func(p *Probe) { p.Name, p.TCP = "App", "a:1" },
		"one of exec, http":                 func(*Probe) {},
		"and no more":                       func(p *Probe) { p.TCP, p.Unit = "a:1", "a.service" },
		"its command is empty":              exec(""),
		"NUL":                               exec("check", "a\x00"),
		"not absolute":                      exec("./check"),
		"not one of http or https":          get("file:///etc/shadow"),
		"a login in it":                     get("http://root:hunter2@127.0.0.1/"),
		"not a host and a port":             tcp("127.0.0.1:0"),
		`":1" is not a host and a port`:     tcp(":1"),
		"not the name of a systemd unit":    func(p *Probe) { p.Unit = "app" },
		"not the type of a condition":       condition("a b", "True"),
		"not the status of a condition":     condition("Ready", "Yes"),
		"at most 5m0s":                      func(p *Probe) { p.Unit, p.Timeout = "a.service", 301*time.Second },
		"more than nothing":                 func(p *Probe) { p.Unit, p.Timeout = "a.service", 0 },
		"can have 0 to 10":                  func(p *Probe) { p.Unit, p.Retries = "a.service", 11 },
		`"etc/ca.pem" is not absolute`:      func(p *Probe) { p.HTTP = &HTTPProbe{URL: "https://a/", CAFile: "etc/ca.pem"} },
		"of at most 63 small letters":       func(p *Probe) { p.Name, p.TCP = strings.Repeat("a", 64), "a:1" },
		"it has -1 retries":                 func(p *Probe) { p.Unit, p.Retries = "a.service", -1 },
		"\"127.0.0.1\" is not a host and a": tcp("127.0.0.1"),
	} {
		p := asks("app", edit)
		err := Rules{Probes: []Probe{p}}.Check()
		require.ErrorContains(t, err, wrong)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

// TestProbesOfPoliciesAreJoined: all count, whatever the order.
func TestProbesOfPoliciesAreJoined(t *testing.T) {
	tcp := func(name, address string, timeout time.Duration, retries int) Probe {
		return Probe{Name: name, TCP: address, Timeout: timeout, Retries: retries}
	}
	a := PolicyRules{Name: "a", Rules: Rules{Probes: []Probe{tcp("same", "h:1", time.Second, 5), tcp("other", "h:2", time.Second, 0)}}}
	b := PolicyRules{Name: "b", Rules: Rules{Probes: []Probe{tcp("same", "h:1", time.Minute, 1), tcp("other", "h:3", time.Second, 0)}}}
	joined := Override(BuiltinRules(), a, b)
	require.Equal(t, joined, Override(BuiltinRules(), b, a))
	require.Len(t, joined.Probes, 3)
	same := tcp("same", "h:1", time.Minute, 5)
	same.From = "a, b"
	require.Equal(t, same, joined.Probes[2], "those that ask the same are one, with the longest time and the most retries")
	require.ElementsMatch(t, []string{"other: connect to h:2 (at most 1s, 0 retries), by a", "other: connect to h:3 (at most 1s, 0 retries), by b"},
		[]string{joined.Probes[0].String(), joined.Probes[1].String()})
	require.NotEqual(t, joined.Probes[0].Key(), joined.Probes[1].Key())

	described := joined.Describe()
	require.Equal(t, Described{"Probe", "same", []string{"connect to h:1 (at most 1m0s, 5 retries)"}, "a, b"}, described[len(described)-1])
}

func TestJoinedProbesShareNothing(t *testing.T) {
	p := PolicyRules{Name: "a", Rules: Rules{Probes: []Probe{
		asks("exec", func(p *Probe) { p.Exec = []string{"check"} }),
		asks("http", func(p *Probe) { p.HTTP = &HTTPProbe{URL: "http://a/"} }),
		asks("node", func(p *Probe) { p.Condition = &ConditionProbe{Type: "Ready", Status: "True"} }),
	}}}
	joined := Override(Rules{}, p)
	p.Rules.Probes[0].Exec[0], p.Rules.Probes[1].HTTP.URL, p.Rules.Probes[2].Condition.Type = "x", "x", "x"
	require.Equal(t, "run check", joined.Probes[0].Asks())
	require.Equal(t, "GET http://a/", joined.Probes[1].Asks())
	require.Equal(t, "the Node has Ready=True", joined.Probes[2].Asks())
}

// TestRulesWithoutProbesAreAsBefore: an agent that knows no probes is sent none.
func TestRulesWithoutProbesAreAsBefore(t *testing.T) {
	data, err := json.Marshal(Override(BuiltinRules(), PolicyRules{Name: "a"}))
	require.NoError(t, err)
	require.NotContains(t, string(data), "probes")
}

func TestWhatAProbeAsksIsReadable(t *testing.T) {
	require.Equal(t, `run /bin/sh -c "test -s /run/a b" ""`, Probe{Exec: []string{"/bin/sh", "-c", "test -s /run/a b", ""}}.Asks())
	require.Equal(t, "app.service is active", Probe{Unit: "app.service"}.Asks())
	require.Equal(t, "app: app.service is active (at most 10s, 1 retry), by fleet",
		Probe{Name: "app", Unit: "app.service", Timeout: 10 * time.Second, Retries: 1, From: "fleet"}.String())
}

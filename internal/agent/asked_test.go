package agent

import (
	"context"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/agent/probe"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// ownProbe has a request carry a probe that runs check, a program of the node.
func ownProbe(req node.Request, argv ...string) node.Request {
	req.Rules.Probes = []disruption.Probe{{Name: "app", Exec: argv, Timeout: time.Minute, Retries: 2, From: "fleet"}}
	return req
}

// newAppNode is a node with a check that fails as long as /etc/kubelet/a says bad, and writes down that it was asked.
func newAppNode(t *testing.T) *testNode {
	t.Helper()
	n := newTestNode(t)
	n.agent.cfg.ActionTimeout = fewLooks
	n.put("/etc/kubelet/a", "good")
	n.program("check", `echo >>"$REFIT_ROOT/asked"; grep -q bad "$REFIT_ROOT/etc/kubelet/a" || exit 0; echo "app says: password=hunter2" >&2; exit 1`)
	return n
}

func TestAProbeOfAPolicyThatFailsAfterTakesTheChangeBack(t *testing.T) {
	n := newAppNode(t)
	status := n.fail(ownProbe(request(1, "/etc/kubelet/a", "bad"), "check"))
	require.Equal(t, "verify", status.Step)
	require.Contains(t, status.Message, "verify failed: probe app worked before and does not now: check: exit status 1: app says: password=[redacted] "+
		"(see the probe of NodeDisruptionPolicy fleet: run check)")
	require.True(t, status.RolledBack, status.Message)
	require.Equal(t, "good", n.content("/etc/kubelet/a"))
	require.Equal(t, "(missing)", n.content("/var/lib/refit/works.json"))
	n.succeed(ownProbe(request(2, "/etc/kubelet/a", "better"), "check"))
}

func TestAProbeOfAPolicyThatFailsBeforeIsNotedOnly(t *testing.T) {
	n := newAppNode(t)
	n.put("/etc/kubelet/a", "bad")
	require.Equal(t, []string{
		"before anything was changed, this did not work on the node, and it is not asked for after it: probe app (check: exit status 1: app says: password=[redacted])",
	}, n.succeed(ownProbe(request(1, "/etc/kubelet/a", "bad still"), "check")).Notes)
	require.Equal(t, "\n\n\n", n.content("/asked"), "two retries")
}

func TestAProbeOfAPolicyIsNotAskedWhereNothingIsDone(t *testing.T) {
	n := newAppNode(t)
	n.succeed(ownProbe(request(1, "/etc/quiet/a", "a"), "check"))
	require.Equal(t, "(missing)", n.content("/asked"))
}

// TestAProbeThatWasCorrectedIsNotOwed: a failed run that was left as it is asks for what worked before it, unless the policy asks otherwise now.
func TestAProbeThatWasCorrectedIsNotOwed(t *testing.T) {
	n := newAppNode(t)
	stop := func(token int64, argv ...string) node.Request {
		req := ownProbe(request(token, "/etc/kubelet/a", "bad"), argv...)
		req.Rules.OnFailure = disruption.StopOnFailure
		return req
	}
	require.Contains(t, n.fail(stop(1, "check")).Message, "probe app worked before")
	require.Contains(t, n.fail(stop(2, "check")).Message, "probe app worked before", "the node is broken as it was")
	n.program("other", "exit 0")
	n.succeed(stop(3, "other"))
}

func TestAProbeOfAPolicyAcrossAReboot(t *testing.T) {
	n := newTestNode(t)
	b := newBootNode(n)
	n.program("check", `! test -e "$REFIT_ROOT/etc/boot/a"`)
	req := ownProbe(request(1, "/etc/boot/a", "a"), "check")
	require.True(t, b.apply(req).Rebooting)
	b.start()
	b.useClock(&impatientAfter{left: 20})
	status := b.apply(req)
	require.Equal(t, node.Failed, status.State, "another process knows what worked")
	require.Contains(t, status.Message, "probe app worked before and does not now")
}

func TestRetriesOfAProbeHoldWhileTheNodeIsWatched(t *testing.T) {
	for retries, want := range map[int]node.RunState{0: node.Failed, 5: node.Succeeded} {
		n := newTestNode(t)
		// Asked before, by verify, and at the beginning of the watch; then it fails twice.
		n.program("check", `echo >>"$REFIT_ROOT/asked"; case $(wc -l <"$REFIT_ROOT/asked") in 5|6) exit 1; esac`)
		req := ownProbe(request(1, "/etc/kubelet/a", "new"), "check")
		req.Rules.Probes[0].Retries, req.Rules.Soak = retries, new(20*time.Second)
		status := n.apply(req)
		require.Equal(t, want, status.State, status.Message)
		if want == node.Failed {
			require.Contains(t, status.Message, "watch the node failed: probe app worked before and does not now")
		}
	}
}

func TestAProbedUnitThatIsStartedAgainFails(t *testing.T) {
	n := newTestNode(t)
	n.startsAgain("app.service")
	req := request(1, "/etc/kubelet/a", "new")
	req.Rules.Soak = new(20 * time.Second)
	req.Rules.Probes = []disruption.Probe{{Name: "app", Unit: "app.service", Timeout: time.Second, From: "fleet"}}
	require.Contains(t, n.fail(req).Message, "watch the node failed: app.service does not stay up")
}

func TestAnAgentRefusesAProbeThatItCanNotAsk(t *testing.T) {
	n := newTestNode(t)
	req := request(1, "/etc/kubelet/a", "a")
	req.Rules.Probes = []disruption.Probe{{Name: "app", Timeout: time.Second}}
	require.Contains(t, n.refuse(req, node.ReasonInvalid), "rules: probe app: it asks for one of exec, http, tcp, unit and nodeCondition, and no more")
}

func TestALongProbeHasItsTime(t *testing.T) {
	n := newTestNode(t)
	own := probe.Own(host.Host{}, []disruption.Probe{{Name: "a", Timeout: 5 * time.Minute, Retries: 1}, {Name: "b", Timeout: time.Minute}})
	require.Equal(t, 11*time.Minute+3*worksLook, n.agent.patience(&work{}, own))
	require.Equal(t, time.Minute, n.agent.patience(&work{}, nil), "those that are built in have the time of an action")
}

// TestNamesAreAskedForWhereAChangeTouchesThem: a name that resolved has to resolve, also after a change that takes no action.
func TestNamesAreAskedForWhereAChangeTouchesThem(t *testing.T) {
	n := newTestNode(t)
	n.agent.cfg.ActionTimeout = fewLooks
	n.put("/etc/resolv.conf", "search corp.example\nnameserver 192.0.2.53\n")
	n.program("getent", `echo >>"$REFIT_ROOT/asked"; grep -q 192.0.2.53 "$REFIT_ROOT/etc/resolv.conf" && echo "192.0.2.1 STREAM $2"`)
	rules := func(req node.Request) node.Request {
		req.Rules.Files = append(slices.Clone(req.Rules.Files), disruption.Rule{Path: "/etc/resolv.conf", Actions: []disruption.Action{{Type: disruption.None}}})
		return req
	}
	n.succeed(rules(request(1, "/etc/kubelet/a", "a")))
	require.Equal(t, "(missing)", n.content("/asked"), "this has nothing to do with names")
	status := n.fail(rules(request(2, "/etc/resolv.conf", "nameserver 192.0.2.66\n")))
	require.Contains(t, status.Message, "resolving corp.example worked before and does not now: it has no address (see getent ahosts corp.example and /etc/resolv.conf on the node)")
	require.True(t, status.RolledBack, status.Message)
	n.succeed(rules(request(3, "/etc/resolv.conf", "nameserver 192.0.2.53\n")))
}

func TestTimeIsAskedForWhereAChangeTouchesIt(t *testing.T) {
	const conf = "/etc/chrony/conf.d/a.conf"
	newTimeNode := func(t *testing.T) *testNode {
		n := newTestNode(t)
		n.agent.cfg.ActionTimeout = fewLooks
		n.program("chronyc", `echo >>"$REFIT_ROOT/asked"; if grep -q good "$REFIT_ROOT`+conf+`"; then echo '^,*,192.0.2.1,2,6,377,1,0,0,0'; else echo '^,?,192.0.2.2,0,6,0,1,0,0,0'; fi`)
		return n
	}
	rules := func(req node.Request) node.Request {
		req.Rules.Files = append(slices.Clone(req.Rules.Files), disruption.Rule{Path: "/etc/chrony", Actions: []disruption.Action{{Type: disruption.Restart, Unit: "chrony.service"}}})
		return req
	}
	n := newTimeNode(t)
	n.put(conf, "good")
	n.succeed(rules(request(1, "/etc/kubelet/a", "a")))
	require.Equal(t, "(missing)", n.content("/asked"), "this has nothing to do with the time")
	status := n.fail(rules(request(2, conf, "server 192.0.2.2")))
	require.Contains(t, status.Message, "a source of the time worked before and does not now: chrony.service reaches none of its sources")
	require.True(t, status.RolledBack, status.Message)

	n = newTimeNode(t)
	n.put(conf, "none")
	require.Contains(t, fmt.Sprint(n.succeed(rules(request(1, conf, "server 192.0.2.2"))).Notes), "a source of the time (chrony.service reaches none of its sources)")

	n = newTimeNode(t)
	n.put(conf, "good, later")
	n.program("chronyc", `echo >>"$REFIT_ROOT/asked"; case $(wc -l <"$REFIT_ROOT/asked") in 2|3|4) echo '^,?,192.0.2.2,0,6,0,1,0,0,0';; *) echo '^,*,192.0.2.1,2,6,1,1,0,0,0'; esac`)
	n.succeed(rules(request(1, conf, "good"))) // a fresh daemon has to reach its source first
}

func TestAServiceThatIsToStopNeedNoSource(t *testing.T) {
	c := node.Change{Ref: node.Ref{Kind: node.NTPKind}, Operation: node.Write}
	w := &work{Plan: node.Plan{Changes: []node.Change{c}}, Others: map[string]kind.Change{}}
	n := newTestNode(t)
	for enabled, asked := range map[bool]bool{true: true, false: false} {
		w.Others[c.String()] = kind.Change{Desired: &node.Resource{NTP: &node.NTP{Enabled: enabled}}}
		has := func(all []probe.Probe) bool {
			return slices.ContainsFunc(all, func(p probe.Probe) bool { return p.Name == probe.TimeSource })
		}
		require.Equal(t, asked, has(n.agent.askedBefore(w)))
		require.Equal(t, asked, has(n.agent.askedAfter(w, []string{probe.TimeSource})))
	}
}

func TestWhatTouchesNamesAndTime(t *testing.T) {
	n := newTestNode(t)
	file := func(p string) *work {
		return &work{Plan: node.Plan{Changes: []node.Change{{Ref: node.FileRef(p), Operation: node.Write}}}}
	}
	for p, want := range map[string][2]bool{
		"/etc/resolv.conf": {true, false}, "/etc/nsswitch.conf": {true, false}, "/etc/hosts": {true, false}, "/etc/netplan/50.yaml": {true, false},
		"/etc/systemd/resolved.conf.d/a.conf": {true, false}, "/etc/systemd/system/systemd-resolved.service.d/a.conf": {true, false},
		"/etc/chrony/chrony.conf": {false, true}, "/etc/systemd/timesyncd.conf": {false, true}, "/etc/systemd/system/chronyd.service.d/a.conf": {false, true},
		"/etc/motd": {}, "/etc/hosts.allow": {}, "/etc/systemd/system/app.service": {},
	} {
		require.Equal(t, want, [2]bool{n.agent.touchesAny(file(p), namePaths, nameUnits), n.agent.touchesTime(file(p))}, p)
	}
	restart := &work{Plan: node.Plan{Actions: []disruption.Action{{Type: disruption.Restart, Unit: "systemd-resolved.service"}}}}
	require.True(t, n.agent.touchesAny(restart, namePaths, nameUnits))
	require.False(t, n.agent.touchesTime(restart))
	unit := &work{Plan: node.Plan{Changes: []node.Change{{Ref: node.Ref{Kind: node.UnitKind, Name: "chrony.service"}}}}}
	require.True(t, n.agent.touchesTime(unit))
}

// TestProbesOfPoliciesReachTheNetworkOfTheNode is that of the wiring: tcp is asked by the agent.
func TestProbesOfPoliciesReachTheNetworkOfTheNode(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	n := newTestNode(t)
	n.agent.cfg.ActionTimeout = fewLooks
	n.units.hook = func(_ context.Context, call string) error {
		if call == "restart kubelet.service" {
			return l.Close()
		}
		return nil
	}
	req := request(1, "/etc/kubelet/a", "a")
	req.Rules.OnFailure = disruption.StopOnFailure
	req.Rules.Probes = []disruption.Probe{{Name: "db", TCP: l.Addr().String(), Timeout: time.Minute, From: "fleet"}}
	require.Contains(t, n.fail(req).Message, "probe db worked before and does not now")
}

// TestUnitsOfProbesStayUpWithoutASoak reloads something else, which nobody soaks.
func TestUnitsOfProbesStayUpWithoutASoak(t *testing.T) {
	for name, again := range map[string]bool{"one that stays up": false, "one that is started again and again": true} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t)
			n.agent.cfg.Settle = 2 * time.Second
			n.units.states["app.service"] = host.UnitState{LoadState: "loaded", ActiveState: "active", Type: "simple", InvocationID: "1"}
			n.useClock(hookClock{func() {
				if again {
					n.units.mu.Lock()
					defer n.units.mu.Unlock()
					n.units.states["app.service"] = host.UnitState{LoadState: "loaded", ActiveState: "active", Type: "simple", InvocationID: "2"}
				}
			}})
			req := request(1, "/etc/crio/a", "a")
			req.Rules.Probes = []disruption.Probe{{Name: "app", Unit: "app.service", Timeout: time.Second, From: "p"}}
			if !again {
				n.succeed(req)
				return
			}
			require.Contains(t, n.fail(req).Message, "app.service does not stay up: systemd had to start it again")
		})
	}
}

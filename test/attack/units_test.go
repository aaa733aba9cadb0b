package attack

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/agent"
	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/nodedisruption"
)

// endingUnits are units by which a policy could end a node without a drain.
var endingUnits = []string{
	"poweroff.target", "reboot.target", "halt.target", "kexec.target", "soft-reboot.target", "rescue.target", "emergency.target",
	"ctrl-alt-del.target", "runlevel0.target", "runlevel6.target", "default.target", "sysinit.target", "suspend.target", "exit.target",
	"systemd-reboot.service", "systemd-poweroff.service", "systemd-halt.service", "systemd-kexec.service", "-.slice", "-.mount",
	"etc.automount", "session-1.scope", "user-0.slice", "fwupd-offline-update.service",
	"REBOOT.target", "refit-0a1b2c3d-7.service",
}

func TestAPolicyThatEndsTheSystemIsNotReady(t *testing.T) {
	for _, unit := range endingUnits {
		for _, action := range []refitv1.DisruptionActionType{refitv1.RestartDisruption, refitv1.ReloadDisruption} {
			t.Run(fmt.Sprintf("%s %s is refused", action, unit), func(t *testing.T) {
				p := &refitv1.NodeDisruptionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "p"}}
				p.Spec.Files = []refitv1.FileDisruption{{Path: "/etc/motd", Disruption: refitv1.Disruption{
					Actions: []refitv1.DisruptionAction{{Type: action, Unit: unit}},
				}}}
				require.ErrorContains(t, nodedisruption.Compile(p).Err, "unit "+unit+" can't be named")
			})
		}
	}
}

func TestNamesThatSystemctlWouldExpandAreNoUnits(t *testing.T) {
	for _, unit := range []string{
		"reboot", "re*.target", "reboo?.target", "[r]eboot.target", "reboot.target ", " reboot.target", "reboot.target\n", "reboot.target\x00",
		"/usr/lib/systemd/system/reboot.target", "../reboot.target", "reboot@.target", "reboot@a.target", "--force", "-f", "reboot.target a.service",
		`reboot\x2etarget`, "", ".target",
	} {
		t.Run(fmt.Sprintf("%q is refused", unit), func(t *testing.T) {
			require.Error(t, disruption.Action{Type: disruption.Restart, Unit: unit}.Validate())
		})
	}
}

// fakeServiceManager is a service manager that notes what it is asked to do.
type fakeServiceManager struct {
	state host.UnitState
	did   []string
}

func (f *fakeServiceManager) System(context.Context) (string, error) { return "running", nil }

func (f *fakeServiceManager) Show(context.Context, string) (host.UnitState, error) {
	return f.state, nil
}

func (f *fakeServiceManager) Do(_ context.Context, verb, unit string) error {
	f.did = append(f.did, strings.TrimSpace(verb+" "+unit))
	return nil
}

type steadyClock struct{}

func (steadyClock) Now() time.Time                                  { return time.Date(2026, 10, 3, 20, 0, 0, 0, time.UTC) }
func (steadyClock) Wait(ctx context.Context, _ time.Duration) error { return ctx.Err() }

// agentWith returns an agent on a directory that stands for a node.
func agentWith(t *testing.T, units *fakeServiceManager) *agent.Agent {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "etc"), 0o755))
	for file, text := range map[string]string{"passwd": "root:x:%d:%d::/root:/bin/sh\n", "group": "root:x:%d:\n"} {
		ids := []any{os.Getuid(), os.Getgid()}
		require.NoError(t, os.WriteFile(filepath.Join(root, "etc", file), fmt.Appendf(nil, text, ids[:strings.Count(text, "%d")]...), 0o644))
	}
	units.state.LoadState, units.state.ActiveState = "loaded", "active"
	a, err := agent.New(agent.Config{
		Root: root, Clock: steadyClock{}, Units: units, NoSync: true, Settle: -1,
		Launcher: agent.LauncherFunc(func(context.Context, string, string) error { return nil }),
	})
	require.NoError(t, err)
	return a
}

// restarting asks for a file of which a change restarts a unit.
func restarting(unit string, resources ...node.Resource) node.Request {
	return node.Request{
		Protocol: node.Protocol, Machine: node.MachineID{Namespace: "fleet", Name: "w1", UID: "u1"}, Digest: "d1", OnConflict: node.Overwrite,
		Resources: append(resources, node.Resource{File: &node.File{Path: "/etc/app", Content: []byte("new"), Owner: "root:root"}}),
		Rules:     disruption.Rules{Files: disruption.Table{{Path: "/etc/app", Actions: []disruption.Action{{Type: disruption.Restart, Unit: unit}}}}},
	}
}

func TestTheNodeRefusesAServerThatEndsIt(t *testing.T) {
	for _, unit := range endingUnits {
		t.Run("rules that restart "+unit+" are refused", func(t *testing.T) {
			units := &fakeServiceManager{}
			_, err := agentWith(t, units).Plan(t.Context(), restarting(unit))
			require.ErrorContains(t, err, "unit "+unit+" can't be named")
			require.Empty(t, units.did)
		})
		t.Run("a resource that starts "+unit+" is refused", func(t *testing.T) {
			units := &fakeServiceManager{}
			_, err := agentWith(t, units).Plan(t.Context(), restarting("app.service", node.Resource{Unit: &node.Unit{Name: unit, Active: new(true)}}))
			require.ErrorContains(t, err, "unit "+unit+" can't be named")
			require.Empty(t, units.did)
		})
	}
	t.Run("a resource that names an option is refused", func(t *testing.T) {
		_, err := agentWith(t, &fakeServiceManager{}).Plan(t.Context(), restarting("app.service", node.Resource{Unit: &node.Unit{Name: "--force", Active: new(true)}}))
		require.ErrorContains(t, err, "is not the name of a systemd unit")
	})
}

func TestTheNodeLooksBehindTheNameOfAUnit(t *testing.T) {
	for name, tc := range map[string]struct {
		state host.UnitState
		want  string
	}{
		"a link that makes it another name of reboot.target": {
			host.UnitState{Names: "reboot.target app.service"}, "app.service is another name of it on this node: unit reboot.target can't be named",
		},
		"a SuccessAction that powers the node off": {host.UnitState{SuccessAction: "poweroff-force"}, "SuccessAction=poweroff-force"},
		"a FailureAction that restarts the node":   {host.UnitState{FailureAction: "reboot"}, "FailureAction=reboot"},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := agentWith(t, &fakeServiceManager{state: tc.state}).Plan(t.Context(), restarting("app.service"))
			require.NoError(t, err)
			require.Len(t, plan.Blocked, 1)
			require.Contains(t, plan.Blocked[0].Reason, tc.want)
		})
	}
	t.Run("a unit that stands for itself is restarted", func(t *testing.T) {
		plan, err := agentWith(t, &fakeServiceManager{state: host.UnitState{Names: "app.service", SuccessAction: "none", FailureAction: "none"}}).Plan(t.Context(), restarting("app.service"))
		require.NoError(t, err)
		require.Empty(t, plan.Blocked)
		require.Contains(t, plan.Actions, disruption.Action{Type: disruption.Restart, Unit: "app.service"})
	})
}

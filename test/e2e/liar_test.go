//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/registered"
	"github.com/capi-refit/refit/test/system"
)

// lieAboutClaims walks through all lies about what can be made in place. To each there is an edit of its own. It is not made by anybody until the
// extension tells the truth: no Machine is replaced, no MachineSet made, no file written, and refit says whose fault that is.
func (u *suite) lieAboutClaims(ctx context.Context, t *testing.T) {
	liar, stop := u.liar(ctx, t)
	defer stop()
	before, sets := u.identities(ctx, t), u.machineSets(ctx, t)
	path := app + "/claims"
	const hook = "CanUpdateMachineSet"
	for i, tc := range []struct {
		lie  system.Lie
		says string
	}{
		{system.Slow, "it has not answered " + hook + " in time"},
		{system.Broken, "it answers " + hook + " with HTTP status 500"},
		{system.Fails, "it answers " + hook + " with Failure: it does not feel like it"},
		{system.Floods, "its answer to " + hook + " is longer than 2097152 bytes"},
		{system.AnotherHook, "DiscoveryResponse"},
		{system.AnotherObject, "its answer to " + hook + " has a patch for another kind of object than was asked about"},
		{system.DoesNotApply, "its patch of machineSet does not apply"},
		{system.OutsideOfSpec, "its patch of machineSet changes something outside of spec.template.spec"},
		{system.DoesNotDiffer, "its patch of machineSet changes spec.version, which does not differ"},
		{system.ChangesItsMind, "it has answered " + hook + " in two ways to the same question"},
	} {
		began := time.Now()
		liar.Claim(tc.lie)
		u.changeBoth(ctx, t, file(path, string(tc.lie)+"\n"), fmt.Sprintf("lie-%d", i))
		u.logs(ctx, t, "Could not judge a change", "UpdaterRegistration liar: it", tc.says)
		require.Equal(t, before, u.identities(ctx, t), tc.lie)
		require.Subset(t, sets, u.machineSets(ctx, t), "%s, and a MachineSet was made", tc.lie)
		u.nowhere(ctx, t, path)
		t.Logf("%s: seen after %s", tc.lie, time.Since(began).Round(time.Second/10))
		if i == 0 {
			u.toldWhereItWaits(ctx, t, tc.says)
		}
	}
	liar.Confess()
	truth := file(path, "truth\n")
	u.changeBoth(ctx, t, truth, "truth")
	u.rollOut(ctx, t, before)
	u.madeByLiar(ctx, t, liar, "truth")
	u.onWorkers(ctx, t, truth)
}

// toldWhereItWaits demands that a person who looks at the MachineDeployment, or at what waits, finds who is to blame, and that nothing is taken for a
// replacement that nobody has decided on. API servers keep of the events about one fault after the other the first.
func (u *suite) toldWhereItWaits(ctx context.Context, t *testing.T, says string) {
	t.Helper()
	u.event(ctx, t, registered.ReasonFault, func(e *corev1.Event) bool {
		return e.InvolvedObject.Kind == "MachineDeployment" && strings.Contains(e.Message, "UpdaterRegistration liar: "+says)
	})
	u.awaitPending(ctx, t, u.Cluster, "MachineDeployment", func(p *refitv1.PendingChange) bool {
		c := meta.FindStatusCondition(p.Status.Conditions, refitv1.ChangePendingCondition)
		return c != nil && strings.Contains(c.Message, "UpdaterRegistration liar: "+says) &&
			!slices.ContainsFunc(p.Status.List, func(m refitv1.PendingMachine) bool { return m.Cause != refitv1.PendingUnknown })
	})
}

// lieAtWork has an extension lie in another way to each Machine that it is to update, be restarted while it is at work, and say that it is done before it
// has done anything.
func (u *suite) lieAtWork(ctx context.Context, t *testing.T) {
	liar, stop := u.liar(ctx, t)
	defer stop()
	before, workers := u.identities(ctx, t), u.workers(ctx, t)
	path := app + "/work"
	lies := []struct {
		lie  system.Lie
		says string
	}{
		{system.Slow, "it has not answered UpdateMachine in time"},
		{system.Broken, "it answers UpdateMachine with HTTP status 500"},
		{system.Fails, "it answers UpdateMachine with Failure: it does not feel like it"},
		{system.Floods, "its answer to UpdateMachine is longer than 2097152 bytes"},
		{system.AnotherHook, `it answers UpdateMachine with "CanUpdateMachineResponse"`},
	}
	require.Len(t, workers, len(lies))
	for i, l := range lies {
		liar.Work(l.lie, workers[i])
	}
	f := file(path, "moved\n")
	u.changeBoth(ctx, t, f, "moved")
	for i, l := range lies {
		u.blamed(ctx, t, workers[i], l.says)
	}
	u.unbegun(ctx, t, before, path)

	liar.Confess()
	liar.Work(system.GoesOn, "")
	for _, name := range workers {
		u.workedOn(ctx, t, name, "UpdaterRegistration liar: moving it to moved")
	}
	require.NoError(t, liar.Stop())
	for _, name := range workers {
		u.blamed(ctx, t, name, "it can't be asked UpdateMachine")
	}
	u.unbegun(ctx, t, before, path)
	liar.Confess()
	require.NoError(t, liar.Start())
	u.rollOut(ctx, t, before)
	u.onWorkers(ctx, t, f)
	u.madeByLiar(ctx, t, liar, "moved")

	// That it has done nothing refit can't see: its part is on no node. It tells who has said so.
	liar.Work(system.DoneAtOnce, "")
	f.Content = "done\n"
	u.changeBoth(ctx, t, f, "done")
	u.rollOut(ctx, t, before)
	u.madeByBoth(ctx, t, f, "done", refitv1.UpdaterRun{Name: "liar", Done: true, Message: "the failure domain is done"})
	u.madeByLiar(ctx, t, liar, "moved")
}

// liar starts an extension that lies, and registers it.
func (u *suite) liar(ctx context.Context, t *testing.T) (liar *system.Liar, stop func()) {
	t.Helper()
	liar, err := u.StartLiar(ctx, t.TempDir())
	require.NoError(t, err)
	unregister := u.register(ctx, t, liar.Registration())
	return liar, func() {
		unregister()
		require.NoError(t, liar.Stop())
	}
}

// blamed waits until the update of a Machine says that the extension is to blame, and that it is asked again.
func (u *suite) blamed(ctx context.Context, t *testing.T, machine, says string) {
	t.Helper()
	mu, err := u.AwaitUpdate(ctx, machine, func(mu *refitv1.MachineUpdate) bool {
		return waiting(refitv1.ReasonUpdater)(mu) && strings.Contains(mu.Status.Message, says)
	})
	require.NoError(t, err)
	require.Contains(t, mu.Status.Message, "UpdaterRegistration liar: "+says)
	u.tellsAtTheMachine(ctx, t, machine, "UpdaterRegistration liar: "+says)
}

// workedOn waits until the update of a Machine is told to be under way.
func (u *suite) workedOn(ctx context.Context, t *testing.T, machine, says string) {
	t.Helper()
	_, err := u.AwaitUpdate(ctx, machine, func(mu *refitv1.MachineUpdate) bool {
		return mu.Status.Phase == refitv1.PhaseApplying && strings.Contains(mu.Status.Message, says)
	})
	require.NoError(t, err)
}

// unbegun demands that the Machines are the same, and that the node's part was not begun.
func (u *suite) unbegun(ctx context.Context, t *testing.T, before any, path string) {
	t.Helper()
	require.Equal(t, before, u.identities(ctx, t))
	u.nowhere(ctx, t, path)
}

// madeByLiar demands that the extension has in truth brought each worker to a failure domain.
func (u *suite) madeByLiar(ctx context.Context, t *testing.T, liar *system.Liar, domain string) {
	t.Helper()
	for _, name := range u.workers(ctx, t) {
		require.Equal(t, domain, liar.Made(name))
	}
}

// besideUnit runs beside the kubelet, and is none of refit's.
const besideUnit = `printf '[Service]\nExecStart=/bin/sleep infinity\n' > /etc/systemd/system/beside.service && systemctl daemon-reload && systemctl start beside.service`

// breakAtWork has a unit of a node fail while the extension is at work there. Its update fails by the extension's name before refit has begun its own part,
// though that disturbs nothing; when the unit runs again another try makes it.
func (u *suite) breakAtWork(ctx context.Context, t *testing.T) {
	u.needsSystemd(t)
	liar, stop := u.liar(ctx, t)
	defer stop()
	before, name := u.identities(ctx, t), u.workers(ctx, t)[0]
	u.exec(ctx, t, name, "sh", "-c", besideUnit)
	liar.Work(system.GoesOn, name)
	f := file(app+"/breaks", "one\n")
	u.changeBoth(ctx, t, f, "broken")
	u.workedOn(ctx, t, name, "UpdaterRegistration liar: moving it to broken")
	u.exec(ctx, t, name, "systemctl", "kill", "--signal=SIGSEGV", "beside.service")
	liar.Confess()
	failed, err := u.AwaitUpdate(ctx, name, hasFailed)
	require.NoError(t, err)
	require.Contains(t, failed.Status.Message, "after the part of UpdaterRegistration liar, which refit can't take back")
	require.Contains(t, failed.Status.Message, "beside.service has failed")
	_, err = u.Fleet.Node(name).ReadFile(ctx, f.Path)
	require.ErrorIs(t, err, fs.ErrNotExist, "refit's own part was begun")

	u.exec(ctx, t, name, "systemctl", "start", "beside.service")
	t.Log(u.refit(ctx, t, "retry", failed.Name))
	u.rollOut(ctx, t, before)
	u.onWorkers(ctx, t, f)
	u.madeByLiar(ctx, t, liar, "broken")
}

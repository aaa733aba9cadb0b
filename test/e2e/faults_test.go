//go:build e2e

package e2e

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/explain"
	"github.com/capi-refit/refit/test/system"
)

func waiting(reason string) func(*refitv1.MachineUpdate) bool {
	return func(mu *refitv1.MachineUpdate) bool {
		return mu.Status.Phase == refitv1.PhaseWaiting && mu.Status.Reason == reason
	}
}

func (u *suite) unreachable(ctx context.Context, t *testing.T) {
	before := u.identities(ctx, t)
	name := u.workers(ctx, t)[0]
	require.NoError(t, u.Fleet.Node(name).Pause(ctx))
	f := file(app+"/unreachable", "at last\n")
	require.NoError(t, u.Cluster.SetWorkerFiles(ctx, f))
	mu, err := u.AwaitUpdate(ctx, name, waiting(refitv1.ReasonUnreachable))
	require.NoError(t, err)
	require.Contains(t, mu.Status.Message, "the node can't be reached")
	u.accessTells(ctx, t, "Unreachable of "+name, func(na *refitv1.NodeAccess) bool {
		return meta.IsStatusConditionFalse(na.Status.Conditions, refitv1.ReadyCondition) && slices.ContainsFunc(na.Status.Unreached, func(m refitv1.UnreachedMachine) bool {
			return m.Name == name && m.Reason == refitv1.ReasonUnreachable && strings.Contains(m.Message, "the node can't be reached")
		})
	})
	require.NoError(t, u.Fleet.Node(name).Unpause(ctx))
	u.rollOut(ctx, t, before)
	require.NoError(t, u.CheckFile(ctx, name, f))
	u.accessTells(ctx, t, "that "+name+" is reached", func(na *refitv1.NodeAccess) bool {
		return ptr.Deref(na.Status.Machines, 0) == int32(len(before)) && ptr.Deref(na.Status.Reachable, 0) > 0 &&
			!slices.ContainsFunc(na.Status.Unreached, func(m refitv1.UnreachedMachine) bool { return m.Name == name })
	})
}

// accessTells waits until the status of the NodeAccess tells something.
func (u *suite) accessTells(ctx context.Context, t *testing.T, what string, tells func(*refitv1.NodeAccess) bool) {
	t.Helper()
	var na refitv1.NodeAccess
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	err := poll(ctx, time.Second, func(ctx context.Context) (bool, error) {
		err := u.Client.Get(ctx, client.ObjectKey{Namespace: u.Cluster.Namespace, Name: system.AccessName}, &na)
		return err == nil && tells(&na), err
	})
	require.NoError(t, err, "waited for %s; the NodeAccess says %+v", what, na.Status)
}

func (u *suite) wrongHostKey(ctx context.Context, t *testing.T) {
	before := u.identities(ctx, t)
	name := u.workers(ctx, t)[0]
	n := u.Fleet.Node(name)
	journal, err := n.Journal(ctx)
	require.NoError(t, err)

	// Each node's name with the key of another one.
	others := u.Fleet.Node(u.workers(ctx, t)[1])
	key := strings.SplitN(string(others.KnownHosts()), " ", 2)[1]
	var wrong []byte
	for _, line := range strings.Split(strings.TrimSpace(string(u.Fleet.KnownHosts())), "\n") {
		if strings.HasPrefix(line, strings.SplitN(string(n.KnownHosts()), " ", 2)[0]+" ") {
			line = strings.SplitN(line, " ", 2)[0] + " " + strings.TrimSpace(key)
		}
		wrong = append(wrong, line+"\n"...)
	}
	require.NoError(t, u.Trust(ctx, wrong))
	f := file(app+"/host-key", "from a friend\n")
	require.NoError(t, u.Cluster.SetWorkerFiles(ctx, f))
	mu, err := u.AwaitUpdate(ctx, name, waiting(refitv1.ReasonHostKey))
	require.NoError(t, err)
	require.Contains(t, mu.Status.Message, "nothing was sent to it")
	u.tellsAtTheMachine(ctx, t, name, "In-place update in progress") // and not a failed one
	after, err := n.Journal(ctx)
	require.NoError(t, err)
	require.Equal(t, journal, after, "the agent was not run")
	_, err = n.ReadFile(ctx, f.Path)
	require.Error(t, err)

	require.NoError(t, u.TrustNodes(ctx))
	// It looks again by itself.
	u.rollOut(ctx, t, before)
	require.NoError(t, u.CheckFile(ctx, name, f))
}

func (u *suite) machine(ctx context.Context, t *testing.T, name string) *clusterv1.Machine {
	t.Helper()
	var machines []clusterv1.Machine
	eventually(ctx, t, func(ctx context.Context) (err error) {
		machines, err = u.Cluster.Machines(ctx)
		return err
	})
	for _, m := range machines {
		if m.Name == name {
			return &m
		}
	}
	require.Fail(t, "no Machine", name)
	return nil
}

func findCondition(m *clusterv1.Machine, kind string) metav1.Condition {
	for _, c := range m.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return metav1.Condition{}
}

func (u *suite) secondChange(ctx context.Context, t *testing.T) {
	u.needsSystemd(t)
	before := u.identities(ctx, t)
	u.slowEverywhere(ctx, t)
	name := u.workers(ctx, t)[0]
	require.NoError(t, u.Cluster.SetWorkerFiles(ctx, slowFile("first")))
	mu, err := u.AwaitUpdate(ctx, name, func(mu *refitv1.MachineUpdate) bool { return mu.Status.Phase == refitv1.PhaseApplying })
	require.NoError(t, err)
	first := mu.Spec.Digest
	second := slowFile("second")
	require.NoError(t, u.Cluster.SetWorkerFiles(ctx, second))
	u.rollOut(ctx, t, before)
	for _, worker := range u.workers(ctx, t) {
		require.NoError(t, u.CheckFile(ctx, worker, second))
	}
	u.onceEach(ctx, t, name, first)
	mu, err = u.Update(ctx, name)
	require.NoError(t, err)
	require.NotEqual(t, first, mu.Spec.Digest)
	u.onceEach(ctx, t, name, mu.Spec.Digest)
}

// killing is held by the scenario that kills replicas: one of the two answers Cluster API, and there is a leader again in the end.
var killing sync.Mutex

func (u *suite) leaderKilled(ctx context.Context, t *testing.T) {
	u.needsSystemd(t)
	killing.Lock()
	defer killing.Unlock()
	before := u.identities(ctx, t)
	u.slowEverywhere(ctx, t)
	name := u.workers(ctx, t)[0]
	release := u.holdSlow(ctx, t, name)
	f := slowFile("survives the leader")
	require.NoError(t, u.Cluster.SetWorkerFiles(ctx, f))
	mu, err := u.AwaitUpdate(ctx, name, func(mu *refitv1.MachineUpdate) bool {
		return mu.Status.Phase == refitv1.PhaseApplying && strings.Contains(mu.Status.Message, "steps")
	})
	require.NoError(t, err)
	leader := u.ReplicaOf(mu)
	require.NotNil(t, leader, "no replica is %s", mu.Status.Instance)
	require.NoError(t, leader.Kill())
	killed := time.Now()
	t.Logf("killed %s in the middle of %q", leader.Name, mu.Status.Step)
	release()

	u.rollOut(ctx, t, before)
	require.NoError(t, u.CheckFile(ctx, name, f))
	after, err := u.Update(ctx, name)
	require.NoError(t, err)
	require.True(t, system.Succeeded(after))
	require.NotEqual(t, mu.Status.Instance, after.Status.Instance, "the other replica has finished it")
	taken := false
	for _, e := range u.onceEach(ctx, t, name, mu.Spec.Digest) {
		// A run that has made all its steps meanwhile needs no more than the login that it waits for.
		login := e.Event == "step-done" && e.Step == "confirm the way in" && e.Time.After(killed)
		taken = taken || login || e.Event == "adopted"
	}
	require.True(t, taken || after.Status.Attempts > 1, "the other replica has taken it up")
	require.NoError(t, u.Restart(ctx, leader))
	require.NoError(t, u.led(ctx), "no replica leads")
}

func (u *suite) unclaimedField(ctx context.Context, t *testing.T) {
	before := u.workers(ctx, t)
	require.NoError(t, u.Cluster.ChangeWorkers(ctx, func(_ *clusterv1.MachineDeployment, c *bootstrapv1.KubeadmConfigSpec) {
		c.PostKubeadmCommands = []string{"true"}
	}))
	told := forecastOf(t, u.explained(ctx, t, "machinedeployment/"+u.workerDeployment(ctx, t).Name), "MachineDeployment")
	require.NotEmpty(t, told.Each)
	for _, m := range told.Each {
		if slices.Contains(before, m.Name) { // one that has come meanwhile is as its owner wants it
			require.Contains(t, []explain.Verdict{explain.Replace, explain.Deleted}, m.Verdict, "%s: %s", m.Name, m.Why)
		}
	}
	u.logs(ctx, t, "Fields can't be changed in place", "spec.postKubeadmCommands of the bootstrapConfig: it takes effect when a machine is made")
	u.metric(ctx, t, `refit_can_update_fields_left_total{field="spec.postKubeadmCommands",hook="CanUpdateMachineSet",object="bootstrapConfig"}`, "[1-9]")
	require.NoError(t, u.Cluster.WaitForRollout(ctx))
	after := u.workers(ctx, t)
	for _, name := range before {
		require.NotContains(t, after, name, "Cluster API has replaced it")
	}
}

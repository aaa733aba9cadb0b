//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/test/lab"
	"github.com/capi-refit/refit/test/system"
)

// newerVersion is the genuine release of Kubernetes to which machines are brought. It is built here, as the one is that they have before.
const newerVersion = lab.NewerMachineVersion

// versions are the scenarios of a new version of Kubernetes. They come after all others, and in this order: machines that are made again
// later would have the programs of the older version, and a kubelet may not be newer than the API server.
var versions = []scenario{
	{"a new version of Kubernetes comes to the control plane in place, though images can't be had, etcd is out, and agent and leaders are killed", (*suite).newControlPlane},
	{"the workers follow, though a disk is full, a checksum is wrong, a kubelet does not start and the agent is killed", (*suite).newWorkers},
}

func (u *suite) newControlPlane(ctx context.Context, t *testing.T) {
	replaced := u.replaceWorker(ctx, t)
	before, boots := u.identities(ctx, t), u.containers(ctx, t)
	machines := u.controlPlanes(ctx, t)
	for _, name := range u.workers(ctx, t) {
		require.NoError(t, u.Lab.LoadKubeProxy(ctx, name, newerVersion))
	}
	releases, source := u.source(ctx, t)
	images := u.pullImages(ctx, t, releases, source, machines)
	served, remove := u.serve(ctx, t)
	observed, end := u.observe(ctx, t, served, machines)

	images.withhold(t, true)
	require.NoError(t, u.Cluster.ChangeControlPlane(ctx, func(kcp *controlplanev1.KubeadmControlPlane) { kcp.Spec.Version = newerVersion }))
	first := u.waitsWith(ctx, t, machines, regexp.MustCompile(`503 Service Unavailable`))
	u.untouched(ctx, t, first)
	// It is too late for Cluster API's controller to wait for etcd: it has asked for the first machine.
	second := machines[(slices.Index(machines, first.Name)+1)%len(machines)]
	var closed *refitv1.ChangeManagementPolicy
	u.withoutEtcd(ctx, t, second, func() {
		images.withhold(t, false)
		first = u.waitsWith(ctx, t, []string{first.Name}, regexp.MustCompile(`etcd has no member to spare: 2 of 3 are healthy`))
		u.notBegun(ctx, t, first) // the API server that is asked about Nodes may be the one without an etcd
		none := restrictive()
		none.Selector.Roles = []refitv1.Role{refitv1.ControlPlaneRole}
		closed = u.policy(ctx, t, "etcd-comes-back", none)
	})
	etcds := u.etcdContainers(ctx, t, machines)

	agentKilled := u.killAgentAtEachStep(ctx, t, second, controlPlaneSteps)
	leadersKilled := u.killLeaderInEachPhase(ctx, t, machines, refitv1.PhaseStaging, refitv1.PhaseDraining, refitv1.PhaseApplying)
	observed.countAnew(ctx, t) // nobody is drained before that
	require.NoError(t, u.Client.Delete(ctx, closed))
	u.rollOut(ctx, t, before)
	end()
	agentKilled()
	leadersKilled()

	u.kubeProxyRolledOut(ctx, t)
	u.controlPlaneRuns(ctx, t, machines)
	images.requirePulled(t, machines)
	u.etcdsFollowed(ctx, t, etcds)
	u.runs(ctx, t, machines, newerVersion)
	u.runs(ctx, t, u.workers(ctx, t), u.older)
	require.Equal(t, boots, u.containers(ctx, t), "no machine was made again or booted")
	for _, name := range machines {
		u.changesNothingMore(ctx, t, name)
	}
	u.nothingLeft(ctx, t, u.workload(ctx, t))
	observed.requireBudgetKept(t)
	served.requireNoneLost(t)
	remove()
	observed.print(ctx, t, fmt.Sprintf("the control plane from %s to %s (%s waited for its images and for etcd; at %s the agent was killed again and again, and leaders at all of them)",
		u.older, newerVersion, first.Name, second))
	t.Logf("to compare with: Cluster API replaced a worker in %s s", seconds(replaced))
}

// brokenKubelet stands in for a kubelet that does not start. Somebody has it tell a secret on its way out.
const brokenKubelet = `#!/bin/sh
if [ "$1" = --version ]; then
	echo Kubernetes ` + newerVersion + `
	exit
fi
echo "this kubelet does not start: password=` + plantedSecret + `" >&2
exit 1
`

func (u *suite) newWorkers(ctx context.Context, t *testing.T) {
	before, boots, workload := u.identities(ctx, t), u.containers(ctx, t), u.workload(ctx, t)
	u.runs(ctx, t, u.controlPlanes(ctx, t), newerVersion)
	machines := u.workers(ctx, t)
	releases, source := u.source(ctx, t)
	served, remove := u.serve(ctx, t)
	observed, end := u.observe(ctx, t, served, machines)

	asked := time.Now()
	u.narrow(ctx, t, machines, true)
	require.NoError(t, u.Cluster.ChangeWorkers(ctx, func(md *clusterv1.MachineDeployment, _ *bootstrapv1.KubeadmConfigSpec) {
		md.Spec.Template.Spec.Version = newerVersion
	}))
	first := u.waitsWith(ctx, t, machines, regexp.MustCompile(`make room|disk is full|no space left`))
	u.untouched(ctx, t, first)

	u.changeSource(ctx, t, source, func(s *refitv1.KubernetesSourceSpec) {
		for i := range s.Versions[0].Checksums {
			s.Versions[0].Checksums[i].SHA256 = strings.Repeat("0", 64)
		}
	})
	u.narrow(ctx, t, machines, false)
	first = u.waitsWith(ctx, t, []string{first.Name}, regexp.MustCompile(`SHA-256 is`))
	u.untouched(ctx, t, first)

	require.NoError(t, releases.Replace(newerVersion, "kubelet", []byte(brokenKubelet)))
	u.changeSource(ctx, t, source, func(s *refitv1.KubernetesSourceSpec) { *s = released(releases) })
	u.brokenKubeletGoesBack(ctx, t, first.Name)
	second := machines[(slices.Index(machines, first.Name)+1)%len(machines)]
	require.Empty(t, u.journalSince(ctx, t, second, asked), "the next machine is not touched")
	u.runs(ctx, t, []string{second}, u.older)

	require.NoError(t, releases.Replace(newerVersion, "kubelet", nil))
	u.changeSource(ctx, t, source, func(s *refitv1.KubernetesSourceSpec) { *s = released(releases) })
	t.Log(u.refit(ctx, t, "retry", first.Name))
	agentKilled := u.killAgentAtEachStep(ctx, t, second, workerSteps)
	u.rollOut(ctx, t, before)
	end()
	agentKilled()

	u.runs(ctx, t, u.machines(ctx, t), newerVersion)
	require.Equal(t, boots, u.containers(ctx, t), "no machine was made again or booted")
	mu, err := u.Update(ctx, second)
	require.NoError(t, err)
	begun := slices.DeleteFunc(u.onceEach(ctx, t, second, mu.Spec.Digest), func(e node.JournalEntry) bool { return !versionStep(e, "step-started") })
	require.Greater(t, len(begun), 2, "what was killed was begun again")
	for _, name := range machines {
		u.changesNothingMore(ctx, t, name)
	}
	u.healthy(ctx, t)
	u.nothingLeft(ctx, t, workload)
	observed.requireBudgetKept(t)
	served.requireNoneLost(t)
	remove()
	observed.print(ctx, t, fmt.Sprintf("the workers from %s to %s (with what went wrong at %s; at %s the agent was killed again and again)", u.older, newerVersion, first.Name, second))
}

// waitsWith waits until the update of one of the machines does not get on, and says so with a text.
func (u *suite) waitsWith(ctx context.Context, t *testing.T, machines []string, text *regexp.Regexp) *refitv1.MachineUpdate {
	t.Helper()
	return u.anyOf(ctx, t, machines, "waits with "+text.String(), func(mu *refitv1.MachineUpdate) bool {
		require.NotEqual(t, refitv1.PhaseFailed, mu.Status.Phase, "%s: %s", mu.Name, mu.Status.Message)
		return mu.Spec.Digest == mu.Status.ObservedDigest && text.MatchString(mu.Status.Message)
	})
}

// anyOf waits for the update of one of the machines: Cluster API chooses which goes first.
func (u *suite) anyOf(ctx context.Context, t *testing.T, machines []string, what string, ok func(*refitv1.MachineUpdate) bool) *refitv1.MachineUpdate {
	t.Helper()
	var found *refitv1.MachineUpdate
	last := map[string]string{}
	err := poll(ctx, 200*time.Millisecond, func(ctx context.Context) (bool, error) {
		for _, name := range machines {
			mu, err := u.Update(ctx, name)
			if err != nil {
				return false, err
			}
			if mu == nil {
				continue
			}
			last[name] = fmt.Sprintf("%s %s: %s", mu.Status.Phase, mu.Status.Reason, mu.Status.Message)
			if ok(mu) {
				found = mu
				return true, nil
			}
		}
		return false, nil
	})
	require.NoError(t, err, "no update %s: %v", what, last)
	return found
}

// untouched demands that an update that waits for its version has done nothing to the node.
func (u *suite) untouched(ctx context.Context, t *testing.T, mu *refitv1.MachineUpdate) {
	t.Helper()
	u.notBegun(ctx, t, mu)
	require.False(t, u.workloadNodes(ctx, t)[mu.Name].Spec.Unschedulable, "the node is not cordoned")
	u.runs(ctx, t, []string{mu.Name}, u.older)
}

func (u *suite) notBegun(ctx context.Context, t *testing.T, mu *refitv1.MachineUpdate) {
	t.Helper()
	t.Logf("%s is %s %s: %s", mu.Name, mu.Status.Phase, mu.Status.Reason, mu.Status.Message)
	require.Nil(t, mu.Status.Drain)
	require.Nil(t, mu.Status.ApplyingSince)
	require.Empty(t, u.journalOf(ctx, t, mu.Name, mu.Spec.Digest), "nothing was done on the node")
}

// brokenKubeletGoesBack demands that the update of a worker fails, and that its old kubelet runs again.
func (u *suite) brokenKubeletGoesBack(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	failed := u.anyOf(ctx, t, []string{name}, "fails", func(mu *refitv1.MachineUpdate) bool { return mu.Status.Phase == refitv1.PhaseFailed })
	t.Logf("%s has failed: %s", name, failed.Status.Message)
	require.Contains(t, failed.Status.Message, "this kubelet does not start", "the last lines of its log are told")
	require.NotContains(t, failed.Status.Message, plantedSecret)
	require.NotNil(t, failed.Status.Slot, "it keeps its slot")
	u.nodeReady(ctx, t, u.workload(ctx, t), name)
	u.runs(ctx, t, []string{name}, u.older)
	u.nothingLeft(ctx, t, u.workload(ctx, t))
}

// versionStep reports whether an entry of a journal is about the step that brings a version.
func versionStep(e node.JournalEntry, event string) bool {
	return e.Event == event && strings.Contains(e.Step, "Kubernetes version")
}

// controlPlaneRuns demands that the control plane is as Cluster API's own controller wants to have it, with the new images.
func (u *suite) controlPlaneRuns(ctx context.Context, t *testing.T, machines []string) {
	t.Helper()
	u.settled(ctx, t, controlplanev1.KubeadmControlPlaneMachinesUpToDateCondition)
	for _, name := range machines {
		for _, component := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
			eventually(ctx, t, func(ctx context.Context) error {
				pod, err := u.staticPod(ctx, component, u.nodeOf(ctx, t, name))
				switch {
				case err != nil:
					return err
				case !strings.HasSuffix(pod.Spec.Containers[0].Image, ":"+newerVersion):
					return fmt.Errorf("%s of %s is %s", component, name, pod.Spec.Containers[0].Image)
				case len(pod.Status.ContainerStatuses) == 0 || !pod.Status.ContainerStatuses[0].Ready:
					return fmt.Errorf("%s of %s is not ready", component, name)
				}
				return nil
			})
		}
	}
}

// changesNothingMore demands that each step was done once, and that a node that is looked at again is found as it is to be.
func (u *suite) changesNothingMore(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	mu, err := u.Update(ctx, name)
	require.NoError(t, err)
	require.True(t, system.Succeeded(mu), "%s: %s", name, mu.Status.Message)
	journal, pid := u.journalOf(ctx, t, name, mu.Spec.Digest), u.mainPID(ctx, t, name, "kubelet.service")
	report := u.refit(ctx, t, "drift", name, "--now", "--timeout", "10m")
	require.NotContains(t, report, "Version", "the version has not drifted")
	require.Equal(t, journal, u.journalOf(ctx, t, name, mu.Spec.Digest))
	require.Equal(t, pid, u.mainPID(ctx, t, name, "kubelet.service"))
	done := map[string]int{}
	for _, e := range journal {
		if versionStep(e, "step-done") {
			done[e.Step]++
		}
	}
	delete(done, "put back Kubernetes version") // of an attempt that failed
	require.Equal(t, map[string]int{"write Kubernetes version": 1}, done, name)
}

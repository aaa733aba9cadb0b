//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/test/lab"
	"github.com/capi-refit/refit/test/system"
)

// The steps at which a node's agent is killed while it brings a version. Those of a control plane's static pods are when the new manifest is
// there.
var (
	controlPlaneSteps = slices.Concat([]string{"staging", "kubeadm-installed", "kubeadm-running"},
		[]string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}, []string{"kubelet-installed", "kubelet-restarted"})
	// The second worker may have staged the version while it waited for the first one.
	workerSteps = []string{"kubeadm-installed", "kubeadm-running", "kubelet-installed", "kubelet-restarted"}
)

// killAtEachStep waits on a node for one step after another, and at each kills what refit runs there, with all that it has started. It
// prints what it has killed.
const killAtEachStep = `
new=$1; shift
inode() { stat --format %i /usr/bin/$1; }
pid() { systemctl show --value --property MainPID kubelet.service; }
units() { systemctl list-units --plain --no-legend --state=active,activating "$1" | cut -d ' ' -f 1; }
kubeadm=$(inode kubeadm) kubelet=$(inode kubelet) pid=$(pid)
reached() {
	case $1 in
	staging) [ -n "$(units 'refit-stage-*.service')" ] ;;
	kubeadm-installed) [ "$(inode kubeadm)" != "$kubeadm" ] ;;
	kubeadm-running) cat /proc/[0-9]*/comm 2>/dev/null | grep --quiet '^kubeadm$' ;;
	kubelet-installed) [ "$(inode kubelet)" != "$kubelet" ] ;;
	kubelet-restarted) [ "$(pid)" != "$pid" ] ;;
	*) grep --quiet "image: .*:$new\$" /etc/kubernetes/manifests/$1.yaml 2>/dev/null ;;
	esac
}
slay() {
	unit=$(units 'refit-*.service' | head -n 1)
	[ -n "$unit" ] && systemctl kill --signal=SIGKILL "$unit" && echo "$1: $unit"
}
for step; do
	until reached $step; do sleep 0.05; done
	until slay $step; do sleep 0.05; done
done
`

// killAgentAtEachStep has the agent of a machine killed at each of the steps by which it comes to the newer version. The function that it
// returns demands that it was.
func (u *suite) killAgentAtEachStep(ctx context.Context, t *testing.T, machine string, steps []string) func() {
	t.Helper()
	running, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	var out []byte
	var failure error
	done.Go(func() {
		command := append([]string{"sh", "-c", killAtEachStep, "sh", newerVersion}, steps...)
		out, failure = u.Fleet.Node(machine).Exec(running, command...)
	})
	t.Cleanup(func() { stop(); done.Wait() })
	return func() {
		t.Helper()
		ended := time.AfterFunc(time.Minute, stop) // the machine is up to date, so there is nothing left to kill
		done.Wait()
		ended.Stop()
		require.NoError(t, failure, "the agent of %s was killed only at\n%s", machine, out)
		var at []string
		for line := range strings.Lines(string(out)) {
			step, _, _ := strings.Cut(line, ":")
			at = append(at, step)
		}
		require.Equal(t, steps, at)
		t.Logf("on %s was killed, at\n%s", machine, out)
	}
}

// killLeaderInEachPhase kills the leader while one of the machines is in a phase, once in each of the phases, and starts it again. The function
// that it returns demands that it was done.
func (u *suite) killLeaderInEachPhase(ctx context.Context, t *testing.T, machines []string, phases ...refitv1.Phase) func() {
	t.Helper()
	looking, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	var killed []string
	var failure error
	done.Go(func() {
		for len(phases) > 0 && failure == nil && looking.Err() == nil {
			time.Sleep(100 * time.Millisecond)
			mu, leader, err := u.killLeaderIn(ctx, machines, phases)
			if failure = err; mu == nil {
				continue
			}
			killed = append(killed, fmt.Sprintf("%s while %s was %s", leader, mu.Name, phaseOf(mu)))
			phases = slices.DeleteFunc(phases, func(p refitv1.Phase) bool { return p == phaseOf(mu) })
		}
	})
	end := func() { stop(); done.Wait() }
	t.Cleanup(end)
	return func() {
		t.Helper()
		end()
		require.NoError(t, failure)
		require.Empty(t, phases, "phases in which nobody was killed; killed were %v", killed)
		t.Logf("killed %s", strings.Join(killed, ", "))
	}
}

// killLeaderIn kills the leader if a machine is in one of the phases now, and starts it again. It returns when there is a leader again, with
// the update of that machine and the name of who was killed.
func (u *suite) killLeaderIn(ctx context.Context, machines []string, phases []refitv1.Phase) (*refitv1.MachineUpdate, string, error) {
	killing.Lock()
	defer killing.Unlock()
	mu := u.inPhase(ctx, machines, phases)
	if mu == nil {
		return nil, "", nil
	}
	leader := u.leader(ctx)
	if leader == nil {
		return nil, "", nil
	}
	err := leader.Kill()
	if err == nil {
		err = u.Restart(ctx, leader)
	}
	if err == nil {
		err = u.led(ctx)
	}
	return mu, leader.Name, err
}

// led waits until there is a leader.
func (u *suite) led(ctx context.Context) error {
	return poll(ctx, 200*time.Millisecond, func(ctx context.Context) (bool, error) { return u.leader(ctx) != nil, nil })
}

// leader returns the replica that is it, if there is one.
func (u *suite) leader(ctx context.Context) *system.Replica {
	for _, r := range u.Replicas {
		metrics, err := r.Metrics(ctx)
		if err == nil && leads.MatchString(metrics) {
			return r
		}
	}
	return nil
}

// leads matches the metrics of a leader.
var leads = regexp.MustCompile(`(?m)^leader_election_master_status\{[^}]*\} 1$`)

// inPhase returns the update of a machine that is in one of the phases now, if there is one.
func (u *suite) inPhase(ctx context.Context, machines []string, phases []refitv1.Phase) *refitv1.MachineUpdate {
	for _, name := range machines {
		mu, err := u.Update(ctx, name)
		if err == nil && mu != nil && mu.Spec.Digest == mu.Status.ObservedDigest && slices.Contains(phases, phaseOf(mu)) {
			return mu
		}
	}
	return nil
}

// withoutEtcd stops the member of etcd on a machine while another function runs, and waits until it is back.
func (u *suite) withoutEtcd(ctx context.Context, t *testing.T, machine string, while func()) {
	t.Helper()
	const manifest, aside = "/etc/kubernetes/manifests/etcd.yaml", "/etc/kubernetes/etcd.yaml"
	n := u.Fleet.Node(machine)
	_, err := n.Exec(ctx, "mv", manifest, aside)
	require.NoError(t, err)
	back := sync.OnceValue(func() error {
		_, err := n.Exec(context.WithoutCancel(ctx), "mv", aside, manifest)
		return err
	})
	t.Cleanup(func() { require.NoError(t, back()) })
	u.awaitEtcd(ctx, t, machine, false)
	while()
	require.NoError(t, back())
	u.awaitEtcd(ctx, t, machine, true)
}

func (u *suite) awaitEtcd(ctx context.Context, t *testing.T, machine string, runs bool) {
	t.Helper()
	require.NoError(t, poll(ctx, 500*time.Millisecond, func(ctx context.Context) (bool, error) {
		id, err := u.etcdContainer(ctx, machine)
		return (id != "") == runs, err
	}), "etcd of %s runs: waited for %t", machine, runs)
}

// etcdContainer is the container of etcd that runs on a machine, or "".
func (u *suite) etcdContainer(ctx context.Context, machine string) (string, error) {
	out, err := u.Fleet.Node(machine).Exec(ctx, "crictl", "ps", "--quiet", "--state", "running", "--name", "^etcd$")
	return strings.TrimSpace(string(out)), err
}

// etcdsFollowed demands that each member of etcd has the image that kubeadm of the newer version names, and was left alone if it had that
// before. The containers are those of before.
func (u *suite) etcdsFollowed(ctx context.Context, t *testing.T, before map[string]string) {
	t.Helper()
	machines := slices.Sorted(maps.Keys(before))
	after := u.etcdContainers(ctx, t, machines)
	for _, name := range machines {
		image := u.exec(ctx, t, name, "sh", "-c", "kubeadm config images list --kubernetes-version "+newerVersion+" | grep /etcd:")
		u.exec(ctx, t, name, "grep", "--quiet", "image: "+image+"$", manifests+"/etcd.yaml")
	}
	if u.older == lab.OlderMachineVersion {
		require.Equal(t, before, after, "etcd has the same image and arguments, and was left alone")
		return
	}
	for name, id := range before {
		require.NotEqual(t, id, after[name], "the etcd of %s was not started again", name)
	}
}

// etcdContainers are the containers of etcd, by Machine.
func (u *suite) etcdContainers(ctx context.Context, t *testing.T, machines []string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range machines {
		id, err := u.etcdContainer(ctx, name)
		require.NoError(t, err)
		require.NotEmpty(t, id, "etcd of %s does not run", name)
		out[name] = id
	}
	return out
}

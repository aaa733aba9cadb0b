//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
)

// course is how the update of one machine goes, as it is seen from outside.
type course struct {
	machine, node string
	phases        []phaseSince
	// cordoned is since when the node takes no pods; zero if it does. disrupted is for how long it took none before that.
	cordoned  time.Time
	disrupted time.Duration
}

type phaseSince struct {
	phase refitv1.Phase
	since time.Time
}

// spent is how long the update was in a phase, all stays together.
func (c *course) spent(phase refitv1.Phase) time.Duration {
	var sum time.Duration
	for i, p := range c.phases {
		if p.phase == phase && i+1 < len(c.phases) {
			sum += c.phases[i+1].since.Sub(p.since)
		}
	}
	return sum
}

// total is how long it took from when it was asked for until it has succeeded.
func (c *course) total() time.Duration {
	if len(c.phases) == 0 {
		return 0
	}
	return c.phases[len(c.phases)-1].since.Sub(c.phases[0].since)
}

// observation looks four times a second how updates go, and whether the service has as many pods as it is to have.
type observation struct {
	suite    *suite
	workload client.Client
	service  *service
	old      map[string]string // the digests before, by machine

	mu      sync.Mutex
	courses []*course
	fewest  int32
	// then is how things stood when the fewest were first seen.
	then string
	// unheard is since when there is a node that nobody has cordoned, and that is taken for lost since its kubelet can't report; zero if there is none.
	// silent is for how long there was one before that.
	unheard time.Time
	silent  time.Duration
}

// observe begins to look at the updates of machines, and at a service. The function that it returns ends that.
func (u *suite) observe(ctx context.Context, t *testing.T, s *service, machines []string) (*observation, func()) {
	t.Helper()
	o := &observation{suite: u, workload: u.workload(ctx, t), service: s, old: map[string]string{}, fewest: servicePods}
	for _, name := range machines {
		o.courses = append(o.courses, &course{machine: name, node: u.nodeOf(ctx, t, name)})
		mu, err := u.Update(ctx, name)
		require.NoError(t, err)
		if mu != nil {
			o.old[name] = mu.Spec.Digest
		}
	}
	looking, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for looking.Err() == nil {
			o.look(looking)
			time.Sleep(250 * time.Millisecond)
		}
	})
	end := func() { stop(); done.Wait() }
	t.Cleanup(end)
	return o, func() {
		end()
		o.look(ctx) // whose last look was cut short
	}
}

// look looks once. What can't be read now is read the next time.
func (o *observation) look(ctx context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var nodes corev1.NodeList
	if err := o.workload.List(ctx, &nodes); err == nil {
		for _, n := range nodes.Items {
			o.sawNode(&n)
		}
	}
	if available, err := o.service.available(ctx, o.workload); err == nil {
		o.hear(nodes.Items, available)
		if o.unheard.IsZero() && available < o.fewest {
			o.fewest, o.then = available, o.service.stands(ctx, o.workload, nodes.Items)
		}
	}
	for _, c := range o.courses {
		mu, err := o.suite.Update(ctx, c.machine)
		if err != nil || mu == nil || mu.Spec.Digest == o.old[c.machine] || mu.Status.Phase == "" {
			continue
		}
		phase := phaseOf(mu)
		if len(c.phases) == 0 || c.phases[len(c.phases)-1].phase != phase {
			c.phases = append(c.phases, phaseSince{phase, time.Now()})
		}
	}
}

// hear notes whether nodes are taken for lost that nobody disturbs: while kubeadm brings another etcd to a control plane, and all the longer if the
// agent is killed meanwhile, its API server hangs, and kubelets stay with it. Their pods run, and count again when the kubelets have said so.
func (o *observation) hear(nodes []corev1.Node, available int32) {
	lost := slices.ContainsFunc(nodes, func(n corev1.Node) bool {
		return !n.Spec.Unschedulable && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown
		})
	})
	switch {
	case lost && o.unheard.IsZero():
		o.unheard = time.Now()
	case !lost && !o.unheard.IsZero() && available >= serviceAvailable:
		o.silent += time.Since(o.unheard)
		o.unheard = time.Time{}
	}
}

// countAnew forgets what the service has lost because a member of etcd was out, when that is over. Kubelets stay with an API server that
// answers nothing, its own and those that are connected to it: for a while their Nodes are taken for lost, with the pods there. That is
// nobody's drain. A Node is taken for lost only some 40 seconds after its kubelet's last word, when etcd may be back: until the kubelet has
// renewed its lease, that the Node is ready says nothing.
func (o *observation) countAnew(ctx context.Context, t *testing.T) {
	t.Helper()
	back := time.Now()
	eventually(ctx, t, func(ctx context.Context) error {
		var nodes corev1.NodeList
		if err := o.workload.List(ctx, &nodes); err != nil {
			return err
		}
		for _, n := range nodes.Items {
			if err := o.heardFrom(ctx, n.Name, back); err != nil {
				return err
			}
			if !ready(n) {
				return fmt.Errorf("node %s is not ready", n.Name)
			}
		}
		available, err := o.service.available(ctx, o.workload)
		if err == nil && available < servicePods {
			err = fmt.Errorf("the service has %d pods", available)
		}
		return err
	})
	o.mu.Lock()
	defer o.mu.Unlock()
	t.Logf("while etcd was out the service had %d pods at the least, and lost %d requests", o.fewest, o.service.forgive())
	o.fewest, o.then = servicePods, ""
}

// heardFrom returns an error if the kubelet of a node has not renewed its lease since then.
func (o *observation) heardFrom(ctx context.Context, node string, then time.Time) error {
	var l coordinationv1.Lease
	if err := o.workload.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: node}, &l); err != nil {
		return err
	}
	if l.Spec.RenewTime == nil || !l.Spec.RenewTime.After(then) {
		return fmt.Errorf("the kubelet of node %s has not renewed its lease", node)
	}
	return nil
}

// phaseOf is the phase of an update. While it waits for a version to be staged, it is the node that works.
func phaseOf(mu *refitv1.MachineUpdate) refitv1.Phase {
	if waiting(refitv1.ReasonStaging)(mu) {
		return refitv1.PhaseStaging
	}
	return mu.Status.Phase
}

func (o *observation) sawNode(n *corev1.Node) {
	for _, c := range o.courses {
		if c.node != n.Name {
			continue
		}
		switch {
		case n.Spec.Unschedulable && c.cordoned.IsZero():
			c.cordoned = time.Now()
		case !n.Spec.Unschedulable && !c.cordoned.IsZero():
			c.disrupted += time.Since(c.cordoned)
			c.cordoned = time.Time{}
		}
	}
}

// requireBudgetKept demands that the service always had its pods, and that each node was cordoned and is not any more.
func (o *observation) requireBudgetKept(t *testing.T) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	require.GreaterOrEqual(t, o.fewest, int32(serviceAvailable), "the PodDisruptionBudget was not kept: %s", o.then)
	require.Zero(t, o.unheard, "a node is still not heard from")
	t.Logf("for %s nodes were taken for lost that nobody disturbed: their kubelets were connected to an API server without its etcd", o.silent.Round(time.Second))
	for _, c := range o.courses {
		require.Positive(t, c.disrupted, "%s was cordoned", c.machine)
		require.Zero(t, c.cordoned, "%s is cordoned", c.machine)
	}
}

// print prints how long each update took.
func (o *observation) print(ctx context.Context, t *testing.T, title string) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "machine\twaiting\tstaging\tdrain\tkubeadm\tkubelet\tapplying\tverifying\tdisrupted\ttotal")
	for _, c := range o.courses {
		kubeadm, kubelet := o.suite.bySteps(ctx, t, c.machine)
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.machine,
			seconds(c.spent(refitv1.PhaseWaiting)), seconds(c.spent(refitv1.PhaseStaging)), seconds(c.spent(refitv1.PhaseDraining)),
			seconds(kubeadm), seconds(kubelet), seconds(c.spent(refitv1.PhaseApplying)), seconds(c.spent(refitv1.PhaseVerifying)),
			seconds(c.disrupted), seconds(c.total()))
	}
	_ = table.Flush() // into memory
	t.Logf("%s, in seconds:\n%s", title, text.String())
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) }

// bySteps is how long a node took until its new kubelet was started, and from there until that was well. The journal tells of the step
// that makes both, and systemd when the kubelet was started, to the second.
func (u *suite) bySteps(ctx context.Context, t *testing.T, machine string) (kubeadm, kubelet time.Duration) {
	t.Helper()
	mu, err := u.Update(ctx, machine)
	require.NoError(t, err)
	var begun, done time.Time
	for _, e := range u.journalOf(ctx, t, machine, mu.Spec.Digest) {
		switch {
		case versionStep(e, "step-started"):
			begun = e.Time // the last time, if it was begun again
		case versionStep(e, "step-done"):
			done = e.Time
		}
	}
	started := u.kubeletStarted(ctx, t, machine)
	if begun.IsZero() || started.Before(begun) {
		return 0, 0
	}
	return started.Sub(begun), done.Sub(started)
}

// journalOf are the entries of a node's journal about a digest.
func (u *suite) journalOf(ctx context.Context, t *testing.T, machine, digest string) []node.JournalEntry {
	t.Helper()
	entries, err := u.Fleet.Node(machine).Journal(ctx)
	require.NoError(t, err)
	return slices.DeleteFunc(entries, func(e node.JournalEntry) bool { return e.Digest != digest })
}

// replaceWorker has Cluster API replace a worker, and returns how long that took.
func (u *suite) replaceWorker(ctx context.Context, t *testing.T) time.Duration {
	t.Helper()
	before, workers := u.identities(ctx, t), u.workers(ctx, t)
	began := time.Now()
	require.NoError(t, u.Client.Delete(ctx, u.machine(ctx, t, workers[0])))
	require.NoError(t, poll(ctx, 200*time.Millisecond, func(ctx context.Context) (bool, error) {
		machines, err := u.Cluster.WorkerMachines(ctx)
		fresh := slices.ContainsFunc(machines, func(m clusterv1.Machine) bool {
			_, old := before[m.Name]
			return !old && meta.IsStatusConditionTrue(m.Status.Conditions, clusterv1.MachineAvailableCondition)
		})
		return fresh && len(machines) == len(workers), err
	}), "no new worker comes")
	took := time.Since(began)
	require.NoError(t, u.Cluster.WaitForRollout(ctx))
	require.NoError(t, poll(ctx, time.Second, func(ctx context.Context) (bool, error) {
		return !slices.ContainsFunc(u.machines(ctx, t), func(name string) bool { return u.Fleet.Node(name) == nil }), nil
	}), "the new machine has no node")
	return took
}

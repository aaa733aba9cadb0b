package machineupdate

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/internal/slots"
	"github.com/capi-refit/refit/internal/tracing"
	"github.com/capi-refit/refit/internal/workload/workloadtest"
)

// What is updated on the node of a walk, by the path that is written.
const (
	restartPath = "/etc/app/a"
	rebootPath  = "/etc/firmware.d/a"
)

// foreignHolder is who steals leases.
const foreignHolder = "NodeHealthCheck-nhc"

// walkRules have each of the paths take a drain.
var walkRules = disruption.Rules{Files: disruption.Table{
	{Path: "/etc/app", Actions: []disruption.Action{{Type: disruption.Drain}, {Type: disruption.Restart, Unit: "app.service"}}},
	{Path: "/etc/firmware.d", Actions: []disruption.Action{{Type: disruption.Reboot}}},
}}

var walkAgents = sync.OnceValues(func() (*remote.Agents, error) {
	dir, err := os.MkdirTemp("", "refit-agents-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.WriteFile(filepath.Join(dir, "refit-node-linux-amd64"), []byte("agent"), 0o600); err != nil {
		return nil, err
	}
	return remote.LoadAgents(dir)
})

// walkWorld is a management cluster, a workload cluster and a machine, on which refit servers make one update.
type walkWorld struct {
	t        require.TestingT
	ctx      context.Context
	base     client.WithWatch // the management cluster's
	workload *workloadtest.Cluster
	node     *walkNode
	clock    *clocktesting.FakeClock
	store    *Store
	path     string
	digest   string // of the specs
	plan     plannedFault
	leader   *process
	starts   int
	drift    refitv1.OnDrift // what becomes of a node that has drifted
	// tracer returns what a process exports traces with. Nil: none does.
	tracer func(instance string) *tracing.Tracer
	// tick is how long each call takes.
	tick time.Duration
	// apiAway is until when the workload cluster's API server does not answer.
	apiAway time.Time
	// stolenFor is for how many more reconciliations the lease is another's.
	stolenFor int

	mu      sync.Mutex
	evicted []types.NamespacedName
	early   []string // what was done to the node although pods were on it, or others not kept off it
}

func newWalkWorld(ctx context.Context, t require.TestingT, root, path string, fault plannedFault) *walkWorld {
	w := &walkWorld{
		t: t, ctx: ctx, path: path, plan: fault, clock: clocktesting.NewFakeClock(managementtest.Start),
	}
	all := objects()
	for _, obj := range all {
		if config, ok := obj.(*bootstrapv1.KubeadmConfig); ok {
			config.Spec.Files[0].Path = path
		}
	}
	w.base = managementtest.NewBuilder(testScheme()).WithObjects(all...).Build()
	w.store = &Store{Client: w.base, Live: w.base, Clock: w.clock}
	w.workload = newWorkload(w.clock)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "web-0", UID: "uid-of-web-0"}}
	pod.Spec.NodeName, pod.Status.Phase = nodeName, corev1.PodRunning
	w.workload.Clientset = kubernetesfake.NewClientset(pod)
	require.NoError(t, w.workload.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web"}}))
	w.node = newWalkNode(t, root, w.clock)
	w.node.reached = w.reached
	w.leader = w.start()
	return w
}

// start starts a refit server.
func (w *walkWorld) start() *process {
	agents, err := walkAgents()
	require.NoError(w.t, err)
	w.starts++
	p := &process{world: w}
	c := p.api(management, w.base)
	var tracer *tracing.Tracer
	if w.tracer != nil {
		tracer = w.tracer(fmt.Sprintf("refit-%d", w.starts))
	}
	policies := changemanagement.NewPolicies(w.base, w.base, w.clock)
	require.NoError(w.t, policies.Prime(w.ctx))
	p.Reconciler = &Reconciler{
		Client: c, Live: c, Disruptions: onDrift(fixedRules(w.t, walkRules), w.drift), OnConflict: node.Overwrite, Dialer: callingDialer{p}, Agents: agents,
		Recorder: &events.FakeRecorder{}, Clock: w.clock, Workloads: p, Observer: lease.NewObserver(10), RebootTimeout: 20 * time.Minute,
		Slots:   &slots.Slots{Client: c, Live: c, Limits: slots.Limits{Workers: intstr.FromString("20%")}, Clock: w.clock},
		Gate:    newGate(c, policies, w.clock),
		Metrics: NewMetrics(prometheus.NewRegistry()), Instance: fmt.Sprintf("refit-%d", w.starts),
		Tracer:  tracer,
		misstep: func(from, to refitv1.Phase) { w.t.Errorf("from %q to %q: there is no such transition", from, to) },
	}
	return p
}

// callingDialer reaches the node by calls of a process.
type callingDialer struct{ p *process }

// Dial implements remote.Dialer.
func (d callingDialer) Dial(context.Context, remote.Target) (remote.Conn, error) {
	c := call{place: machineItself, what: "dial", refused: errRefused}
	if err := d.p.through(c, func(bool) error { return d.p.world.node.dial() }); err != nil {
		return nil, err
	}
	return callingConn(d), nil
}

type callingConn struct{ p *process }

// Close implements remote.Conn.
func (callingConn) Close() error { return nil }

// Run implements remote.Conn.
func (c callingConn) Run(ctx context.Context, _ string, stdin io.Reader, stdout io.Writer) error {
	run := call{place: machineItself, what: verbOf(ctx), writes: true, refused: remote.ErrConnectionLost, lost: remote.ErrConnectionLost}
	return c.p.through(run, func(lost bool) error {
		if lost {
			stdout = io.Discard
		}
		return c.p.world.node.run(ctx, stdin, stdout)
	})
}

// round has the leader reconcile once, and then all others do what they do.
func (w *walkWorld) round() {
	pause := time.Second // as after an error
	result, err := w.leader.Reconcile(w.ctx, ctrl.Request{NamespacedName: key})
	if err == nil {
		pause = max(pause, result.RequeueAfter)
	}
	if w.leader.dead.Load() {
		w.leader = w.start()
	}
	w.kubelet()
	if w.stolenFor--; w.stolenFor == 0 {
		w.setLease(func(spec *coordinationv1.LeaseSpec) {
			spec.HolderIdentity, spec.LeaseDurationSeconds = ptr.To(""), ptr.To[int32](1)
		})
	}
	w.clock.Step(pause)
}

// maxRounds is within how many an update is done, whatever happens once.
const maxRounds = 60

// finish has the update be made, and Cluster API ask until it is told that it is. It returns how many rounds that took. When the
// time in which a node must be back has passed at once, a person asks for another try.
func (w *walkWorld) finish() int {
	var mu *refitv1.MachineUpdate
	for n := range w.patience() {
		if w.ask() {
			return n
		}
		w.round()
		if mu = w.update(); mu.Status.Reason == "NodeNotBack" && w.plan.fault == clockForward {
			mu.Annotations = map[string]string{refitv1.RetryAnnotation: strconv.Itoa(n)}
			require.NoError(w.t, w.base.Update(w.ctx, mu))
		}
	}
	mu = w.update()
	require.Fail(w.t, "the update is not done", "%s: after %d rounds: %s %s: %s", w.plan, w.patience(), mu.Status.Phase, mu.Status.Reason, mu.Status.Message)
	return 0
}

// ask does as Cluster API does.
func (w *walkWorld) ask() bool {
	if w.digest == "" {
		machine, spec, err := readMachine(w.ctx, w.base, key)
		require.NoError(w.t, err)
		s, err := readSpecs(w.ctx, w.base, machine, spec)
		require.NoError(w.t, err)
		w.digest = s.digest
	}
	p, err := w.store.Update(w.ctx, key.Namespace, key.Name, w.digest)
	require.NoError(w.t, err)
	require.NotContains(w.t, p.Message, secretContent)
	return p.Done
}

func (w *walkWorld) update() *refitv1.MachineUpdate {
	var mu refitv1.MachineUpdate
	require.NoError(w.t, w.base.Get(w.ctx, key, &mu))
	return &mu
}

// evict begins the end of a pod. Its kubelet ends it between two rounds.
func (w *walkWorld) evict(namespace, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.evicted = append(w.evicted, types.NamespacedName{Namespace: namespace, Name: name})
}

// kubelet ends pods that were evicted, and reports whether the node is Ready.
func (w *walkWorld) kubelet() {
	for _, pod := range w.evicted {
		require.NoError(w.t, client.IgnoreNotFound(w.workload.Clientset.CoreV1().Pods(pod.Namespace).Delete(w.ctx, pod.Name, metav1.DeleteOptions{})))
	}
	w.evicted = nil
	n := w.theNode()
	status := corev1.ConditionTrue
	if !w.node.up() {
		status = corev1.ConditionFalse
	}
	if workloadtest.IsReady(n) != w.node.up() {
		workloadtest.Ready(status)(n)
		require.NoError(w.t, w.workload.Client.Status().Update(w.ctx, n))
	}
}

func (w *walkWorld) theNode() *corev1.Node {
	var n corev1.Node
	require.NoError(w.t, w.workload.Client.Get(w.ctx, types.NamespacedName{Name: nodeName}, &n))
	return &n
}

var leaseKey = types.NamespacedName{Namespace: lease.DefaultNamespace, Name: lease.Name(nodeName)}

// setLease writes the lease of the node as others do, who do not ask refit.
func (w *walkWorld) setLease(change func(*coordinationv1.LeaseSpec)) {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: leaseKey.Namespace, Name: leaseKey.Name}}
	err := w.workload.Client.Get(w.ctx, leaseKey, l)
	require.NoError(w.t, client.IgnoreNotFound(err))
	change(&l.Spec)
	if err != nil {
		require.NoError(w.t, w.workload.Client.Create(w.ctx, l))
		return
	}
	require.NoError(w.t, w.workload.Client.Update(w.ctx, l))
}

// stealLease has another hold the node's lease until two reconciliations later.
func (w *walkWorld) stealLease() {
	w.stolenFor = 3
	w.setLease(func(spec *coordinationv1.LeaseSpec) {
		at := metav1.NewMicroTime(w.clock.Now())
		spec.HolderIdentity, spec.LeaseDurationSeconds = ptr.To(foreignHolder), ptr.To[int32](600)
		spec.AcquireTime, spec.RenewTime = &at, &at
	})
}

// replaceNode registers the node again, under the same name.
func (w *walkWorld) replaceNode() {
	n := w.theNode()
	require.NoError(w.t, w.workload.Client.Delete(w.ctx, n))
	n = workloadtest.Node(nodeName)
	n.UID = "another-uid"
	require.NoError(w.t, w.workload.Client.Create(w.ctx, n))
}

// rival has a second server reconcile that believes that it leads.
func (w *walkWorld) rival() {
	_, _ = w.start().Reconcile(w.ctx, ctrl.Request{NamespacedName: key}) // what comes of it is seen in the end
}

package machineupdate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/internal/slots"
	"github.com/capi-refit/refit/internal/workload/workloadtest"
)

var key = types.NamespacedName{Namespace: "lab", Name: "m1"}

// secretContent must not be found anywhere but in requests to the node.
const secretContent = "hunter2-the-content"

// fakeNode is a fake of the agent on a node: it answers as it is told.
type fakeNode struct {
	mu      sync.Mutex
	dialErr error
	// loginErr is what a command that asks for nothing meets.
	loginErr error
	// applyErr is what is met instead of an apply.
	applyErr error
	plans    []node.Plan   // one a call; the last one stays
	applied  []node.Status // one for apply, then one a status
	err      *node.AgentError
	drift    []node.DriftReport // one a check; the last one stays
	staged   []node.StageStatus // one a call of stage; the last one stays
	sources  []*node.Source     // of each plan
	calls    []string
	tokens   []int64
	repairs  []bool   // of each plan and apply, whether it is to repair
	kept     []string // by what each connection is kept
	digest   string
	noted    []string // before which updaters it has noted what works
	noteErr  error    // what is met instead of that
	// before is called before a command is answered.
	before func(verb string)
}

// status is about the digest that was applied, unless it says otherwise.
func (f *fakeNode) status() *node.Status {
	s := next(&f.applied)
	s.Digest = cmp.Or(s.Digest, f.digest)
	return &s
}

func (f *fakeNode) Dial(_ context.Context, t remote.Target) (remote.Conn, error) {
	f.mu.Lock()
	f.kept = append(f.kept, t.Kept)
	f.mu.Unlock()
	if f.dialErr != nil {
		return nil, f.dialErr
	}
	return f, nil
}

func (f *fakeNode) Close() error { return nil }

func (f *fakeNode) Run(ctx context.Context, command string, stdin io.Reader, stdout io.Writer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	verb := verbOf(ctx)
	if verb == "apply" {
		input, err := io.ReadAll(stdin)
		if err != nil {
			return err
		}
		var noted struct{ NoteFor string }
		if stdin = bytes.NewReader(input); json.Unmarshal(input, &noted) == nil && noted.NoteFor != "" {
			verb = "note"
			f.noted = append(f.noted, noted.NoteFor)
		}
	}
	f.calls = append(f.calls, verb)
	if f.before != nil {
		f.before(verb)
	}
	if f.err != nil {
		return json.NewEncoder(stdout).Encode(node.Answer{Error: f.err})
	}
	switch verb {
	case remote.VerbLogin:
		words := strings.Fields(command) // of which it has to print the last two as one
		_, _ = fmt.Fprintln(stdout, strings.Trim(words[len(words)-2], "'")+strings.Trim(words[len(words)-1], "'"))
		return f.loginErr
	case "drift":
		return json.NewEncoder(stdout).Encode(node.Answer{Drift: ptr.To(next(&f.drift))})
	case "plan":
		var r node.Request
		if err := json.NewDecoder(stdin).Decode(&r); err != nil {
			return err
		}
		f.repairs, f.sources = append(f.repairs, r.Repair), append(f.sources, r.Source)
		return json.NewEncoder(stdout).Encode(node.Answer{Plan: ptr.To(next(&f.plans))})
	case "apply":
		if f.applyErr != nil {
			return f.applyErr
		}
		var r node.Request
		if err := json.NewDecoder(stdin).Decode(&r); err != nil {
			return err
		}
		f.tokens, f.digest, f.repairs = append(f.tokens, r.Token), r.Digest, append(f.repairs, r.Repair)
		return json.NewEncoder(stdout).Encode(node.Answer{Status: f.status()})
	case "note":
		if f.noteErr != nil {
			return f.noteErr
		}
		return json.NewEncoder(stdout).Encode(node.Answer{Status: &node.Status{State: node.Idle}})
	case "stage":
		return json.NewEncoder(stdout).Encode(node.Answer{Stage: ptr.To(next(&f.staged))})
	case "status":
		return json.NewEncoder(stdout).Encode(node.Answer{Status: f.status()})
	default:
		return fmt.Errorf("the fake does not know %q", command)
	}
}

func next[T any](list *[]T) T {
	var out T
	if len(*list) == 0 {
		return out
	}
	out = (*list)[0]
	if len(*list) > 1 {
		*list = (*list)[1:]
	}
	return out
}

// world is a management cluster, a fake of one, with one machine that is to be updated.
type world struct {
	client.Client
	t          *testing.T
	node       *fakeNode
	store      *Store
	reconciler *Reconciler
	clock      *clocktesting.FakeClock
	workload   *workloadtest.Cluster
	events     *events.FakeRecorder
	policies   *changemanagement.Policies
}

// readPolicies has the gate know the policies as they are now.
func (w *world) readPolicies() { require.NoError(w.t, w.policies.Prime(w.t.Context())) }

// testScheme has all kinds that are in a management cluster.
var testScheme = sync.OnceValue(func() *runtime.Scheme { return managementtest.NewScheme() })

func newWorld(t *testing.T) *world {
	c := managementtest.NewBuilder(testScheme()).WithObjects(objects()...).Build()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "refit-node-linux-amd64"), []byte("agent"), 0o600))
	agents, err := remote.LoadAgents(dir)
	require.NoError(t, err)
	allowed, err := disruption.AllowPaths([]string{"/etc/app"})
	require.NoError(t, err)
	rules := disruption.Rules{Files: allowed}
	w := &world{
		Client: c, t: t, node: &fakeNode{},
		clock: clocktesting.NewFakeClock(managementtest.Start), events: events.NewFakeRecorder(100),
	}
	w.store = &Store{Client: c, Live: c, Clock: w.clock}
	w.workload = newWorkload(w.clock)
	w.reconciler = &Reconciler{
		Workloads: w.workload, Observer: lease.NewObserver(10), RebootTimeout: 20 * time.Minute,
		Slots:  &slots.Slots{Client: c, Live: c, Limits: slots.Limits{Workers: intstr.FromString("20%")}, Clock: w.clock},
		Client: c, Live: c, Disruptions: fixedRules(t, rules), OnConflict: node.Overwrite, Dialer: w.node, Agents: agents,
		Recorder: w.events, Clock: w.clock, Metrics: NewMetrics(prometheus.NewRegistry()), Instance: "refit-0",
		misstep: func(from, to refitv1.Phase) { t.Errorf("from %q to %q: there is no such transition", from, to) },
		enters:  entered.note,
	}
	w.policies = changemanagement.NewPolicies(c, c, w.clock)
	w.reconciler.Gate = newGate(c, w.policies, w.clock)
	w.readPolicies()
	return w
}

func newGate(c client.Client, policies *changemanagement.Policies, now clock.PassiveClock) *changemanagement.Gate {
	return &changemanagement.Gate{
		Policies: policies, Client: c, Live: c, Clock: now, Metrics: changemanagement.NewMetrics(prometheus.NewRegistry()),
		Waits: &changemanagement.Waits{Client: c, Clock: now},
	}
}

func objects() []client.Object {
	all := managementtest.Updatable(key, nodeName, bootstrapv1.File{Path: "/etc/app/a", Content: secretContent + "\n"})
	for _, obj := range all {
		if m, ok := obj.(*clusterv1.Machine); ok {
			m.Annotations, m.Spec.Version = marks(), "v1.36.0"
		}
	}
	return all
}

// specs are the machine's as they are now.
func (w *world) specs() *specs {
	machine, spec, err := readMachine(w.t.Context(), w, key)
	require.NoError(w.t, err)
	s, err := readSpecs(w.t.Context(), w, machine, spec)
	require.NoError(w.t, err)
	return s
}

// digest is that of the machine's specs as they are now.
func (w *world) digest() string {
	return w.specs().digest
}

// ask does as Cluster API does: it asks for the specs as they are now.
func (w *world) ask() (done bool) {
	p, err := w.store.Update(w.t.Context(), key.Namespace, key.Name, w.digest())
	require.NoError(w.t, err)
	require.NotContains(w.t, p.Message, secretContent)
	return p.Done
}

func (w *world) reconcile() ctrl.Result {
	result, err := w.reconciler.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: key})
	require.NoError(w.t, err)
	return result
}

func (w *world) update() *refitv1.MachineUpdate {
	var mu refitv1.MachineUpdate
	require.NoError(w.t, w.Get(w.t.Context(), key, &mu))
	text, err := json.Marshal(mu)
	require.NoError(w.t, err)
	require.NotContains(w.t, string(text), secretContent)
	return &mu
}

// change edits the machine's bootstrap config.
func (w *world) change() {
	var config bootstrapv1.KubeadmConfig
	require.NoError(w.t, w.Get(w.t.Context(), key, &config))
	config.Spec.Files[0].Content = "two\n"
	require.NoError(w.t, w.Update(w.t.Context(), &config))
}

var (
	errRefused = errors.Join(remote.ErrUnreachable, errors.New("192.0.2.1:22: connection refused"))
	writeA     = node.Plan{Changes: []node.Change{{Ref: node.FileRef("/etc/app/a"), Operation: node.Write}}, Actions: []disruption.Action{{Type: disruption.None}}}
	succeeded  = node.Status{State: node.Succeeded, Changes: writeA.Changes, Actions: writeA.Actions}
)

func secret(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: name}}
}

// machine edits the machine. Annotations are beside those by which Cluster API asks for the update.
func (w *world) machine(change func(*clusterv1.Machine)) {
	var m clusterv1.Machine
	require.NoError(w.t, w.Get(w.t.Context(), key, &m))
	already := asked(&m)
	change(&m)
	if already {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, clusterv1.UpdateInProgressAnnotation, "")
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, runtimev1.PendingHooksAnnotation, updateMachineHook)
	}
	require.NoError(w.t, w.Update(w.t.Context(), &m))
}

// marks are the annotations of a Machine that Cluster API has updated in place.
func marks() map[string]string {
	return map[string]string{clusterv1.UpdateInProgressAnnotation: "", runtimev1.PendingHooksAnnotation: updateMachineHook}
}

// mark has Cluster API ask for the update of the machine, or no longer ask.
func (w *world) mark(asks bool) {
	var m clusterv1.Machine
	require.NoError(w.t, w.Get(w.t.Context(), key, &m))
	for name, value := range marks() {
		if asks {
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, name, value)
		} else {
			delete(m.Annotations, name)
		}
	}
	require.NoError(w.t, w.Update(w.t.Context(), &m))
}

package changemanagement

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/health"
	"github.com/capi-refit/refit/schedule"
)

// recount is what counts in a namespace as it is found without what was known before: each update is read, and each is looked at for each question.
type recount struct {
	gate    *Gate
	now     time.Time
	records []*record
	ledgers map[types.NamespacedName]ledger
}

// anew returns a gate that has kept nothing, and knows what the cache can't tell.
func (g *Gate) anew() *Gate {
	out := &Gate{
		Policies: g.Policies, Client: g.Client, Informers: g.Informers, Live: g.Live, Clock: g.Clock, Metrics: g.Metrics, Waits: g.Waits, Health: g.Health,
		admitted: maps.Clone(g.admitted), primed: maps.Clone(g.primed), future: maps.Clone(g.future),
	}
	out.departed.all, out.soaks.all = maps.Clone(g.departed.all), maps.Clone(g.soaks.all)
	return out
}

// recount counts anew.
func (g *Gate) recount(t *testing.T, namespace string) *recount {
	t.Helper()
	require.NoError(t, g.prime(t.Context(), namespace))
	c := &recount{gate: g, now: g.Clock.Now(), ledgers: map[types.NamespacedName]ledger{}}
	var list refitv1.MachineUpdateList
	require.NoError(t, g.Client.List(t.Context(), &list, client.InNamespace(namespace)))
	for i := range list.Items {
		mu := list.Items[i].Restored()
		var m clusterv1.Machine
		err := g.Client.Get(t.Context(), client.ObjectKeyFromObject(mu), &m)
		var r *record
		if err == nil {
			r, err = g.recordOf(t.Context(), c.now, &m, mu, g.Policies.Select)
		}
		require.NoError(t, client.IgnoreNotFound(err))
		if err != nil {
			continue
		}
		if r.waiting {
			full, err := g.record(t.Context(), &m, mu)
			require.NoError(t, err)
			r.change = full.change
		}
		c.records = append(c.records, r)
	}
	policies, err := g.Policies.In(namespace)
	require.NoError(t, err)
	for _, p := range policies {
		if !p.limited() || p.Namespaces != nil {
			continue
		}
		var policy refitv1.ChangeManagementPolicy
		require.NoError(t, client.IgnoreNotFound(g.Client.Get(t.Context(), p.NamespacedName, &policy)))
		policy.Namespace, policy.Name = p.Namespace, p.Name
		l := ledgerOf(c.now, p.since(c.now), &policy, g.departed.of(&policy))
		l.soaked(c.now, &policy, g.soaks.of(policy.UID))
		c.ledgers[p.NamespacedName] = l
	}
	return c
}

// count counts what is under a policy, but for the update that asks.
func (c *recount) count(p *Policy, self types.NamespacedName, since time.Time) tally {
	var t tally
	known := map[string]*record{}
	for _, r := range c.records {
		known[string(r.uid)] = r
		if !selectedBy(r.policies, p) {
			continue
		}
		for _, at := range r.starts {
			t.start(at, since)
		}
		if r.running && r.key != self {
			t.running++
		}
		if r.failed && r.key != self {
			t.failed++
		}
	}
	l := c.ledgers[p.NamespacedName]
	for update, starts := range l.starts {
		for _, e := range starts {
			if r := known[update]; r == nil || older(e.At.Time, r.starts) {
				t.start(c.gate.ahead(c.now, e.At.Time), since)
			}
		}
	}
	for update := range l.failures {
		if known[update] == nil {
			t.failed++
			t.gone++
		}
	}
	for update := range l.soaks {
		if _, counted := l.failures[update]; !counted && (known[update] == nil || !known[update].failed) {
			t.failed++
			t.soaks++
		}
	}
	return t
}

// ahead returns which updates go before another one under a policy.
func (c *recount) ahead(p *Policy, self *record) []string {
	var out []string
	for _, r := range c.records {
		if r.key == self.key || !r.waiting || !r.before(self) || !selectedBy(r.policies, p) || len(c.gate.unhealthy(r.policies, r.candidate.Cluster)) > 0 {
			continue
		}
		elsewhere := slices.ContainsFunc(r.policies, func(o *Policy) bool {
			if !o.limited() || o.NamespacedName == p.NamespacedName {
				return false
			}
			from, next := o.period(c.now, o.Schedule)
			_, why := o.Budget.slots(o.Title(), c.now, c.count(o, r.key, from), next)
			return why != nil
		})
		if !elsewhere && Decide(c.now, r.candidate, r.policies, r.change).Open {
			out = append(out, r.key.Name)
		}
	}
	return out
}

// model is a namespace that changes at random.
type model struct {
	*world
	*rand.Rand
	health *answers
	cache  *laggard
	uids   int
}

// laggard is a cache that may not know yet what became of MachineUpdates.
type laggard struct {
	client.Reader
	known map[string]*refitv1.MachineUpdate // nil: it knows all
}

func (l *laggard) List(ctx context.Context, out client.ObjectList, opts ...client.ListOption) error {
	if list, ok := out.(*refitv1.MachineUpdateList); ok && l.known != nil {
		for _, mu := range l.known {
			list.Items = append(list.Items, *mu.DeepCopy())
		}
		return nil
	}
	return l.Reader.List(ctx, out, opts...)
}

func (l *laggard) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if mu, ok := obj.(*refitv1.MachineUpdate); ok && l.known[key.Name] != nil {
		l.known[key.Name].DeepCopyInto(mu)
		return nil
	}
	return l.Reader.Get(ctx, key, obj, opts...)
}

// GetInformer returns one that has what a list has now.
func (l *laggard) GetInformer(ctx context.Context, obj client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	var list client.ObjectList = &refitv1.MachineUpdateList{}
	if _, ok := obj.(*clusterv1.Machine); ok {
		list = &clusterv1.MachineList{}
	}
	s := newStore()
	err := errors.Join(l.List(ctx, list), meta.EachListItem(list, func(o runtime.Object) error { return s.objects.Add(o) }))
	return s, err
}

const modelMachines = 9

func newModel(t *testing.T, seed uint64) *model {
	md := &clusterv1.MachineDeployment{ObjectMeta: objectMeta{Namespace: "fleet", Name: "md"}}
	ofC2 := func(m *clusterv1.Machine) { inCluster("c2")(m) }
	objects := []client.Object{
		cluster("c1", nil, nil), cluster("c2", map[string]string{"env": "prod"}, nil), md, namespace("fleet", nil),
		saturdays("a", budget(refitv1.Budget{MaxConcurrent: 3, MaxStartsPerWindow: 5, MinSpacing: "1m", StopAfterFailures: 3})),
		anytime("b", machines(map[string]string{"pool": "gpu"}), budget(refitv1.Budget{MaxConcurrent: 1, MaxStartsPerWindow: 2}), gated("web"), ofClusters),
		policy("c", schedule.ManualStrategy, clustersOf(map[string]string{"env": "prod"}), opensAfter("24h"), budget(refitv1.Budget{MinSpacing: "48h"})),
		platform(anytime("platform", budget(refitv1.Budget{MaxConcurrent: 4})), inProd),
	}
	for i := range modelMachines {
		name := fmt.Sprintf("m%d", i)
		switch {
		case i == 0:
			objects = append(objects, controlPlane(name))
		case i%3 == 0:
			objects = append(objects, worker(name, ofC2))
		default:
			objects = append(objects, worker(name))
		}
		objects = append(objects, update(name, identified, waiting, configured(i/2)))
	}
	m := &model{world: newWorld(t, objects...).withDeadlines(lives{}), Rand: rand.New(rand.NewPCG(seed, 0))}
	m.health, m.cache = m.healthy(), &laggard{Reader: m.Client}
	m.gate.Client = m.cache
	if seed%2 == 0 {
		m.gate.Informers = m.cache
	}
	return m
}

// machine returns the name of some Machine.
func (m *model) machine() string { return fmt.Sprintf("m%d", m.IntN(modelMachines)) }

// moment returns an instant that is not long ago, or is to come.
func (m *model) moment() time.Time {
	return m.Clock.Now().Add(-time.Duration(m.ExpFloat64()*float64(10*time.Hour)) + 2*time.Hour).Truncate(time.Second)
}

// touch changes an object if it is there.
func touch[T client.Object](m *model, key types.NamespacedName, obj T, change func(T)) {
	if m.Client.Get(m.T.Context(), key, obj) == nil {
		change(obj)
		require.NoError(m.T, m.Update(m.T.Context(), obj))
	}
}

func (m *model) toUpdate(edits ...func(*refitv1.MachineUpdate)) {
	mu := &refitv1.MachineUpdate{}
	if m.Client.Get(m.T.Context(), types.NamespacedName{Namespace: "fleet", Name: m.machine()}, mu) != nil {
		return
	}
	for _, e := range edits {
		e(mu)
	}
	annotations, status := mu.Annotations, mu.Status
	require.NoError(m.T, m.Update(m.T.Context(), mu))
	mu.Annotations, mu.Status = annotations, status
	require.NoError(m.T, m.Status().Update(m.T.Context(), mu))
}

func (m *model) toMachine(change func(*clusterv1.Machine)) {
	touch(m, types.NamespacedName{Namespace: "fleet", Name: m.machine()}, &clusterv1.Machine{}, change)
}

func (m *model) toCluster(change func(*clusterv1.Cluster)) {
	touch(m, types.NamespacedName{Namespace: "fleet", Name: fmt.Sprintf("c%d", 1+m.IntN(2))}, &clusterv1.Cluster{}, change)
}

// override has an object have an override, or none.
func (m *model) override(obj client.Object) {
	obj.SetAnnotations(noted([]map[string]string{nil, {restrictiveKey: "true"}, {permissiveKey: text(m.Clock.Now().Add(time.Hour))}, {bypassKey: "digest-m1, digest-m2"}}[m.IntN(4)]))
}

// comeOrGo deletes an object, or makes it if it is gone.
func (m *model) comeOrGo(obj client.Object) {
	err := m.Create(m.T.Context(), obj)
	if err != nil {
		require.NoError(m.T, m.Delete(m.T.Context(), obj))
	}
}

func (m *model) reread() {
	for _, name := range []string{"a", "b", "c"} {
		m.Reread(name)
	}
}

// admit has an update of some Machine ask, and the write be made, refused, or not answered.
func (m *model) admitSome() {
	name := m.machine()
	machine, mu := &clusterv1.Machine{}, &refitv1.MachineUpdate{}
	for _, obj := range []client.Object{machine, mu} {
		if m.Client.Get(m.T.Context(), types.NamespacedName{Namespace: "fleet", Name: name}, obj) != nil {
			return
		}
	}
	how := m.IntN(4)
	_, err := m.gate.Admit(m.T.Context(), machine, mu, func(a refitv1.Admission) error {
		if how == 0 {
			return ErrNotTried
		}
		if how == 1 {
			return errDown
		}
		started(a.AdmittedAt.Time)(mu)
		mu.Status.Admission = &a
		return m.Status().Update(m.T.Context(), mu)
	})
	if err != nil && !errors.Is(err, ErrNotTried) && !errors.Is(err, errDown) {
		require.ErrorContains(m.T, err, "read Cluster") // which is gone
	}
}

// steps are what happens.
func (m *model) steps() map[string]func() {
	set := func(edits ...func(*refitv1.MachineUpdate)) func() { return func() { m.toUpdate(edits...) } }
	return map[string]func(){
		"nothing":              func() {},
		"an update waits":      set(waiting),
		"an update waits long": func() { m.toUpdate(since(m.moment())) },
		"an update runs":       func() { m.toUpdate(started(m.moment())) },
		"an update is planned": set(func(mu *refitv1.MachineUpdate) {
			mu.Status.Plan = &refitv1.PlannedWork{WorstAction: []string{"Restart", "Reboot"}[m.IntN(2)]}
		}),
		"an update ends": set(ended, func(mu *refitv1.MachineUpdate) {
			mu.Status.FinishedAt = &metav1.Time{Time: m.Clock.Now()}
			mu.Status.LastSucceededAt = mu.Status.FinishedAt
		}),
		"an update fails":       set(failed),
		"an update is given up": set(failed, abandoned),
		"a start is taken back": set(waiting, func(mu *refitv1.MachineUpdate) { mu.Status.Starts, mu.Status.Admission = nil, nil; m.gate.Forget(mu) }),
		"an update is permitted": func() {
			m.toUpdate(func(mu *refitv1.MachineUpdate) {
				permitted(mu.Spec.Digest, m.moment(), m.moment().Add(4*time.Hour))(mu)
			})
		},
		"a status is lost": set(func(mu *refitv1.MachineUpdate) {
			mu.Spec.Record = &refitv1.UpdateRecord{Revision: mu.Status.RecordRevision + 1, Status: mu.Status}
		}),
		"an update comes or goes":      m.updateComesOrGoes,
		"a Machine comes or goes":      func() { m.comeOrGo(worker(m.machine())) },
		"a Machine is of another pool": func() { m.toMachine(func(o *clusterv1.Machine) { ofPool([]string{"gpu", "cpu"}[m.IntN(2)])(o) }) },
		"a Machine is of another parent": func() {
			m.toMachine(func(o *clusterv1.Machine) {
				o.Labels[clusterv1.MachineDeploymentNameLabel] = []string{"md", "md2"}[m.IntN(2)]
			})
		},
		"a Machine is overridden": func() { m.toMachine(func(o *clusterv1.Machine) { m.override(o) }) },
		"a Cluster is overridden": func() { m.toCluster(func(o *clusterv1.Cluster) { m.override(o) }) },
		"a Cluster is labelled": func() {
			m.toCluster(func(o *clusterv1.Cluster) { o.Labels = map[string]string{"env": []string{"prod", "dev"}[m.IntN(2)]} })
		},
		"a Cluster comes or goes": func() { m.comeOrGo(cluster("c2", map[string]string{"env": "prod"}, nil)) },
		"a MachineDeployment is overridden": func() {
			touch(m, types.NamespacedName{Namespace: "fleet", Name: "md"}, &clusterv1.MachineDeployment{}, func(o *clusterv1.MachineDeployment) { m.override(o) })
		},
		"a MachineDeployment comes or goes": func() {
			m.comeOrGo(&clusterv1.MachineDeployment{ObjectMeta: objectMeta{Namespace: "fleet", Name: "md2", Annotations: map[string]string{restrictiveKey: "true"}}})
		},
		"a policy is edited": func() {
			m.Change([]string{"a", "c"}[m.IntN(2)], budget(refitv1.Budget{MaxConcurrent: int32(m.IntN(3)), MaxStartsPerWindow: int32(m.IntN(4)), StopAfterFailures: int32(m.IntN(3))}))
			m.reread()
		},
		"a policy comes or goes": func() { m.comeOrGo(anytime("b", budget(refitv1.Budget{MaxConcurrent: 1}))); m.reread() },
		"a policy has a ledger":  func() { m.show(m.status()) },
		"the namespace is labelled": func() {
			touch(m, types.NamespacedName{Name: "fleet"}, &corev1.Namespace{}, func(o *corev1.Namespace) { o.Labels = map[string]string{"tier": []string{"prod", "dev"}[m.IntN(2)]} })
		},
		"a gate answers": func() {
			m.health.set("web c1", []health.Answer{answering(m.Clock.Now()), shut(m.Clock.Now(), "no")}[m.IntN(2)])
		},
		"a node soaks ill": func() {
			m.gate.soaks.note(m.Clock.Now(), "policy-a", refitv1.GateFailure{LedgerEntry: refitv1.LedgerEntry{Machine: "m1", Update: "uid-m1", At: metav1.NewTime(m.Clock.Now())}}, created)
		},
		"seconds pass":       func() { m.Clock.Step(time.Duration(m.IntN(90)) * time.Second) },
		"hours pass":         func() { m.Clock.Step(time.Duration(m.IntN(9)) * time.Hour) },
		"days pass":          func() { m.Clock.Step(time.Duration(m.IntN(4)) * 24 * time.Hour) },
		"an update asks":     m.admitSome,
		"another one asks":   m.admitSome,
		"the shard moves":    func() { m.gate.ForgetNamespaces(func(string) bool { return true }) },
		"the cache lags":     m.lag,
		"the cache comes up": func() { m.cache.known = nil },
	}
}

func (m *model) updateComesOrGoes() {
	m.uids++
	mu := update(m.machine(), waiting)
	old := &refitv1.MachineUpdate{}
	if m.Client.Get(m.T.Context(), client.ObjectKeyFromObject(mu), old) == nil {
		m.gate.departed.note(m.Clock.Now(), old)
	}
	mu.UID = types.UID(fmt.Sprintf("uid-%d", m.uids))
	m.comeOrGo(mu)
}

func (m *model) lag() {
	var list refitv1.MachineUpdateList
	require.NoError(m.T, m.Client.List(m.T.Context(), &list))
	m.cache.known = map[string]*refitv1.MachineUpdate{}
	for i := range list.Items {
		m.cache.known[list.Items[i].Name] = &list.Items[i]
	}
}

// compare demands that what is kept is what is counted anew.
func (m *model) compare(t *testing.T, what string) {
	again := m.gate.anew().recount(t, "fleet")
	b, err := m.gate.books(t.Context(), "fleet")
	require.NoError(t, err, what)
	seen := 0
	for _, e := range b.entries {
		if e.record != nil {
			seen++
		}
	}
	require.Len(t, again.records, seen, what)
	now := m.Clock.Now()
	policies, err := m.policies.In("fleet")
	require.NoError(t, err)
	for _, r := range again.records {
		kept := b.of(r.key.Name)
		require.NotNil(t, kept, "%s: %s", what, r.key.Name)
		require.Equal(t, shown(r), shown(kept), "%s: %s", what, r.key.Name)
		require.True(t, slices.Equal(r.policies, kept.policies), "%s: policies of %s", what, r.key.Name)
	}
	for _, p := range policies {
		if !p.limited() { // nobody asks
			continue
		}
		from, _ := p.period(now, p.Schedule)
		for _, r := range again.records {
			got, err := b.count(t.Context(), p, r.key, from)
			require.NoError(t, err)
			want := again.count(p, r.key, from)
			require.True(t, want.last.Equal(got.last), "%s: last start under %s", what, p.Name)
			want.last = got.last
			require.Equal(t, want, got, "%s: count under %s but for %s", what, p.Name, r.key.Name)
			ahead, err := b.ahead(t.Context(), now, p, b.of(r.key.Name), 1<<30)
			require.NoError(t, err)
			require.Len(t, again.ahead(p, r), ahead, "%s: before %s under %s", what, r.key.Name, p.Name)
		}
	}
	var waiting []string
	for _, r := range again.records {
		if r.waiting && limited(r.policies) {
			waiting = append(waiting, r.key.Name)
		}
	}
	var oldest []string
	for _, r := range b.oldest(examined) {
		oldest = append(oldest, r.key.Name)
	}
	require.ElementsMatch(t, waiting, oldest, what)
}

// shown is a record without what was found out of it later.
func shown(r *record) record {
	out := *r
	out.policies, out.asked, out.open = nil, 0, false
	out.change.Expected, out.change.Wait = 0, Wait{}
	return out
}

// TestWhatIsKeptIsWhatIsCountedAnew changes a namespace at random, in some hundreds of steps, and looks at it now and then.
func TestWhatIsKeptIsWhatIsCountedAnew(t *testing.T) {
	for seed := range uint64(16) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			m := newModel(t, seed)
			steps := m.steps()
			names := slices.SortedFunc(maps.Keys(steps), cmp.Compare)
			for range 150 {
				what := names[m.IntN(len(names))]
				steps[what]()
				if m.IntN(3) > 0 {
					m.compare(t, what)
				}
			}
		})
	}
}

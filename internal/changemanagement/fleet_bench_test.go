package changemanagement

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
)

// fastCache answers as an informer does that does not copy: the fake client would be most of what is measured.
type fastCache struct {
	client.Reader
	clusters map[types.NamespacedName]*clusterv1.Cluster
	machines map[types.NamespacedName]*clusterv1.Machine
	updates  map[string][]refitv1.MachineUpdate // by namespace
}

func (c *fastCache) Get(_ context.Context, key client.ObjectKey, out client.Object, _ ...client.GetOption) error {
	switch o := out.(type) {
	case *clusterv1.Cluster:
		*o = *c.clusters[key]
	case *clusterv1.Machine:
		*o = *c.machines[key]
	case *metav1.PartialObjectMetadata:
		o.Namespace, o.Name, o.ResourceVersion = key.Namespace, key.Name, "1" // of a MachineDeployment without annotations
	}
	return nil
}

func (c *fastCache) List(_ context.Context, out client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	switch l := out.(type) {
	case *refitv1.MachineUpdateList:
		for namespace, all := range c.updates {
			if o.Namespace == "" || o.Namespace == namespace {
				l.Items = append(l.Items, all...)
			}
		}
	case *clusterv1.MachineList:
		l.Items = make([]clusterv1.Machine, 0, len(c.machines))
		for key, m := range c.machines {
			if o.Namespace == "" || o.Namespace == key.Namespace {
				l.Items = append(l.Items, *m)
			}
		}
	}
	return nil
}

// store is the informer of one kind in a manager's cache.
type store struct {
	cache.Informer
	objects toolscache.Indexer
}

func newStore() *store {
	return &store{objects: toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc})}
}

// GetIndexer is that of an informer.
func (s *store) GetIndexer() toolscache.Indexer { return s.objects }

// stores are the informers of a manager's cache.
type stores struct{ updates, machines *store }

func (s *stores) GetInformer(_ context.Context, obj client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	if _, ok := obj.(*clusterv1.Machine); ok {
		return s.machines, nil
	}
	return s.updates, nil
}

// informers returns informers that have what is in the cache now.
func (c *fastCache) informers() *stores {
	s := &stores{newStore(), newStore()}
	for _, m := range c.machines {
		_ = s.machines.objects.Add(m) // it has a name
	}
	for _, all := range c.updates {
		for i := range all {
			_ = s.updates.objects.Add(&all[i])
		}
	}
	return s
}

// saturdaysAmongOthers are days of policies that meet once a week.
var saturdaysAmongOthers = []string{"SA", "SA,SU", "MO,WE,SA"}

// workersEach is how many workers each cluster of a large fleet has.
const workersEach = 97

// large is a fleet of clusters with 3 control plane machines each, and workers, under policies with various selectors and days.
func large(clusters, policies, namespaces int, days []string) (*fastCache, *Policies) {
	c := &fastCache{
		clusters: map[types.NamespacedName]*clusterv1.Cluster{}, machines: map[types.NamespacedName]*clusterv1.Machine{}, updates: map[string][]refitv1.MachineUpdate{},
	}
	for i := range clusters {
		namespace := fmt.Sprintf("ns%d", i%namespaces)
		one := cluster(fmt.Sprintf("c%d", i), map[string]string{"env": []string{"prod", "dev", "test"}[i%3], "region": fmt.Sprintf("r%d", i%20), "tier": fmt.Sprint(i % 5)}, nil)
		one.Namespace, one.ResourceVersion = namespace, "1"
		c.clusters[client.ObjectKeyFromObject(one)] = one
		for j := range workersEach + 3 {
			name := fmt.Sprintf("c%d-%d", i, j)
			m := worker(name, inCluster(one.Name), ofPool(fmt.Sprintf("p%d", j%4)))
			if j < 3 {
				m = controlPlane(name, inCluster(one.Name))
			}
			m.Namespace, m.ResourceVersion = namespace, "1"
			c.machines[client.ObjectKeyFromObject(m)] = m
			mu := *update(name, waiting, configured(j%50))
			mu.Namespace, mu.ResourceVersion = namespace, "1"
			c.updates[namespace] = append(c.updates[namespace], mu)
		}
	}
	var all policyList
	for i := range policies {
		p := weekly(fmt.Sprintf("p%d", i), days[i%len(days)], jitter("10m"), expects("20m"))
		p.Namespace = fmt.Sprintf("ns%d", i%namespaces)
		p.Spec.MaintenanceSchedule.TimeZone = []string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"}[i%4]
		p.Spec.MaintenanceSchedule.Exclude = []schedule.Exclude{{From: "2026-12-20", Until: "2027-01-04", Reason: "freeze"}}
		switch i % 5 {
		case 0:
			p.Spec.Selector.Clusters.MatchLabels = map[string]string{"env": "prod", "region": fmt.Sprintf("r%d", i%20)}
		case 1:
			p.Spec.Selector.Clusters.MatchLabels = map[string]string{"region": fmt.Sprintf("r%d", i%20), "tier": fmt.Sprint(i % 5)}
		case 2:
			p.Spec.Selector.Clusters.MatchLabels = map[string]string{"region": fmt.Sprintf("r%d", i%20)}
			p.Spec.Selector.Roles = []refitv1.Role{refitv1.ControlPlaneRole}
		case 3:
			p.Spec.Selector.Clusters.MatchLabels = map[string]string{"region": fmt.Sprintf("r%d", i%20)}
			p.Spec.Selector.Machines.MatchLabels = map[string]string{"pool": fmt.Sprintf("p%d", i%4)}
		default:
			p.Spec.Selector.Clusters.MatchLabels = map[string]string{"env": "prod", "tier": fmt.Sprint(i % 3)}
			p.Spec.Selector.Roles = []refitv1.Role{refitv1.WorkerRole}
		}
		all = append(all, *p)
	}
	return c, all.read()
}

// policyList is what a cache lists.
type policyList []refitv1.ChangeManagementPolicy

func (policyList) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errDown
}

func (l policyList) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if all, ok := list.(*refitv1.ChangeManagementPolicyList); ok { // there are none of the platform
		all.Items = l
	}
	return nil
}

// read returns the policies as they are read.
func (l policyList) read() *Policies {
	p := NewPolicies(l, nil, nil)
	if err := p.Prime(context.Background()); err != nil {
		panic(err)
	}
	return p
}

// BenchmarkFleet selects the policies of 30,000 machines, and decides about each.
func BenchmarkFleet(b *testing.B) {
	for name, tc := range map[string]struct {
		namespaces int
		days       []string
	}{
		"one namespace":     {1, saturdaysAmongOthers},
		"thirty namespaces": {30, saturdaysAmongOthers},
		"one namespace, with policies that never meet": {1, []string{"SA", "SA,SU", "MO,TU,WE,TH"}},
	} {
		b.Run(name, func(b *testing.B) {
			cache, policies := large(300, 200, tc.namespaces, tc.days)
			require.Len(b, cache.machines, 30000)
			candidates := Candidates{cache}
			selected, open := 0, 0
			b.ReportAllocs()
			for b.Loop() {
				selected, open = 0, 0
				for _, m := range cache.machines {
					s, err := candidates.Machine(b.Context(), m)
					if err != nil {
						b.Fatal(err)
					}
					some, err := policies.Select(s)
					if err != nil {
						b.Fatal(err)
					}
					selected += len(some)
					if Decide(inside, s, some, Change{Digest: "d"}).Open {
						open++
					}
				}
			}
			b.ReportMetric(float64(selected)/30000, "policies/machine")
			b.ReportMetric(float64(open), "open")
		})
	}
}

// BenchmarkAsk asks for one of the updates of a namespace, of which all wait for the same budget.
func BenchmarkAsk(b *testing.B) {
	for _, machines := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprintf("machines=%d", machines), func(b *testing.B) {
			cache, _ := large(max(1, machines/100), 0, 1, nil)
			policies := policyList{*of("ns0", saturdays("a", budget(refitv1.Budget{MaxConcurrent: 10})))}.read()
			gate := &Gate{Policies: policies, Client: cache, Live: cache, Clock: clocktesting.NewFakePassiveClock(inside)}
			mu := &cache.updates["ns0"][0]
			m := cache.machines[client.ObjectKeyFromObject(mu)]
			b.ReportAllocs()
			for b.Loop() {
				if _, err := gate.Ask(b.Context(), m, mu); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkAdmit asks to admit the update whose turn it is of those of a namespace, of which one has changed since the last time. Of four updates three
// wait for the same budget, and one was made last week. Nothing is written.
func BenchmarkAdmit(b *testing.B) {
	for _, machines := range []int{100, 1000, 10000, 30000} {
		b.Run(fmt.Sprintf("machines=%d", machines), func(b *testing.B) {
			cache, _ := large(machines/100, 0, 1, nil)
			policies := policyList{*of("ns0", saturdays("a", budget(refitv1.Budget{MaxConcurrent: 10, MaxStartsPerWindow: 1000})))}.read()
			gate := &Gate{Policies: policies, Client: cache, Live: cache, Clock: clocktesting.NewFakePassiveClock(inside)}
			all := cache.updates["ns0"]
			for i := range all {
				if i%4 == 0 {
					started(inside.Add(-7 * 24 * time.Hour))(&all[i])
					ended(&all[i])
				}
			}
			informers := cache.informers()
			gate.Informers = informers
			mu := &all[49] // it is the oldest
			m := cache.machines[client.ObjectKeyFromObject(mu)]
			_, err := gate.Ask(b.Context(), m, mu) // reads all
			require.NoError(b, err)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				one := all[i%len(all)]
				one.ResourceVersion = strconv.Itoa(i + 2)
				if err := informers.updates.objects.Update(&one); err != nil {
					b.Fatal(err)
				}
				d, err := gate.Admit(b.Context(), m, mu, func(refitv1.Admission) error { return ErrNotTried })
				if !d.Open || !errors.Is(err, ErrNotTried) {
					b.Fatal(d.Message, err)
				}
			}
		})
	}
}

// BenchmarkCollect collects the metrics of 30,000 machines.
func BenchmarkCollect(b *testing.B) {
	cache, policies := large(300, 200, 1, saturdaysAmongOthers)
	c := &Collector{Client: cache, Policies: policies, Clock: clocktesting.NewFakePassiveClock(inside)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.look(b.Context(), policies.All()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOutlook decides about changes of 30,000 machines of one namespace, which all wait.
func BenchmarkOutlook(b *testing.B) {
	cache, policies := large(300, 200, 1, saturdaysAmongOthers)
	for namespace := range cache.updates {
		cache.updates[namespace] = nil
	}
	gate := &Gate{Policies: policies, Client: cache, Live: cache, Clock: clocktesting.NewFakePassiveClock(inside)}
	b.ReportAllocs()
	for b.Loop() {
		outlook, err := gate.Outlook(b.Context(), "ns0")
		if err != nil {
			b.Fatal(err)
		}
		for _, m := range cache.machines {
			if _, err := outlook.Of(b.Context(), m, nil, schedule.Class{}); err != nil {
				b.Fatal(err)
			}
		}
	}
}

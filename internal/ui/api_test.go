package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/ui/uitest"
	"github.com/capi-refit/refit/schedule"
)

func sameType(a, b client.Object) bool { return reflect.TypeOf(a) == reflect.TypeOf(b) }

func TestTheFleetClusterByCluster(t *testing.T) {
	f := watching(t, uitest.New(uitest.Fleet()...))
	all := get[grid](t, f, "/api/fleet")
	require.Empty(t, all.About.Problems)
	require.True(t, all.About.Now.Equal(uitest.Now))
	require.Equal(t, 52, all.Data.Machines)
	require.Equal(t, 9, all.Data.Total)
	total := 0
	for _, c := range all.Data.Counts {
		total += c.Machines
	}
	require.Equal(t, all.Data.Machines, total)
	require.Len(t, all.Data.Counts, len(states)-1, "the fleet has a Machine in each state, but none of which it is not known")

	first := all.Data.Clusters[0]
	require.Equal(t, "prod-eu", first.Name, "what has failed comes first")
	require.Equal(t, "failed: Unhealthy", first.Why)
	require.Len(t, first.Cells, first.Machines)
	require.Equal(t, cell{"prod-eu-worker-00", float64(state(refitv1.PhaseFailed).rank())}, first.Cells[0])
	require.True(t, first.Earliest.Equal(uitest.Now))
	require.Equal(t, reasonCount{"Unhealthy", "Failed", 1, "failed: Unhealthy"}, all.Data.Reasons[0])
	require.Contains(t, all.Data.Reasons, reasonCount{"Window", "Waiting", 2, "waiting for a window"})
	last := all.Data.Clusters[len(all.Data.Clusters)-1]
	require.Equal(t, "store-006", last.Name)
	require.Equal(t, []count{{none, 3}}, last.Counts)
}

func TestFilters(t *testing.T) {
	f := watching(t, uitest.New(uitest.Fleet()...))
	for query, want := range map[string]struct{ clusters, machines int }{
		"":                                  {9, 52},
		"namespace=edge":                    {6, 18},
		"q=PROD-":                           {2, 29},
		"q=prod-us-worker-02":               {1, 1},
		"q=edge/store":                      {6, 18},
		"state=Failed":                      {1, 1},
		"state=Failed&state=Waiting":        {4, 7},
		"state=Waiting&reason=Slot":         {1, 2},
		"state=nonsense":                    {9, 52}, // is no state
		"cluster=staging&state=Pending":     {1, 1},
		"q=nowhere":                         {0, 0},
		"namespace=fleet&cluster=store-001": {0, 0},
	} {
		t.Run(query, func(t *testing.T) {
			require.Equal(t, want.clusters, get[grid](t, f, "/api/fleet?"+query).Data.Total)
			require.Equal(t, want.machines, get[list](t, f, "/api/machines?"+query).Data.Total)
		})
	}
}

func TestWhenAMachineMayStart(t *testing.T) {
	f := watching(t, uitest.New(uitest.Fleet()...))
	rows := get[list](t, f, "/api/machines?q=prod-us-worker").Data.Machines
	byName := map[string]row{}
	for _, r := range rows {
		byName[r.Name] = r
	}
	opens := time.Date(2026, 10, 10, 18, 0, 0, 0, time.UTC)
	waits, waitsFirst, settled := byName["prod-us-worker-00"], byName["prod-us-worker-03"], byName["prod-us-worker-05"]
	require.Equal(t, state(refitv1.PhaseWaiting), waits.State)
	require.Equal(t, refitv1.ReasonWindow, waits.Reason)
	require.True(t, waits.Earliest.Equal(opens))
	require.Equal(t, due, waitsFirst.State, "a change waits that no update was asked for")
	require.True(t, waitsFirst.Earliest.Equal(opens))
	require.Equal(t, state(refitv1.PhaseSucceeded), settled.State)
	require.Nil(t, settled.Earliest)
	require.True(t, byName["prod-us-worker-02"].Drifted)
}

func TestWhatAStatusSaysOfOtherSpecsIsNotShown(t *testing.T) {
	m := managementtest.Machine("fleet", "m1", "c1")
	mu := managementtest.MachineUpdate(m, func(mu *refitv1.MachineUpdate) {
		mu.Status.Phase, mu.Status.Reason = refitv1.PhaseFailed, "Old"
		mu.Spec.Digest = "another"
		mu.CreationTimestamp = metav1.NewTime(uitest.Now.Add(-90 * 24 * time.Hour))
	})
	f := watching(t, uitest.New(m, mu))
	one := get[list](t, f, "/api/machines").Data.Machines[0]
	require.Equal(t, state(refitv1.PhasePending), one.State)
	require.Empty(t, one.Reason)
	require.Nil(t, one.Since, "they may have been asked for just now")
}

func TestWhatWaitsAndIsNotListedIsNotUpToDate(t *testing.T) {
	workers := &refitv1.PendingChange{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "workers"}}
	workers.Spec = refitv1.PendingChangeSpec{Cluster: "c1", Owner: refitv1.PendingOwner{Kind: "MachineDeployment", Name: "workers"}, Role: refitv1.WorkerRole}
	workers.Status = refitv1.PendingChangeStatus{Machines: 250, More: 150}
	objects := []client.Object{managementtest.Cluster("fleet", "c1", nil), managementtest.Machine("fleet", "control", "c1", func(m *clusterv1.Machine) {
		m.Labels[clusterv1.MachineControlPlaneLabel] = ""
	})}
	for i := range 260 {
		m := managementtest.Machine("fleet", fmt.Sprintf("m%03d", i), "c1")
		objects = append(objects, m)
		if i < 100 {
			workers.Status.List = append(workers.Status.List, refitv1.PendingMachine{Name: m.Name, Cause: refitv1.PendingInPlace, Reason: refitv1.ReasonWindow})
		}
		if i%2 == 0 {
			objects = append(objects, managementtest.MachineUpdate(m, func(mu *refitv1.MachineUpdate) {
				mu.Status.Phase, mu.Status.ObservedDigest = refitv1.PhaseSucceeded, mu.Spec.Digest
			}))
		}
	}
	f := blind(t, uitest.New())
	know(t, f, append(objects, workers)...)
	g := get[grid](t, f, "/api/fleet").Data
	require.Equal(t, []count{{due, 100}, {mayWait, 160}, {none, 1}}, g.Counts, "which of them wait is not known, and no control plane does")
	require.Equal(t, "a change waits: Window; and 150 more wait that are not listed", g.Clusters[0].Why)
	one := get[list](t, f, "/api/machines?state=MayWait").Data.Machines[0]
	require.Equal(t, "150 more wait that are not listed: this may be one of them", one.Message)

	sum := workers.DeepCopy()
	sum.Name, sum.Spec.Owner, sum.Spec.Role = "c1", refitv1.PendingOwner{Kind: "Cluster", Name: "c1"}, ""
	f = blind(t, uitest.New())
	know(t, f, append(objects, sum)...)
	require.Equal(t, []count{{due, 100}, {mayWait, 161}}, get[grid](t, f, "/api/fleet").Data.Counts, "a Cluster does not say of which role they are")
	rest := workers.DeepCopy()
	rest.Status.List, rest.Status.More = nil, 0
	for i := range 250 {
		rest.Status.List = append(rest.Status.List, refitv1.PendingMachine{Name: fmt.Sprintf("m%03d", i)})
	}
	know(t, f, rest)
	require.Equal(t, []count{{due, 250}, {state(refitv1.PhaseSucceeded), 5}, {none, 6}}, get[grid](t, f, "/api/fleet").Data.Counts, "its owners list them")
}

func TestOneUpdate(t *testing.T) {
	f := watching(t, uitest.New(uitest.Fleet()...))
	d := get[detail](t, f, "/api/update?namespace=fleet&name=prod-eu-worker-01").Data
	require.True(t, d.Found)
	require.Equal(t, int32(5), d.Machine.Done)
	var what []string
	for i, s := range d.Steps {
		what = append(what, s.What)
		require.False(t, i > 0 && s.At.Before(d.Steps[i-1].At), "in order")
	}
	require.Equal(t, []string{"Wanted", "Let start", "Begun", "Drain begun", "Drained", "Node being changed"}, what)
	require.Len(t, d.Changes, 3)
	require.Len(t, d.Notes, 1)
	require.Equal(t, "InPlaceUpdateApplying", d.Events[0].Reason, "the latest is first")
	require.Len(t, d.Events, 4)

	bare := get[detail](t, f, "/api/update?namespace=edge&name=store-006-worker-00").Data
	require.False(t, bare.Found)
	require.Empty(t, bare.Steps)
	code, body := raw(t, f, "/api/update?namespace=edge&name=nobody")
	require.Equal(t, http.StatusNotFound, code)
	require.Contains(t, string(body), "There is no Machine of this name here")
}

func TestAMachineMadeAgainHasNoHistory(t *testing.T) {
	for name, end := range map[string]func(h cache.ResourceEventHandlerFuncs, gone, next *refitv1.MachineUpdate){
		"deleted": func(h cache.ResourceEventHandlerFuncs, gone, _ *refitv1.MachineUpdate) { h.OnDelete(gone) },
		"deletion not seen": func(h cache.ResourceEventHandlerFuncs, gone, _ *refitv1.MachineUpdate) {
			h.OnDelete(cache.DeletedFinalStateUnknown{Obj: gone})
		},
		"seen as one changed": func(h cache.ResourceEventHandlerFuncs, gone, next *refitv1.MachineUpdate) { h.OnUpdate(gone, next) },
	} {
		t.Run(name, func(t *testing.T) {
			f := blind(t, uitest.New())
			h := f.handler()
			m := managementtest.Machine("fleet", "m1", "c1")
			first := managementtest.MachineUpdate(m)
			first.UID = "first"
			failed, second := first.DeepCopy(), first.DeepCopy()
			failed.Status.Phase, failed.Status.Message = refitv1.PhaseFailed, "of the Machine before"
			second.UID = "second"
			h.OnUpdate(first, failed)
			know(t, f, m, failed)
			steps := func() []step { return get[detail](t, f, "/api/update?namespace=fleet&name=m1").Data.Steps }
			require.Len(t, steps(), 1)
			end(h, failed, second)
			know(t, f, second)
			require.Empty(t, steps())
			require.Empty(t, f.history.of(failed), "nobody asks for it again")
		})
	}
}

func TestPoliciesAndWhomTheySelect(t *testing.T) {
	f := watching(t, uitest.New(uitest.Fleet()...))
	got := get[policyList](t, f, "/api/policies").Data
	require.Equal(t, new(6), got.Unselected, "the control planes of stores")
	byName := map[string]policyRow{}
	for _, p := range got.Policies {
		byName[p.Name] = p
	}
	require.Equal(t, "change-freeze", got.Policies[0].Name, "those of the platform are first")
	freeze := byName["change-freeze"]
	require.True(t, freeze.Platform)
	require.Equal(t, 34, freeze.Machines)
	require.Equal(t, []string{"namespaces tier=production"}, freeze.Selects)
	require.Equal(t, []selectedCluster{{"fleet", "prod-eu", 17}, {"fleet", "prod-us", 12}, {"fleet", "staging", 5}}, freeze.Clusters)
	require.Equal(t, 12, byName["closing-time"].Machines)
	require.False(t, byName["closing-time"].Open)
	require.Equal(t, []string{"refuses changes while closed", "forbids replacement"}, byName["closing-time"].Limits)
	require.True(t, byName["weekends"].Open)
	require.Contains(t, byName["mistyped"].Problem, "SOMEDAY")
	require.False(t, byName["mistyped"].Open, "what can't be read is closed")
	require.Equal(t, 3, get[policyList](t, f, "/api/policies?namespace=edge").Data.Total)
}

func TestHowManyNoPolicySelectsIsToldOnlyIfItIsKnown(t *testing.T) {
	freeze := &refitv1.ClusterChangeManagementPolicy{ObjectMeta: metav1.ObjectMeta{Name: "freeze", UID: "freeze", Generation: 1}}
	freeze.Spec.Strategy = schedule.RestrictiveStrategy
	objects := []client.Object{managementtest.Cluster("fleet", "c1", nil), managementtest.Machine("fleet", "m1", "c1"), freeze}
	unselected := func(f *Fleet) *int { return get[policyList](t, f, "/api/policies").Data.Unselected }
	require.Equal(t, new(0), unselected(watching(t, uitest.New(objects...))))
	require.Equal(t, new(1), unselected(watching(t, uitest.New(objects[:2]...))))
	for _, kind := range []client.ObjectList{
		&refitv1.ClusterChangeManagementPolicyList{}, &refitv1.ChangeManagementPolicyList{}, &clusterv1.ClusterList{}, &clusterv1.MachineList{},
	} {
		require.Nil(t, unselected(watching(t, denied(uitest.New(objects...), kind))), "%T", kind)
	}
	noNamespaces := &corev1.NamespaceList{}
	require.Equal(t, new(0), unselected(watching(t, denied(uitest.New(objects...), noNamespaces))), "no policy asks for their labels")
	freeze.Spec.NamespaceSelector.MatchLabels = map[string]string{"tier": "production"}
	require.Nil(t, unselected(watching(t, denied(uitest.New(objects...), noNamespaces))))

	f := blind(t, uitest.New())
	know(t, f, objects[:2]...)
	require.Nil(t, unselected(f), "the policies have not been read yet")
}

func TestTheNextWeeks(t *testing.T) {
	f := watching(t, uitest.New(uitest.Fleet()...))
	got := get[weeks](t, f, "/api/timeline").Data
	require.Equal(t, 28*24*time.Hour, got.Until.Sub(got.From))
	titles := func(lanes []lane) (all []string) {
		for _, l := range lanes {
			all = append(all, fmt.Sprintf("%s %d", l.Title, l.Machines))
		}
		return all
	}
	require.Equal(t, []string{
		"change-freeze (platform) 34", "edge/closing-time 12", "edge/mistyped 0", "fleet/reloads-nightly 5", "fleet/second-saturday 12", "fleet/weekends 17",
	}, titles(got.Policies))
	require.Equal(t, []string{
		"change-freeze (platform) + fleet/weekends 17", "change-freeze (platform) + fleet/second-saturday 12", "change-freeze (platform) + fleet/reloads-nightly 5",
	}, titles(got.Together))
	require.NotEmpty(t, got.Policies[2].Problem)
	var owners []string
	for _, e := range got.Expected {
		owners = append(owners, e.Owner)
	}
	require.Equal(t, []string{"prod-eu-workers", "store-003-workers", "prod-us-workers", "store-004-control"}, owners)
	require.Len(t, get[weeks](t, f, "/api/timeline?namespace=edge").Data.Expected, 2)
}

// hostile is what a node, or a tenant, might write.
const hostile = "<script>alert(1)</script>\"'&\u202eevil\x1b[2J\u2028</td>"

func TestHostileTexts(t *testing.T) {
	m := managementtest.Machine("fleet", "m1", "c1", func(m *clusterv1.Machine) { m.Spec.ClusterName = hostile })
	mu := managementtest.MachineUpdate(m, func(mu *refitv1.MachineUpdate) {
		st := &mu.Status
		st.Phase, st.Reason, st.Message, st.Step = refitv1.PhaseWaiting, hostile, hostile, hostile
		st.Notes, st.Actions, st.Instance, st.Address = []string{hostile}, []string{hostile}, hostile, hostile
		st.Changes = []refitv1.Change{{Kind: hostile, Name: hostile, Operation: hostile}}
		st.Plan = &refitv1.PlannedWork{Actions: []string{hostile}}
		st.Conditions = []metav1.Condition{{Type: hostile, Reason: hostile, Message: hostile}}
	})
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "e"}, InvolvedObject: corev1.ObjectReference{Kind: "Machine", Name: "m1"}, Reason: hostile, Message: hostile,
	}
	waits := &refitv1.PendingChange{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "p"}}
	waits.Spec = refitv1.PendingChangeSpec{Cluster: hostile, Owner: refitv1.PendingOwner{Kind: hostile, Name: hostile}, Role: refitv1.WorkerRole}
	waits.Status.Conditions = []metav1.Condition{{Type: refitv1.ChangePendingCondition, Message: hostile}}
	f := watching(t, uitest.New(m, mu, event, waits, managementtest.Cluster("fleet", "c1", nil)))
	for _, path := range []string{"/api/fleet", "/api/machines", "/api/update?namespace=fleet&name=m1", "/api/timeline", "/api/policies", "/api/update?name=" + "%3Cscript%3E"} {
		_, body := raw(t, f, path)
		require.NotContains(t, string(body), "<", path)
		var v any
		require.NoError(t, json.Unmarshal(body, &v), path)
		for _, text := range texts(v) {
			require.NotContains(t, text, "\x1b", path)
			require.NotContains(t, text, "\u202e", path)
			require.NotContains(t, text, "\u2028", path)
		}
	}
}

// texts are all that JSON has.
func texts(v any) (all []string) {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		for _, one := range v {
			all = append(all, texts(one)...)
		}
	case map[string]any:
		for key, one := range v {
			all = append(append(all, key), texts(one)...)
		}
	}
	return all
}

// TestLargeFleets: a page of 30,000 machines is no larger than one of a few hundred.
func TestLargeFleets(t *testing.T) {
	const most = 300 << 10
	for name, size := range map[string]struct{ clusters, machines int }{"many clusters": {1000, 30}, "one cluster": {1, 30000}} {
		t.Run(name, func(t *testing.T) {
			f := blind(t, uitest.New())
			know(t, f, uitest.Large(size.clusters, size.machines)...)
			for _, path := range []string{"/api/fleet", "/api/machines", "/api/timeline", "/api/policies", "/api/machines?state=Waiting&page=7", "/api/fleet?state=Waiting&page=9999"} {
				code, body := raw(t, f, path)
				require.Equal(t, http.StatusOK, code, path)
				require.Less(t, len(body), most, path)
			}
			g := get[grid](t, f, "/api/fleet").Data
			require.Equal(t, 30000, g.Machines)
			require.Equal(t, size.clusters, g.Total)
			require.LessOrEqual(t, len(g.Clusters), clustersPerPage)
			require.Equal(t, 3000, get[list](t, f, "/api/machines?state=Waiting").Data.Total)
			require.Equal(t, 30, get[list](t, f, "/api/machines?state=Failed").Data.Total)
			last := get[list](t, f, "/api/machines?page=300").Data
			require.Equal(t, paged{300, 300, 30000}, last.paged)
			require.Equal(t, 30000, get[policyList](t, f, "/api/policies").Data.Policies[0].Machines)
		})
	}
}

func TestManyPoliciesArePaged(t *testing.T) {
	f := blind(t, uitest.New())
	for i := range 120 {
		p := &refitv1.ChangeManagementPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: fmt.Sprintf("p-%03d", i), UID: types.UID(fmt.Sprint(i))}}
		p.Spec.Strategy = "Permissive"
		know(t, f, p)
	}
	require.Equal(t, paged{2, 5, 120}, get[weeks](t, f, "/api/timeline?page=2").Data.paged)
	require.Equal(t, paged{3, 3, 120}, get[policyList](t, f, "/api/policies?page=3").Data.paged)
}

// denied has an API server answer as one does whose user has no rights to some kinds.
func denied(c client.WithWatch, kinds ...client.ObjectList) client.WithWatch {
	refused := func(list client.ObjectList) error {
		for _, k := range kinds {
			if reflect.TypeOf(k) == reflect.TypeOf(list) {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "these"}, "", fmt.Errorf("user %q has no rights", "bo<b>"))
			}
		}
		return nil
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := refused(list); err != nil {
				return err
			}
			return c.List(ctx, list, opts...)
		},
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
			if err := refused(list); err != nil {
				return nil, err
			}
			return c.Watch(ctx, list, opts...)
		},
	})
}

func TestWhatOneMayNotListIsTold(t *testing.T) {
	c := uitest.New(uitest.Fleet()...)
	f := watching(t, denied(c, &clusterv1.MachineList{}, &clusterv1.ClusterList{}, &refitv1.ClusterChangeManagementPolicyList{}, &corev1.EventList{}))
	got := get[grid](t, f, "/api/fleet")
	require.Len(t, got.About.Problems, 3)
	require.Contains(t, got.About.Problems[0], "You may not list and watch Clusters here")
	require.Contains(t, got.About.Problems[1], "only those that have a MachineUpdate are shown")
	require.Equal(t, 49, got.Data.Machines, "those that have no update are not known")
	require.Zero(t, get[policyList](t, f, "/api/policies").Data.Policies[0].Machines)
	require.Contains(t, get[detail](t, f, "/api/update?namespace=fleet&name=prod-eu-worker-01").Data.EventsProblem, "You may not list Events here")
}

func TestWithoutNamespacesPlatformPoliciesAreForAll(t *testing.T) {
	f := watching(t, denied(uitest.New(uitest.Fleet()...), &corev1.NamespaceList{}))
	require.Equal(t, 52, get[policyList](t, f, "/api/policies").Data.Policies[0].Machines)
}

func TestOneNamespace(t *testing.T) {
	f, err := NewFleet(Options{Client: uitest.New(), Namespace: "edge", Clock: blind(t, uitest.New()).Clock})
	require.NoError(t, err)
	require.Equal(t, "edge", get[grid](t, f, "/api/fleet").About.Namespace)
}

// TestNoStepDoneIsSaid: the page shows how many of an update's steps are done, and none is a number, too.
func TestNoStepDoneIsSaid(t *testing.T) {
	text, err := json.Marshal(row{Total: 8})
	require.NoError(t, err)
	require.Contains(t, string(text), `"done":0`)
}

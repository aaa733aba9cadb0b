package changemanagement

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
)

// +kubebuilder:rbac:groups=capi-refit.dev,resources=changemanagementpolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get

const (
	// calendarRefresh is how often calendars are read again.
	calendarRefresh = 15 * time.Second
	// calendarKept is for how long a calendar that can't be read for the moment is what it was. Then it is not known any more.
	calendarKept = 5 * time.Minute
)

// errUnread is returned as long as not all policies were read. Who asks takes it for closed.
var errUnread = errors.New("the ChangeManagementPolicies have not been read yet")

// Policies holds the policies as they were read last. Every replica has them.
type Policies struct {
	// Client reads from a cache.
	Client client.Client
	// Live reads from the API server.
	Live  client.Reader
	Clock clock.PassiveClock

	mu        sync.Mutex // of writers, and of calendars
	calendars map[types.NamespacedName]readCalendar
	current   atomic.Pointer[snapshot]
}

// readCalendar is a ConfigMap with calendars, as it was read.
type readCalendar struct {
	*corev1.ConfigMap
	at time.Time
}

// snapshot is a set of policies. What was found in it is kept for as long as it is current.
type snapshot struct {
	byNamespace map[string][]*Policy // by name
	ofCluster   sync.Map             // types.NamespacedName → clusterPolicies
}

// clusterPolicies are the policies whose selector of clusters the labels match.
type clusterPolicies struct {
	labels   map[string]string
	policies []*Policy
}

// SetupWithManager has the manager keep the policies up to date, on every replica.
func (p *Policies) SetupWithManager(mgr ctrl.Manager) error {
	if err := mgr.Add(everywhere(p.Prime)); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named("changemanagementpolicy-reader").
		For(&refitv1.ChangeManagementPolicy{}).
		WithOptions(controller.Options{NeedLeaderElection: ptr.To(false)}).
		Complete(p)
}

// everywhere is a Runnable that does not wait for the leadership.
type everywhere func(context.Context) error

func (f everywhere) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everywhere) NeedLeaderElection() bool { return false }

// Prime reads all policies. Before that there is no telling which select a Machine.
func (p *Policies) Prime(ctx context.Context) error {
	var list refitv1.ChangeManagementPolicyList
	if err := p.Client.List(ctx, &list); err != nil {
		return fmt.Errorf("list ChangeManagementPolicies: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string][]*Policy{}
	for i := range list.Items {
		one, _ := p.compile(ctx, &list.Items[i]) // one that can't be read is closed
		all[one.Namespace] = append(all[one.Namespace], one)
	}
	for _, policies := range all {
		slices.SortFunc(policies, byName)
	}
	p.current.Store(&snapshot{byNamespace: all})
	return nil
}

func byName(a, b *Policy) int { return strings.Compare(a.Name, b.Name) }

// Reconcile reads one policy again.
func (p *Policies) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var policy refitv1.ChangeManagementPolicy
	err := p.Client.Get(ctx, req.NamespacedName, &policy)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.current.Load()
	if before == nil {
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	all := maps.Clone(before.byNamespace)
	others := slices.DeleteFunc(slices.Clone(all[req.Namespace]), func(o *Policy) bool { return o.Name == req.Name })
	var result ctrl.Result
	if err == nil {
		one, invalid := p.compile(ctx, &policy)
		if invalid != nil {
			ctrl.LoggerFrom(ctx).Info("The policy can't be read, and is closed", "reason", invalid.Error())
		}
		others = append(others, one)
		if refersToCalendars(&policy) {
			result.RequeueAfter = calendarRefresh
		}
	}
	slices.SortFunc(others, byName) // what readers have is left alone
	all[req.Namespace] = others
	p.current.Store(&snapshot{byNamespace: all})
	return result, nil
}

func refersToCalendars(p *refitv1.ChangeManagementPolicy) bool {
	return p.Spec.MaintenanceSchedule != nil &&
		slices.ContainsFunc(p.Spec.MaintenanceSchedule.Exclude, func(x schedule.Exclude) bool { return x.Calendar != nil })
}

func (p *Policies) compile(ctx context.Context, policy *refitv1.ChangeManagementPolicy) (*Policy, error) {
	return Compile(policy, schedule.CalendarsFunc(func(ref schedule.ConfigMapKey) (schedule.Calendar, error) {
		return p.calendar(ctx, policy.Namespace, ref)
	}))
}

// calendar reads a calendar out of its ConfigMap.
func (p *Policies) calendar(ctx context.Context, namespace string, ref schedule.ConfigMapKey) (schedule.Calendar, error) {
	var cm corev1.ConfigMap
	key := types.NamespacedName{Namespace: namespace, Name: ref.Name}
	if err := p.Live.Get(ctx, key, &cm); err != nil {
		last, known := p.calendars[key]
		if !known || !passing(err) || p.Clock.Since(last.at) > calendarKept {
			return schedule.Calendar{}, err
		}
		ctrl.LoggerFrom(ctx).Info("A calendar can't be read for the moment, and is taken for what it was", "configMap", key, "reason", err.Error())
		return calendarIn(last.ConfigMap, ref.Key)
	}
	if p.calendars == nil {
		p.calendars = map[types.NamespacedName]readCalendar{}
	}
	p.calendars[key] = readCalendar{&cm, p.Clock.Now()}
	return calendarIn(&cm, ref.Key)
}

// passing says whether an error is the API server's being away, or too busy, and no answer.
func passing(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests
}

func calendarIn(cm *corev1.ConfigMap, key string) (schedule.Calendar, error) {
	text, ok := cm.Data[key]
	data := []byte(text)
	if !ok {
		if data, ok = cm.BinaryData[key]; !ok {
			return schedule.Calendar{}, fmt.Errorf("ConfigMap %s has no key %s", cm.Name, key)
		}
	}
	modified, err := updatedAt(cm)
	return schedule.Calendar{Data: data, Modified: modified}, err
}

// updatedAt returns when a calendar was last known to be right.
func updatedAt(cm *corev1.ConfigMap) (time.Time, error) {
	if value, ok := cm.Annotations[refitv1.CalendarUpdatedAnnotation]; ok {
		t, err := time.Parse(time.RFC3339, value)
		if err != nil {
			return t, fmt.Errorf("ConfigMap %s: annotation %s: %w", cm.Name, refitv1.CalendarUpdatedAnnotation, err)
		}
		return t, nil
	}
	latest := cm.CreationTimestamp.Time
	for _, m := range cm.ManagedFields {
		if m.Time != nil && m.Time.After(latest) {
			latest = m.Time.Time
		}
	}
	return latest, nil
}

// Select returns the policies that select a Machine. An error means that they are not known.
func (p *Policies) Select(s *Subject) ([]*Policy, error) {
	current := p.current.Load()
	if current == nil {
		return nil, errUnread
	}
	return current.selecting(s), nil
}

// Ready returns an error until the policies were read.
func (p *Policies) Ready() error {
	_, err := p.Any("")
	return err
}

// Any says whether there is a policy in a namespace at all.
func (p *Policies) Any(namespace string) (bool, error) {
	current := p.current.Load()
	if current == nil {
		return false, errUnread
	}
	return len(current.byNamespace[namespace]) > 0, nil
}

func (c *snapshot) selecting(s *Subject) []*Policy {
	var out []*Policy
	for _, p := range c.inCluster(s) {
		if p.selectsInCluster(s) {
			out = append(out, p)
		}
	}
	return out
}

// inCluster returns the policies whose selector of clusters matches. A cluster has many machines, and asks once.
func (c *snapshot) inCluster(s *Subject) []*Policy {
	key := types.NamespacedName{Namespace: s.Namespace, Name: s.Cluster}
	if known, ok := c.ofCluster.Load(key); ok {
		if k, _ := known.(clusterPolicies); maps.Equal(k.labels, s.ClusterLabels) {
			return k.policies
		}
	}
	found := clusterPolicies{labels: s.ClusterLabels}
	for _, p := range c.byNamespace[s.Namespace] {
		if p.selector.Cluster(s.ClusterLabels) {
			found.policies = append(found.policies, p)
		}
	}
	c.ofCluster.Store(key, found)
	return found.policies
}

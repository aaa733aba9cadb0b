package changemanagement

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/health"
	"github.com/capi-refit/refit/internal/policykind"
	"github.com/capi-refit/refit/schedule"
)

// +kubebuilder:rbac:groups=capi-refit.dev,resources=changemanagementpolicies;clusterchangemanagementpolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get

const (
	// calendarRefresh is how often calendars are read again.
	calendarRefresh = 15 * time.Second
	// calendarKept is for how long a calendar that can't be read for the moment is what it was. Then it is not known any more.
	calendarKept = 5 * time.Minute
)

// Policies holds the policies of both kinds as they were read last. Every replica has them.
type Policies struct {
	*policykind.Reader[*refitv1.ChangeManagementPolicy, *Policy]

	// Cluster has those of the platform.
	Cluster *policykind.Reader[*refitv1.ClusterChangeManagementPolicy, *Policy]
	// Live reads calendars from the API server.
	Live  client.Reader
	Clock clock.PassiveClock
	// Namespace is refit's own. It has the calendars of policies of the platform. Empty: it is not known.
	Namespace string
	// MayAsk returns an error for a health gate that refit may not ask, and its policy is invalid then. Nil: that is not known here, and nobody asks.
	MayAsk func(*health.Gate) error

	cached   client.Reader
	onChange []func(namespace string, concerns func(cluster labels.Set) bool)

	mu        sync.Mutex // of both readers, while they read calendars
	calendars map[types.NamespacedName]readCalendar
}

// readCalendar is a ConfigMap with calendars, as it was read.
type readCalendar struct {
	*corev1.ConfigMap
	at time.Time
}

// NewPolicies returns Policies that are read from a cache, and their calendars from the API server.
func NewPolicies(cached, live client.Reader, now clock.PassiveClock) *Policies {
	p := &Policies{Live: live, Clock: now, cached: cached}
	p.Reader = policykind.NewReader(cached, policykind.Kind[*refitv1.ChangeManagementPolicy, *Policy]{
		Name: policyKind, Plural: "ChangeManagementPolicies",
		New:  func() *refitv1.ChangeManagementPolicy { return &refitv1.ChangeManagementPolicy{} },
		List: func() client.ObjectList { return &refitv1.ChangeManagementPolicyList{} },
		Read: func(ctx context.Context, policy *refitv1.ChangeManagementPolicy) *Policy {
			return p.withCalendars(ctx, policy.Namespace, func(c schedule.Calendars) (*Policy, error) { return Compile(policy, c) })
		},
		Again: func(policy *refitv1.ChangeManagementPolicy) time.Duration { return calendarsAgain(&policy.Spec) },
		Same:  func(before, after *Policy) bool { return before.calendars == after.calendars },
	})
	p.Cluster = p.newCluster(cached)
	return p
}

// calendarsAgain returns when a policy is to be read again for its calendars; 0 if it has none.
func calendarsAgain(s *refitv1.ChangeManagementPolicySpec) time.Duration {
	if s.MaintenanceSchedule != nil && slices.ContainsFunc(s.MaintenanceSchedule.Exclude, func(x schedule.Exclude) bool { return x.Calendar != nil }) {
		return calendarRefresh
	}
	return 0
}

// withCalendars compiles a policy whose calendars are in a namespace.
func (p *Policies) withCalendars(ctx context.Context, namespace string, compile func(schedule.Calendars) (*Policy, error)) *Policy {
	p.mu.Lock()
	defer p.mu.Unlock()
	var versions strings.Builder
	one, _ := compile(schedule.CalendarsFunc(func(ref schedule.ConfigMapKey) (schedule.Calendar, error) {
		calendar, err := p.calendar(ctx, namespace, ref)
		cm := p.calendars[types.NamespacedName{Namespace: namespace, Name: ref.Name}].ConfigMap
		if cm != nil {
			versions.WriteString(string(cm.UID) + "/" + cm.ResourceVersion)
		}
		_, _ = fmt.Fprintf(&versions, " %v;", err)
		return calendar, err
	}))
	one.calendars = versions.String()
	if p.MayAsk != nil && one.Err == nil {
		one.checkGates(p.MayAsk)
	}
	return one // one that can't be read is closed
}

// calendar reads a calendar out of its ConfigMap.
func (p *Policies) calendar(ctx context.Context, namespace string, ref schedule.ConfigMapKey) (schedule.Calendar, error) {
	if namespace == "" {
		return schedule.Calendar{}, errors.New("calendars of the platform are in refit's own namespace, which this process does not know: set the environment variable POD_NAMESPACE")
	}
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

// passing reports whether an error is the API server's being away, or too busy, and no answer.
func passing(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests
}

// errUnreadable says that a ConfigMap is there and has no calendar as it is to have.
var errUnreadable = errors.New("the ConfigMap has no such calendar")

// readCalendarOnce reads a calendar from the API server. It is an errUnreadable if the ConfigMap is there.
func readCalendarOnce(ctx context.Context, live client.Reader, namespace string, ref schedule.ConfigMapKey) (schedule.Calendar, error) {
	var cm corev1.ConfigMap
	if err := live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: ref.Name}, &cm); err != nil {
		return schedule.Calendar{}, err
	}
	calendar, err := calendarIn(&cm, ref.Key)
	if err != nil {
		return calendar, errors.Join(errUnreadable, err)
	}
	return calendar, nil
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

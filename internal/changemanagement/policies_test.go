package changemanagement

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/policykind"
	"github.com/capi-refit/refit/internal/policykind/policykindtest"
	"github.com/capi-refit/refit/schedule"
)

// selected are the names of the policies that select a worker of the cluster c1 with labels.
func (w *world) selected(clusterLabels map[string]string) []string {
	w.T.Helper()
	policies, err := w.policies.Select(&Candidate{Subject: inplace.Subject{Namespace: "fleet", Cluster: "c1"}, ClusterLabels: clusterLabels, Role: refitv1.WorkerRole})
	require.NoError(w.T, err)
	return names(policies)
}

func TestUnreadPoliciesAreNotNoPolicies(t *testing.T) {
	p := NewPolicies(nil, nil, nil)
	_, err := p.Select(&Candidate{})
	require.ErrorIs(t, err, policykind.ErrUnread)
	_, err = p.Any("fleet")
	require.ErrorIs(t, err, policykind.ErrUnread)
	require.ErrorIs(t, p.Ready(), policykind.ErrUnread)

	w := newWorld(t, saturdays("a"))
	w.policies = NewPolicies(w, w, w.Clock)
	require.Equal(t, time.Second, w.Reconcile(w.policies, "a").RequeueAfter, "one of them is not all of them")
	require.ErrorIs(t, w.policies.Ready(), policykind.ErrUnread)
	require.NoError(t, w.policies.Prime(t.Context()))
	require.NoError(t, w.policies.Ready())
	require.Equal(t, []string{"a"}, w.selected(nil))
}

// failing is a client that can't list.
type failing struct{ client.Client }

func (failing) List(context.Context, client.ObjectList, ...client.ListOption) error { return errDown }
func (failing) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errDown
}

func TestPoliciesThatCannotBeListedStayUnread(t *testing.T) {
	p := NewPolicies(failing{}, nil, nil)
	require.ErrorIs(t, p.Prime(t.Context()), errDown)
	require.ErrorIs(t, p.Ready(), policykind.ErrUnread)
}

func TestPoliciesAreReadAgain(t *testing.T) {
	w := newWorld(t, saturdays("b"), of("other", anytime("x")))
	require.Equal(t, []string{"b"}, w.selected(nil))

	require.NoError(t, w.Create(t.Context(), never("a")))
	require.Equal(t, []string{"b"}, w.selected(nil), "not known yet")
	require.Zero(t, w.Reread("a"))
	require.Equal(t, []string{"a", "b"}, w.selected(nil))

	changed := get(w, "a", &refitv1.ChangeManagementPolicy{})
	changed.Spec.Selector.Roles = []refitv1.Role{refitv1.ControlPlaneRole}
	require.NoError(t, w.Update(t.Context(), changed))
	w.Reread("a")
	require.Equal(t, []string{"b"}, w.selected(nil))

	for _, name := range []string{"a", "b", "c"} { // the last one has never been
		if name != "c" {
			require.NoError(t, w.Delete(t.Context(), get(w, name, &refitv1.ChangeManagementPolicy{})))
		}
		require.Zero(t, w.Reread(name))
	}
	require.Empty(t, w.selected(nil))
	some, err := w.policies.Any("fleet")
	require.NoError(t, err)
	require.False(t, some)
	some, err = w.policies.Any("other")
	require.NoError(t, err)
	require.True(t, some)
}

func TestAPolicyThatCannotBeReadAgainStays(t *testing.T) {
	w := newWorld(t, saturdays("a"))
	w.Client = failing{}
	_, err := w.policies.Reconcile(t.Context(), policykindtest.Request("a"))
	require.ErrorIs(t, err, errDown)
	require.Equal(t, []string{"a"}, w.selected(nil))
}

func TestAnUnknownZoneCloses(t *testing.T) {
	w := newWorld(t, append(fleet(map[string]states{"w": {}}, nil), onMars("a"))...)
	d := w.ask("w")
	require.False(t, d.Open)
	require.Equal(t, schedule.InvalidPolicy, d.Reason)
	require.Contains(t, d.Message, "maintenanceSchedule.timeZone: ")
}

func TestLabelsOfTheClusterMayChange(t *testing.T) {
	w := newWorld(t, saturdays("a", clustersOf(map[string]string{"env": "prod"})), saturdays("b"))
	for range 2 {
		require.Equal(t, []string{"a", "b"}, w.selected(map[string]string{"env": "prod"}))
		require.Equal(t, []string{"b"}, w.selected(map[string]string{"env": "dev"}))
		require.Equal(t, []string{"b"}, w.selected(nil))
	}
}

const holidays = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//x//EN\r\nBEGIN:VEVENT\r\nUID:1\r\nDTSTAMP:20260101T000000Z\r\nDTSTART;VALUE=DATE:20261003\r\nSUMMARY:a day off\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"

func calendar(maxAge string) edit {
	return func(s *spec) {
		s.MaintenanceSchedule.Exclude = []schedule.Exclude{{Calendar: &schedule.CalendarReference{
			ConfigMap: schedule.ConfigMapKey{Name: "days", Key: "off.ics"}, MaxAge: maxAge,
		}}}
	}
}

// api has one ConfigMap, or none, or answers with an error.
type api struct {
	client.Reader
	days *corev1.ConfigMap
	err  error
}

func (a *api) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if a.err != nil {
		return a.err
	}
	if cm, ok := obj.(*corev1.ConfigMap); ok && a.days != nil && key.Name == a.days.Name && key.Namespace == a.days.Namespace {
		a.days.DeepCopyInto(cm)
		return nil
	}
	return a.Reader.Get(ctx, key, obj, opts...)
}

func days(edits ...func(*corev1.ConfigMap)) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: objectMeta{Namespace: "fleet", Name: "days", CreationTimestamp: metav1.NewTime(inside.Add(-time.Hour))}, Data: map[string]string{"off.ics": holidays}}
	for _, e := range edits {
		e(cm)
	}
	return cm
}

func TestCalendars(t *testing.T) {
	known := func(at string) func(*corev1.ConfigMap) {
		return func(cm *corev1.ConfigMap) { cm.Annotations = map[string]string{refitv1.CalendarUpdatedAnnotation: at} }
	}
	old := func(cm *corev1.ConfigMap) { cm.CreationTimestamp = metav1.NewTime(created) }
	touched := func(at time.Time) func(*corev1.ConfigMap) {
		return func(cm *corev1.ConfigMap) {
			cm.ManagedFields = append(cm.ManagedFields, managed(at, "example.com/any")...)
		}
	}
	for name, tc := range map[string]struct {
		maxAge string
		days   *corev1.ConfigMap
		says   string // nothing: it could be read, and excludes the day
	}{
		"it is there":           {"", days(), ""},
		"it is old, and may be": {"", days(old), ""},
		"it is binary": {"", days(func(cm *corev1.ConfigMap) {
			cm.Data, cm.BinaryData = nil, map[string][]byte{"off.ics": []byte(holidays)}
		}), ""},
		"there is no ConfigMap":                 {"", nil, `"days" not found`},
		"it is in another namespace":            {"", days(func(cm *corev1.ConfigMap) { cm.Namespace = "other" }), `"days" not found`},
		"there is no such key":                  {"", days(func(cm *corev1.ConfigMap) { cm.Data = map[string]string{"on.ics": holidays} }), "has no key off.ics"},
		"it is not a whole calendar":            {"", days(func(cm *corev1.ConfigMap) { cm.Data["off.ics"] = holidays[:80] }), "not a whole one"},
		"it is young by its creation":           {"2h", days(), ""},
		"it is too old by its creation":         {"30m", days(), "may be at most 30m0s old"},
		"it is young by its last change":        {"2h", days(old, touched(created), touched(inside.Add(-time.Hour)), touched(created)), ""},
		"it is too old by its last change":      {"30m", days(old, touched(inside.Add(-time.Hour))), "may be at most 30m0s old"},
		"it is young by its annotation":         {"2h", days(old, known(text(inside.Add(-time.Hour)))), ""},
		"it is too old by its annotation alone": {"30m", days(touched(inside), known(text(inside.Add(-time.Hour)))), "may be at most 30m0s old"},
		"an annotation that is no time closes":  {"", days(known("today")), "annotation capi-refit.dev/calendar-updated: "},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(fleet(map[string]states{"w": {}}, nil), saturdays("a", calendar(tc.maxAge)))...)
			w.policies.Live = &api{Reader: w, days: tc.days}
			require.Equal(t, calendarRefresh, w.Reread("a").RequeueAfter)
			d := w.ask("w")
			require.False(t, d.Open)
			if tc.says == "" {
				require.Equal(t, schedule.Excluded, d.Reason, d.Message)
				return
			}
			require.Equal(t, schedule.InvalidPolicy, d.Reason)
			require.Contains(t, d.Message, "maintenanceSchedule.exclude[0].calendar")
			require.Contains(t, d.Message, tc.says)
		})
	}
}

func TestCalendarsAreReadAgain(t *testing.T) {
	later := days(func(cm *corev1.ConfigMap) { cm.Data["off.ics"] = "BEGIN:VCALENDAR\r\nEND:VCALENDAR" })
	w := newWorld(t, append(fleet(map[string]states{"w": {}}, nil), saturdays("a", calendar("2h")))...)
	server := &api{Reader: w}
	w.policies.Live = server
	for _, step := range []struct {
		days   *corev1.ConfigMap
		after  time.Duration
		reason schedule.Reason
	}{
		{nil, 0, schedule.InvalidPolicy},
		{days(), 0, schedule.Excluded},
		{later, 0, schedule.Open},
		{later, 2 * time.Hour, schedule.InvalidPolicy}, // nobody has said since that it is right
		{days(func(cm *corev1.ConfigMap) { cm.CreationTimestamp = metav1.NewTime(inside.Add(time.Hour)) }), 2 * time.Hour, schedule.Excluded},
		{nil, 0, schedule.InvalidPolicy},
	} {
		server.days = step.days
		w.Reread("a")
		w.Clock.SetTime(inside.Add(step.after))
		require.Equal(t, step.reason, w.ask("w").Reason)
	}
}

// TestACalendarThatCannotBeReadForTheMoment stays what it was for a while, and not when the API server's answer is a no.
func TestACalendarThatCannotBeReadForTheMoment(t *testing.T) {
	resource := schema.GroupResource{Resource: "configmaps"}
	for name, tc := range map[string]struct {
		err   error
		after time.Duration
		want  schedule.Reason
	}{
		"the API server is away":       {errDown, calendarKept, schedule.Excluded},
		"it is away for long":          {errDown, calendarKept + time.Second, schedule.InvalidPolicy},
		"it is busy":                   {apierrors.NewTooManyRequests("busy", 1), time.Second, schedule.Excluded},
		"it fails":                     {apierrors.NewInternalError(errDown), time.Second, schedule.Excluded},
		"the ConfigMap is gone":        {apierrors.NewNotFound(resource, "days"), time.Second, schedule.InvalidPolicy},
		"refit may not read it":        {apierrors.NewForbidden(resource, "days", nil), time.Second, schedule.InvalidPolicy},
		"refit is not let in any more": {apierrors.NewUnauthorized("expired"), time.Second, schedule.InvalidPolicy},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(fleet(map[string]states{"w": {}}, nil), saturdays("a", calendar("")))...)
			server := &api{Reader: w, days: days()}
			w.policies.Live = server
			w.Reread("a")
			require.Equal(t, schedule.Excluded, w.ask("w").Reason)
			server.err = tc.err
			w.Clock.SetTime(inside.Add(tc.after))
			w.Reread("a")
			require.Equal(t, tc.want, w.ask("w").Reason)
		})
	}
}

// TestPoliciesAreReadWhileTheyAreUsed has the race detector look at what readers share with writers.
func TestPoliciesAreReadWhileTheyAreUsed(t *testing.T) {
	var objects []client.Object
	for i := range 20 {
		objects = append(objects, saturdays(fmt.Sprintf("p%02d", i)))
	}
	w := newWorld(t, objects...)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 50 {
				w.Reread(fmt.Sprintf("p%02d", 5*i))
			}
		})
		wg.Go(func() {
			for range 500 {
				if got := w.selected(map[string]string{"i": fmt.Sprint(i)}); len(got) != 20 || got[0] != "p00" {
					t.Errorf("%v", got)
				}
			}
		})
	}
	wg.Wait()
}

package changemanagement

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/policykind/policykindtest"
	"github.com/capi-refit/refit/schedule"
)

// review has a policy reviewed as an API server asks about it. before is what it was; nil if it is made.
func (a *Admission) review(t *testing.T, before, after client.Object) admission.Response {
	t.Helper()
	raw := func(o client.Object) []byte {
		kind := "ChangeManagementPolicy"
		if o.GetNamespace() == "" {
			kind = clusterKind
		}
		o.GetObjectKind().SetGroupVersionKind(refitv1.GroupVersion.WithKind(kind))
		data, err := json.Marshal(o)
		require.NoError(t, err)
		return data
	}
	r := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: raw(after)}}}
	if before != nil {
		r.Operation, r.OldObject.Raw = admissionv1.Update, raw(before)
	}
	gvk := after.GetObjectKind().GroupVersionKind()
	r.Kind = metav1.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind}
	return a.Handle(t.Context(), r)
}

// told returns why a policy is refused.
func told(r admission.Response) string {
	if r.Result == nil {
		return ""
	}
	return r.Result.Message
}

func permitting(p schedule.Permit) edit {
	return func(s *spec) { s.MaintenanceSchedule.Permit = []schedule.Permit{p} }
}

func TestPoliciesThatNeverOpenAreNotAdmitted(t *testing.T) {
	daily := saturdays
	for name, tc := range map[string]struct {
		policy client.Object
		says   string // why it is refused; empty: it is not
		warns  string
	}{
		"a window each week":                {saturdays("p"), "", ""},
		"nothing but a strategy":            {anytime("p"), "", ""},
		"closed on purpose":                 {never("p"), "", ""},
		"closed until somebody permits":     {policy("p", schedule.ManualStrategy), "", ""},
		"closed by an empty list":           {saturdays("p", func(s *spec) { s.MaintenanceSchedule.Permit = []schedule.Permit{} }), "", ""},
		"a zone that is none":               {onMars("p"), "spec.maintenanceSchedule.timeZone: Invalid value: ", ""},
		"a rule that is none":               {daily("p", permitting(schedule.Permit{Recurrence: "FREQ=WEEKLY;BYDAY=XX"})), "spec.maintenanceSchedule.permit[0].recurrence: Invalid value: ", ""},
		"a rule that schemas don't look at": {daily("p", permitting(schedule.Permit{Recurrence: "FREQ=WEEKLY;BYMONTHDAY=40"})), "spec.maintenanceSchedule.permit[0].recurrence", ""},
		"a day that there is not":           {daily("p", permitting(schedule.Permit{Recurrence: "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"})), "spec.maintenanceSchedule: Invalid value: no window opens within 1000 days", ""},
		"windows that have ended":           {daily("p", permitting(schedule.Permit{Recurrence: "FREQ=WEEKLY;BYDAY=SA;UNTIL=20200101"})), "no window opens within 1000 days", ""},
		"a freeze of years": {saturdays("p", func(s *spec) {
			s.MaintenanceSchedule.Exclude = []schedule.Exclude{{From: "2026-01-01", Until: "2036-01-01"}}
		}), "no window opens within 1000 days", ""},
		"no window is long enough": {saturdays("p", expects("9h")), "", "no window within 1000 days is as long as the update is expected to take"},
		"one of two that is over": {saturdays("p", func(s *spec) {
			s.MaintenanceSchedule.Permit = append(s.MaintenanceSchedule.Permit, schedule.Permit{Recurrence: "FREQ=DAILY;UNTIL=20200101"})
		}), "", "spec.maintenanceSchedule.permit[1]: FREQ=DAILY;UNTIL=20200101 has had its last window. Take the permit away"},
		"windows for some changes only": {saturdays("p", upTo("Restart")), "", ""},
		"a freeze of years for some": {saturdays("p", func(s *spec) {
			s.MaintenanceSchedule.Exclude = []schedule.Exclude{{From: "2026-01-01", Until: "2036-01-01", Changes: &schedule.ExcludedChanges{MinDisruption: "Reboot"}}}
		}), "", ""},
		"windows for some that have ended": {daily("p", permitting(schedule.Permit{Recurrence: "FREQ=DAILY;UNTIL=20200101"}), upTo("Restart")), "no window opens within 1000 days", ""},
		"one that is over, of some changes": {saturdays("p", upTo("Restart"), func(s *spec) {
			s.MaintenanceSchedule.Permit = append(s.MaintenanceSchedule.Permit, schedule.Permit{Recurrence: "FREQ=DAILY;UNTIL=20200101"})
		}), "", "spec.maintenanceSchedule.permit[1]: FREQ=DAILY;UNTIL=20200101 has had its last window. Take the permit away"},
		"weekly, on whatever day": {daily("p", permitting(schedule.Permit{Recurrence: "FREQ=WEEKLY"})), "", "names no day of the week, and is on "},
		"two things at once":      {onMars("p", jitter("0h0s"), permitting(schedule.Permit{Recurrence: "FREQ=WEEKLY;BYDAY=SA", Duration: "1h"})), "timeZone", ""},
		"a selector that is none": {anytime("p", func(s *spec) {
			s.Selector.Machines.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}
		}), "spec.selector.machines", ""},
		"of the platform":                 {platform(saturdays("p")), "", ""},
		"of the platform, and invalid":    {platform(onMars("p")), "ClusterChangeManagementPolicy.capi-refit.dev \"p\" is invalid: spec.maintenanceSchedule.timeZone", ""},
		"of the platform, for namespaces": {platform(anytime("p"), inProd), "", ""},
		"of the platform, with a selector": {platform(anytime("p"), func(p *refitv1.ClusterChangeManagementPolicy) {
			p.Spec.NamespaceSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}
		}), "spec.namespaceSelector", ""},
		"of the platform, Manual":                {platform(policy("p", schedule.ManualStrategy)), "strategy Manual needs overrides: Allow", ""},
		"more windows than an API server takes":  {saturdays("p", func(s *spec) { s.MaintenanceSchedule.Permit = make([]schedule.Permit, 51) }), "no API server takes it", ""},
		"a strategy that an API server does not": {policy("p", "Sometimes"), "no API server takes it", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a := &Admission{Live: w.Client, Clock: w.Clock, Namespace: "refit-system"}
			r := a.review(t, nil, tc.policy)
			require.Equal(t, tc.says == "", r.Allowed, told(r))
			if tc.says != "" {
				require.Contains(t, told(r), tc.says)
			}
			if tc.warns == "" {
				require.Empty(t, r.Warnings)
			} else {
				require.Contains(t, fmt.Sprint(r.Warnings), tc.warns)
			}
		})
	}
}

// TestWhatIsThereAlreadyIsLetBe demands that a policy can be annotated, shown and deleted that would not be admitted now.
func TestWhatIsThereAlreadyIsLetBe(t *testing.T) {
	over := saturdays("p", permitting(schedule.Permit{Recurrence: "FREQ=WEEKLY;BYDAY=SA;UNTIL=20200101"}))
	changed := func(edits ...func(*refitv1.ChangeManagementPolicy)) *refitv1.ChangeManagementPolicy {
		p := over.DeepCopy()
		for _, e := range edits {
			e(p)
		}
		return p
	}
	other := func(p *refitv1.ChangeManagementPolicy) { p.Spec.Jitter = "1m" }
	for name, tc := range map[string]struct {
		after   *refitv1.ChangeManagementPolicy
		allowed bool
	}{
		"annotated":                 {changed(func(p *refitv1.ChangeManagementPolicy) { p.Annotations = map[string]string{"a": "b"} }), true},
		"with a finalizer":          {changed(func(p *refitv1.ChangeManagementPolicy) { p.Finalizers = []string{refitv1.GraceFinalizer} }), true},
		"with another status":       {changed(func(p *refitv1.ChangeManagementPolicy) { p.Status.ObservedGeneration = 7 }), true},
		"with another spec":         {changed(other), false},
		"with one, and it is going": {changed(other, func(p *refitv1.ChangeManagementPolicy) { p.DeletionTimestamp = &metav1.Time{Time: inside} }), true},
		"put right":                 {saturdays("p"), true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a := &Admission{Live: w.Client, Clock: w.Clock}
			r := a.review(t, over, tc.after)
			require.Equal(t, tc.allowed, r.Allowed, told(r))
		})
	}
	w := newWorld(t)
	a := &Admission{Live: w.Client, Clock: w.Clock}
	// One that this version of refit can't read.
	const odd = `"apiVersion":"capi-refit.dev/v1alpha1","kind":"ChangeManagementPolicy","spec":{"strategy":7}`
	for after, allowed := range map[string]bool{
		`{"metadata":{"name":"p","annotations":{"a":"b"}},` + odd + `}`:                                                  true,
		`{"metadata":{"name":"p","deletionTimestamp":"2026-10-03T20:00:00Z"},` + strings.Replace(odd, "7", "8", 1) + `}`: true,
		`{"metadata":{"name":"p"},` + strings.Replace(odd, "7", "8", 1) + `}`:                                            false,
	} {
		r := a.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Operation: admissionv1.Update, Kind: metav1.GroupVersionKind{Group: "capi-refit.dev", Version: "v1alpha1", Kind: "ChangeManagementPolicy"},
			Object: runtime.RawExtension{Raw: []byte(after)}, OldObject: runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"p"},` + odd + `}`)},
		}})
		require.Equal(t, allowed, r.Allowed, after)
	}
	require.True(t, a.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Delete}}).Allowed)
	require.True(t, a.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Update, SubResource: "status"}}).Allowed)
}

// TestWhatIsNoReviewOfAPolicy is refused, and nothing is read for it.
func TestWhatIsNoReviewOfAPolicy(t *testing.T) {
	a := &Admission{}
	for name, tc := range map[string]struct {
		kind metav1.GroupVersionKind
		raw  string
		says string
	}{
		"another kind":    {metav1.GroupVersionKind{Group: "capi-refit.dev", Version: "v1alpha1", Kind: "MachineUpdate"}, "{}", "MachineUpdate is no kind of policy"},
		"another version": {metav1.GroupVersionKind{Group: "capi-refit.dev", Version: "v2", Kind: "ChangeManagementPolicy"}, "{}", "capi-refit.dev/v2 is not capi-refit.dev/v1alpha1"},
		"another group":   {metav1.GroupVersionKind{Version: "v1", Kind: "Secret"}, "{}", "/v1 is not"},
		"no object":       {metav1.GroupVersionKind{Group: "capi-refit.dev", Version: "v1alpha1", Kind: "ChangeManagementPolicy"}, "[", "unexpected end of JSON input"},
	} {
		t.Run(name, func(t *testing.T) {
			r := a.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Create, Kind: tc.kind, Object: runtime.RawExtension{Raw: []byte(tc.raw)}}})
			require.False(t, r.Allowed)
			require.Contains(t, told(r), tc.says)
		})
	}
}

// TestCalendarsThatAreAdmitted: one that is missing may come after the policy, and what is in one is not told.
func TestCalendarsThatAreAdmitted(t *testing.T) {
	const secret = "hunter2"
	calendar := func(namespace, content string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: objectMeta{Namespace: namespace, Name: "freezes", CreationTimestamp: metav1.NewTime(created)}, Data: map[string]string{"c.ics": content}}
	}
	excluding := func(n int, maxAge string) edit {
		return func(s *spec) {
			for range n {
				s.MaintenanceSchedule.Exclude = append(s.MaintenanceSchedule.Exclude, schedule.Exclude{
					Calendar: &schedule.CalendarReference{ConfigMap: schedule.ConfigMapKey{Name: "freezes", Key: "c.ics"}, MaxAge: maxAge},
				})
			}
		}
	}
	for name, tc := range map[string]struct {
		policy  client.Object
		objects []client.Object
		down    bool
		says    string
		warns   string
	}{
		"one that can be read":             {saturdays("p", excluding(1, "")), []client.Object{calendar("fleet", noEvents)}, false, "", ""},
		"one that is not there":            {saturdays("p", excluding(1, "")), nil, false, "", `spec.maintenanceSchedule.exclude[0].calendar.configMap: ConfigMap freezes can't be read in namespace "fleet" now`},
		"of another namespace":             {saturdays("p", excluding(1, "")), []client.Object{calendar("other", noEvents)}, false, "", "can't be read"},
		"an API server that does not say":  {saturdays("p", excluding(1, "")), []client.Object{calendar("fleet", noEvents)}, true, "", "can't be read"},
		"one that is none":                 {saturdays("p", excluding(1, "")), []client.Object{calendar("fleet", secret)}, false, "spec.maintenanceSchedule.exclude[0].calendar.configMap: Invalid value: key c.ics of ConfigMap freezes is no calendar", ""},
		"one that is half":                 {saturdays("p", excluding(1, "")), []client.Object{calendar("fleet", "BEGIN:VCALENDAR\r\nX-"+secret)}, false, "is no calendar", ""},
		"a key that is not there":          {saturdays("p", excluding(1, "")), []client.Object{&corev1.ConfigMap{ObjectMeta: objectMeta{Namespace: "fleet", Name: "freezes"}}}, false, "has no key c.ics", ""},
		"one that is too old":              {saturdays("p", excluding(1, "24h")), []client.Object{calendar("fleet", noEvents)}, false, "", "older than maxAge"},
		"more than are looked at":          {saturdays("p", excluding(mostCalendars+1, "")), []client.Object{calendar("fleet", noEvents)}, false, "", "exclude[10].calendar.configMap and what comes after it was not looked at"},
		"of the platform":                  {platform(saturdays("p", excluding(1, ""))), []client.Object{calendar("refit-system", noEvents)}, false, "", ""},
		"of the platform, elsewhere":       {platform(saturdays("p", excluding(1, ""))), []client.Object{calendar("fleet", noEvents)}, false, "", `in namespace "refit-system"`},
		"of the platform, and it is wrong": {platform(saturdays("p", excluding(1, ""))), []client.Object{calendar("refit-system", secret)}, false, "is no calendar", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.objects...)
			w.Down = tc.down
			a := &Admission{Live: w, Clock: w.Clock, Namespace: "refit-system"}
			r := a.review(t, nil, tc.policy)
			require.Equal(t, tc.says == "", r.Allowed, told(r))
			require.Contains(t, told(r), tc.says)
			if tc.warns == "" {
				require.Empty(t, r.Warnings)
			} else {
				require.Contains(t, fmt.Sprint(r.Warnings), tc.warns)
			}
			require.NotContains(t, fmt.Sprint(r), secret)
			require.NotContains(t, fmt.Sprint(r), policykindtest.ErrDown.Error())
		})
	}
}

// TestTheBoundsOfAnAPIServerHoldForWhoIsNone: what is read of a review is what was checked of it, however it is spelled.
func TestTheBoundsOfAnAPIServerHoldForWhoIsNone(t *testing.T) {
	many := `{"strategy":"MaintenanceSchedule","maintenanceSchedule":{"timeZone":"UTC","permit":[` + strings.Repeat(`{"recurrence":"none"},`, 2000) + `{"recurrence":"none"}]}}`
	const head = `"apiVersion":"capi-refit.dev/v1alpha1","metadata":{"name":"p","namespace":"fleet"}`
	for name, tc := range map[string]struct{ raw, says string }{
		"as it is":         {`{` + head + `,"kind":"ChangeManagementPolicy","spec":` + many + `}`, `no API server takes it`},
		"in upper case":    {`{` + head + `,"kind":"ChangeManagementPolicy","spec":{"strategy":"Permissive"},"Spec":` + many + `}`, ``},
		"deeper":           {`{` + head + `,"kind":"ChangeManagementPolicy","spec":` + strings.Replace(many, `"permit"`, `"Permit"`, 1) + `}`, ``},
		"twice":            {`{` + head + `,"kind":"ChangeManagementPolicy","spec":` + many + `,"spec":{"strategy":"MaintenanceSchedule"}}`, ``},
		"of another kind":  {`{` + head + `,"kind":"NodeDisruptionPolicy","spec":` + many + `}`, `the object is of kind "NodeDisruptionPolicy"`},
		"of the other one": {`{` + head + `,"kind":"ClusterChangeManagementPolicy","spec":{"strategy":"Permissive"}}`, `the object is of kind "Cluster`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a := &Admission{Live: w.Client, Clock: w.Clock}
			r := a.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Create, Kind: metav1.GroupVersionKind{Group: "capi-refit.dev", Version: "v1alpha1", Kind: "ChangeManagementPolicy"},
				Object: runtime.RawExtension{Raw: []byte(tc.raw)},
			}})
			require.NotContains(t, told(r), `"p" is invalid`, "nobody has read it")
			require.Contains(t, told(r), tc.says)
			require.Equal(t, tc.says == "", r.Allowed)
		})
	}
}

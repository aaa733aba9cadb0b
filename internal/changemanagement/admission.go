package changemanagement

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json" // whose field names are case-sensitive
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/apischema"
	"github.com/capi-refit/refit/internal/schedulelint"
	"github.com/capi-refit/refit/schedule"
)

// Admission says of policies of both kinds, before an API server takes them, what would close them: what can't be read, and windows that never open. Who
// asks is not known, so that nothing is told but what is wrong with the policy that is sent, and of a calendar, whether it can be read.
type Admission struct {
	// Live reads calendars from the API server.
	Live  client.Reader
	Clock clock.PassiveClock
	// Namespace is refit's own, which has the calendars of policies of the platform.
	Namespace string
}

var _ admission.Handler = (*Admission)(nil)

// admitted is a policy of either kind that is to be admitted.
type admitted struct {
	name string
	of   *refitv1.ChangeManagementPolicySpec
	// calendars is the namespace with its calendars.
	calendars string
	compile   func(schedule.Calendars) (*Policy, error)
}

// Handle implements admission.Handler. What was there before is let be: a policy whose windows have ended must be annotated, shown, and deleted all the
// same.
func (a *Admission) Handle(ctx context.Context, r admission.Request) admission.Response {
	if r.Operation != admissionv1.Create && r.Operation != admissionv1.Update || r.SubResource != "" {
		return admission.Allowed("")
	}
	after, err := contentOf(r, r.Object.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if after.GetDeletionTimestamp() != nil {
		return admission.Allowed("it is being deleted")
	}
	if r.Operation == admissionv1.Update {
		if before, err := contentOf(r, r.OldObject.Raw); err == nil && equality.Semantic.DeepEqual(before.Object["spec"], after.Object["spec"]) {
			return admission.Allowed("the spec is what it was")
		}
	}
	p, err := a.read(after)
	if err != nil {
		return admission.Errored(http.StatusUnprocessableEntity, err)
	}
	return a.judge(ctx, r.Kind.Kind, p)
}

// contentOf returns what an object has, without a type: one that no version of refit can read is to be annotated and deleted as well.
func contentOf(r admission.Request, raw []byte) (*unstructured.Unstructured, error) {
	if r.Kind.Group != refitv1.GroupVersion.Group || r.Kind.Version != refitv1.GroupVersion.Version {
		return nil, fmt.Errorf("%s/%s is not %s", r.Kind.Group, r.Kind.Version, refitv1.GroupVersion)
	}
	if r.Kind.Kind != policyKind && r.Kind.Kind != clusterKind {
		return nil, fmt.Errorf("%s is no kind of policy that is known here", r.Kind.Kind)
	}
	var out unstructured.Unstructured
	if err := json.Unmarshal(raw, &out.Object); err != nil {
		return nil, err
	}
	if kind := out.GetKind(); kind != r.Kind.Kind {
		return nil, fmt.Errorf("the object is of kind %q, and the review of %s", kind, r.Kind.Kind)
	}
	return &out, nil
}

// read reads a policy. What is read is what was checked, and nothing that is there twice, or in another spelling, which decoders take differently: an
// API server has looked before, and for anybody else its bounds hold, too, of how many windows there are, and how long texts.
func (a *Admission) read(content *unstructured.Unstructured) (*admitted, error) {
	raw, err := json.Marshal(content.Object)
	if err != nil {
		return nil, err
	}
	if err := new(apischema.Checker).Check(raw); err != nil {
		return nil, fmt.Errorf("no API server takes it: %w", err)
	}
	if content.GetKind() == clusterKind {
		p := &refitv1.ClusterChangeManagementPolicy{}
		err := json.Unmarshal(raw, p)
		return &admitted{
			name: p.Name, of: &p.Spec.ChangeManagementPolicySpec, calendars: a.Namespace,
			compile: func(c schedule.Calendars) (*Policy, error) { return CompileCluster(p, c) },
		}, err
	}
	p := &refitv1.ChangeManagementPolicy{}
	err = json.Unmarshal(raw, p)
	return &admitted{
		name: p.Name, of: &p.Spec, calendars: p.Namespace,
		compile: func(c schedule.Calendars) (*Policy, error) { return Compile(p, c) },
	}, err
}

// judge says what is wrong with a policy.
func (a *Admission) judge(ctx context.Context, kind string, p *admitted) admission.Response {
	now := a.Clock.Now()
	read, err := p.compile(emptyCalendars(now))
	if err != nil {
		return refused(kind, p.name, fieldErrors(err)...)
	}
	var warnings []string
	some := read.Schedule.Widest() // a policy may be for some changes only
	switch d := schedule.Decide(schedule.Query{Now: now}, some); d.Reason {
	case schedule.NoWindowWithinHorizon:
		return refused(kind, p.name, wrong("maintenanceSchedule", "no window opens within 1000 days, so that nothing ever starts; if that is what you want, set strategy: Restrictive"))
	case schedule.NeverFits:
		warnings = append(warnings, "nothing starts as long as nothing else was measured: "+d.Message)
	default:
	}
	for _, d := range schedulelint.Permits(now, some, p.of.MaintenanceSchedule) {
		warnings = append(warnings, "spec."+d.Field+": "+d.Message+". "+d.Remedy)
	}
	said, errs := a.calendars(ctx, now, p)
	if len(errs) > 0 {
		return refused(kind, p.name, errs...)
	}
	return admission.Allowed("").WithWarnings(append(warnings, said...)...)
}

// refused is the answer about a policy that is wrong, as an API server tells of what it refuses itself.
func refused(kind, name string, errs ...*field.Error) admission.Response {
	status := apierrors.NewInvalid(schema.GroupKind{Group: refitv1.GroupVersion.Group, Kind: kind}, name, errs).Status()
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &status}}
}

// wrong returns an error of a field of a spec.
func wrong(name, detail string) *field.Error {
	return &field.Error{Type: field.ErrorTypeInvalid, Field: "spec." + name, BadValue: field.OmitValueType{}, Detail: detail}
}

// fieldErrors returns what is wrong by the fields.
func fieldErrors(err error) []*field.Error {
	var one *schedule.FieldError
	var many interface{ Unwrap() []error }
	switch {
	case errors.As(err, &many) && !isField(err):
		var all []*field.Error
		for _, e := range many.Unwrap() {
			all = append(all, fieldErrors(e)...)
		}
		return all
	case errors.As(err, &one):
		return []*field.Error{wrong(one.Field, one.Err.Error())}
	default:
		return []*field.Error{{Type: field.ErrorTypeInvalid, Field: "spec", BadValue: field.OmitValueType{}, Detail: err.Error()}}
	}
}

func isField(err error) bool {
	_, is := err.(*schedule.FieldError) //nolint:errorlint // what it is itself, and not what is in it
	return is
}

// mostCalendars is how many calendars are looked at for a policy. They may be large, and whoever reaches the port can ask.
const mostCalendars = 10

// noEvents is a calendar in which nothing is.
const noEvents = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//refit//admission//EN\r\nEND:VCALENDAR\r\n"

// emptyCalendars have any calendar, in which nothing is.
func emptyCalendars(now time.Time) schedule.Calendars {
	return schedule.CalendarsFunc(func(schedule.ConfigMapKey) (schedule.Calendar, error) {
		return schedule.Calendar{Data: []byte(noEvents), Modified: now}, nil
	})
}

// calendars looks at the calendars of a policy that can be read otherwise. One that can't be found is a warning: who brings it may do so after the policy.
// One that is there and can't be read is an error.
func (a *Admission) calendars(ctx context.Context, now time.Time, p *admitted) (warnings []string, errs []*field.Error) {
	if p.of.MaintenanceSchedule == nil {
		return nil, nil
	}
	looked := 0
	for i, x := range p.of.MaintenanceSchedule.Exclude {
		if x.Calendar == nil {
			continue
		}
		name := fmt.Sprintf("maintenanceSchedule.exclude[%d].calendar.configMap", i)
		if looked++; looked > mostCalendars {
			return append(warnings, name+" and what comes after it was not looked at: the condition Ready tells whether it can be read"), errs
		}
		warning, bad := a.calendar(ctx, now, p, x)
		if bad != "" {
			errs = append(errs, wrong(name, bad))
		}
		if warning != "" {
			warnings = append(warnings, "spec."+name+": "+warning)
		}
	}
	return warnings, errs
}

// calendar returns what is to be said of a calendar, and what is wrong with it. What is in it is not told.
func (a *Admission) calendar(ctx context.Context, now time.Time, p *admitted, x schedule.Exclude) (warning, bad string) {
	ref := x.Calendar.ConfigMap
	calendar, err := readCalendarOnce(ctx, a.Live, p.calendars, ref)
	switch {
	case errors.Is(err, errUnreadable):
		return "", fmt.Sprintf("ConfigMap %s has no key %s, or an annotation %s that is no time", ref.Name, ref.Key, refitv1.CalendarUpdatedAnnotation)
	case err != nil:
		return fmt.Sprintf("ConfigMap %s can't be read in namespace %q now; until it can, the policy is closed", ref.Name, p.calendars), ""
	}
	only := schedule.Policy{Strategy: schedule.MaintenanceScheduleStrategy, MaintenanceSchedule: &schedule.MaintenanceSchedule{
		TimeZone: p.of.MaintenanceSchedule.TimeZone, Exclude: []schedule.Exclude{x},
	}}
	s, err := schedule.Compile(p.name, only, schedule.CalendarsFunc(func(schedule.ConfigMapKey) (schedule.Calendar, error) { return calendar, nil }))
	switch {
	case err != nil:
		return "", fmt.Sprintf("key %s of ConfigMap %s is no calendar that can be read; of the two files, refit schedule lint tells why", ref.Key, ref.Name)
	case s.Err(now) != nil:
		return "the calendar is older than maxAge, or of a time to come; until that is mended, the policy is closed", ""
	default:
		return "", ""
	}
}

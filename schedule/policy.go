package schedule

import (
	"fmt"
	"time"
)

// Strategy is how a policy decides.
type Strategy string

// The strategies.
const (
	MaintenanceScheduleStrategy Strategy = "MaintenanceSchedule" // in the windows of the maintenance schedule
	PermissiveStrategy          Strategy = "Permissive"          // always
	RestrictiveStrategy         Strategy = "Restrictive"         // never
	ManualStrategy              Strategy = "Manual"              // when somebody permits the change
)

// Fit is what becomes of an update that is expected to take longer than what is left of the window.
type Fit string

// The ways to fit.
const (
	FitRequired Fit = "Required" // it waits for a window that is long enough; the default
	FitWarn     Fit = "Warn"     // it starts, and the decision says so
	FitOff      Fit = "Off"      // no one asks
)

// Policy is the part of a ChangeManagementPolicy's spec that decides when. Times and durations are written as their users
// write them; Compile reads them and names the field that it can't read. What is read here is also what the CRD has, so that
// there is one definition; the markers are for the CRD.
//
// +kubebuilder:object:generate=true
type Policy struct {
	// strategy says how the policy decides: MaintenanceSchedule in the windows of maintenanceSchedule, Permissive always,
	// Restrictive never, Manual when somebody has permitted the change (refit permit).
	// +required
	// +kubebuilder:validation:Enum=MaintenanceSchedule;Permissive;Restrictive;Manual
	Strategy Strategy `json:"strategy,omitempty"`

	// maintenanceSchedule has the windows. With neither permit nor exclude the policy is restrictive.
	// +optional
	MaintenanceSchedule *MaintenanceSchedule `json:"maintenanceSchedule,omitempty"`

	// fit says what becomes of an update that is expected to take longer than what is left of the window: Required has it
	// wait for a window that is long enough, Warn starts it and says so, Off does not ask.
	// +optional
	// +kubebuilder:validation:Enum=Required;Warn;Off
	// +kubebuilder:default=Required
	Fit Fit `json:"fit,omitempty"`

	// expectedDuration is how long an update takes, such as 20m, until enough updates of the same role and kind were
	// measured. Then it is what 95 of 100 of them took at most.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(h|m|s))+$`
	ExpectedDuration string `json:"expectedDuration,omitempty"`
}

// MaintenanceSchedule is the union of what is permitted, without what is excluded. Without permits everything is permitted
// but the excludes; with a list of permits that is empty, nothing is.
//
// +kubebuilder:object:generate=true
type MaintenanceSchedule struct {
	// timeZone of all dates and times, by its IANA name, such as Europe/Berlin. By default it is UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`

	// permit lists the windows. They are joined; those that touch are one.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Permit []Permit `json:"permit,omitzero"`

	// exclude lists the freezes. They are taken out of what is permitted, and may split a window.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Exclude []Exclude `json:"exclude,omitempty"`
}

// Permit is a window that recurs. It belongs to the day on which it starts.
//
// +kubebuilder:validation:XValidation:rule="!self.recurrence.upperAscii().contains('COUNT=') || has(self.startDate)",message="COUNT needs a startDate to count from"
// +kubebuilder:validation:XValidation:rule="!has(self.duration) || duration(self.duration) > duration('0s')",message="duration must be longer than nothing"
// +kubebuilder:object:generate=true
type Permit struct {
	// recurrence is a rule of RFC 5545, such as FREQ=MONTHLY;BYDAY=1SA: DAILY, WEEKLY, MONTHLY or YEARLY, with INTERVAL,
	// BYDAY, BYMONTHDAY, BYMONTH, BYSETPOS, WKST, UNTIL and COUNT.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^([^;]+;)*[Ff][Rr][Ee][Qq]=([Dd][Aa][Ii][Ll][Yy]|[Ww][Ee][Ee][Kk][Ll][Yy]|[Mm][Oo][Nn][Tt][Hh][Ll][Yy]|[Yy][Ee][Aa][Rr][Ll][Yy])(;.*)?$`
	Recurrence string `json:"recurrence"`

	// startDate anchors INTERVAL and COUNT, such as 2026-01-03. By default it is 1970-01-01.
	// +optional
	// +kubebuilder:validation:MaxLength=10
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}$`
	StartDate string `json:"startDate,omitempty"`

	// startTime is a local time, such as 20:00. By default it is midnight.
	// +optional
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?$`
	StartTime string `json:"startTime,omitempty"`

	// duration is elapsed time, such as 8h. By default the window lasts to the next local midnight.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(h|m|s))+$`
	Duration string `json:"duration,omitempty"`

	// changes is which changes the window is for. By default it is for all.
	// +optional
	Changes *PermittedChanges `json:"changes,omitempty"`
}

// Exclude is a freeze: either days, or a calendar.
//
// +kubebuilder:validation:XValidation:rule="has(self.from) != has(self.calendar)",message="an exclude is either days, with from, or a calendar"
// +kubebuilder:validation:XValidation:rule="!has(self.until) || (has(self.from) && self.until > self.from)",message="until is the day after the last one, and so after from"
// +kubebuilder:object:generate=true
type Exclude struct {
	// from is the first day, such as 2026-12-20.
	// +optional
	// +kubebuilder:validation:MaxLength=10
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}$`
	From string `json:"from,omitempty"`

	// until is the day after the last. By default it is the day after from.
	// +optional
	// +kubebuilder:validation:MaxLength=10
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}$`
	Until string `json:"until,omitempty"`

	// reason is what people are told.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`

	// calendar excludes what the events of a calendar cover.
	// +optional
	Calendar *CalendarReference `json:"calendar,omitempty"`

	// changes is which changes are frozen. By default all are.
	// +optional
	Changes *ExcludedChanges `json:"changes,omitempty"`
}

// CalendarReference names an iCalendar file.
//
// +kubebuilder:object:generate=true
type CalendarReference struct {
	// configMap holds the file. It is in the policy's namespace.
	// +required
	ConfigMap ConfigMapKey `json:"configMap"`

	// maxAge is how old the calendar may be before the policy is invalid, and so closed, such as 720h. By default it never
	// is.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(h|m|s))+$`
	MaxAge string `json:"maxAge,omitempty"`
}

// ConfigMapKey names a key of a ConfigMap.
type ConfigMapKey struct {
	// name of the ConfigMap.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// key in the ConfigMap.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
}

// ParseDuration reads a duration, such as 90m. It must be longer than nothing, and whole seconds.
func ParseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a duration; write it as 90m or 8h", s)
	case d <= 0:
		return 0, fmt.Errorf("%s is no time at all", s)
	case d%time.Second != 0:
		return 0, fmt.Errorf("%s is not whole seconds", s)
	}
	return d, nil
}

// parseTimeOfDay returns the seconds since midnight, as clocks show them.
func parseTimeOfDay(s string) (int, error) {
	for _, layout := range []string{"15:04", "15:04:05"} {
		if t, err := time.Parse(layout, s); err == nil && len(s) == len(layout) {
			h, m, sec := t.Clock()
			return h*3600 + m*60 + sec, nil
		}
	}
	return 0, fmt.Errorf("%q is not a time of the day; write it as 20:00", s)
}

// FieldError is a field of a policy that can't be read.
type FieldError struct {
	Field string
	Err   error
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns what is wrong with the field.
func (e *FieldError) Unwrap() error { return e.Err }

func at(field string, err error) error {
	if err == nil {
		return nil
	}
	return &FieldError{Field: field, Err: err}
}

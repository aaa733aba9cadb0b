package schedule

import (
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Strategy is how a policy decides.
type Strategy string

// The strategies.
const (
	MaintenanceScheduleStrategy Strategy = "MaintenanceSchedule" // in the windows of the maintenance schedule
	PermissiveStrategy          Strategy = "Permissive"          // always
	RestrictiveStrategy         Strategy = "Restrictive"         // never
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
// write them; Compile reads them and names the field that it can't read.
type Policy struct {
	Strategy            Strategy             `json:"strategy,omitempty"`
	MaintenanceSchedule *MaintenanceSchedule `json:"maintenanceSchedule,omitempty"`
	Fit                 Fit                  `json:"fit,omitempty"`
	ExpectedDuration    string               `json:"expectedDuration,omitempty"`
}

// MaintenanceSchedule is the union of what is permitted, without what is excluded. Without permits everything is permitted
// but the excludes; with a list of permits that is empty, nothing is.
type MaintenanceSchedule struct {
	TimeZone string    `json:"timeZone,omitempty"`
	Permit   []Permit  `json:"permit,omitzero"`
	Exclude  []Exclude `json:"exclude,omitempty"`
}

// Permit is a window that recurs.
type Permit struct {
	// Recurrence is a rule of RFC 5545, such as FREQ=MONTHLY;BYDAY=1SA.
	Recurrence string `json:"recurrence"`
	// StartDate anchors INTERVAL and COUNT. By default it is 1970-01-01.
	StartDate string `json:"startDate,omitempty"`
	// StartTime is a local time, 15:04. By default it is midnight.
	StartTime string `json:"startTime,omitempty"`
	// Duration is elapsed time. By default the window lasts to the next local midnight.
	Duration string `json:"duration,omitempty"`
}

// Exclude is a freeze: either days, or a calendar.
type Exclude struct {
	// From is the first day.
	From string `json:"from,omitempty"`
	// Until is the day after the last. By default it is the day after From.
	Until string `json:"until,omitempty"`
	// Reason is what the decision says.
	Reason string `json:"reason,omitempty"`
	// Calendar excludes what the events of a calendar cover.
	Calendar *CalendarReference `json:"calendar,omitempty"`
}

// CalendarReference names an iCalendar file.
type CalendarReference struct {
	ConfigMap ConfigMapKey `json:"configMap"`
	// MaxAge is how old the calendar may be before the policy is invalid, and so closed. By default it never is.
	MaxAge string `json:"maxAge,omitempty"`
}

// ConfigMapKey names a key of a ConfigMap.
type ConfigMapKey struct {
	Name string `json:"name"`
	Key  string `json:"key"`
}

// document is a policy's spec, with the fields that are not about when. They are known so that others are not.
type document struct {
	Policy `json:",inline"`

	Selector    any `json:"selector,omitempty"`
	Budget      any `json:"budget,omitempty"`
	Jitter      any `json:"jitter,omitempty"`
	WhenClosed  any `json:"whenClosed,omitempty"`
	Replacement any `json:"replacement,omitempty"`
	MaxOverride any `json:"maxOverride,omitempty"`
}

// DecodePolicy reads the spec of a ChangeManagementPolicy, in YAML or JSON. It names a field that it does not know or that
// is there twice: a word that is mistyped must not open a window.
func DecodePolicy(data []byte) (Policy, error) {
	j, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return Policy{}, err
	}
	var d document
	strict, err := json.UnmarshalStrict(j, &d)
	if err := errors.Join(append(strict, err)...); err != nil {
		return Policy{}, err
	}
	return d.Policy, nil
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

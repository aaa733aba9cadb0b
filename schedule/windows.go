package schedule

import (
	"iter"
	"time"
)

// Windows yields the windows in which all schedules are open, in order: from the first that ends after from, to the last that
// starts before until. They do not touch. A bound is looked for up to DefaultHorizon beyond from and until; one that lies
// further away is zero. No schedule is open, so that there is one window without bounds.
//
// A schedule that is invalid at from has no windows, and neither have those that it is asked together with.
func Windows(from, until time.Time, schedules ...*Schedule) iter.Seq[Window] {
	return func(yield func(Window) bool) {
		if anyInvalid(from, schedules) {
			return
		}
		windowsOf(meet(schedules), from, until, yield)
	}
}

// PastWindows yields, latest first, the windows in which all schedules were open and that had ended at before, back to those
// that ended after limit. A start is looked for up to DefaultHorizon before limit; one that lies further back is zero.
//
// A schedule that is invalid at before has no windows, and neither have those that it is asked together with.
func PastWindows(before, limit time.Time, schedules ...*Schedule) iter.Seq[Window] {
	return func(yield func(Window) bool) {
		if anyInvalid(before, schedules) {
			return
		}
		pastWindowsOf(meet(schedules), before, limit, yield)
	}
}

func anyInvalid(now time.Time, schedules []*Schedule) bool {
	for _, s := range schedules {
		if s.Err(now) != nil {
			return true
		}
	}
	return false
}

func windowsOf(s set, from, until time.Time, yield func(Window) bool) {
	horizon := int64(DefaultHorizon / time.Second)
	first, beyond := from.Unix(), ceilUnix(until)
	for t := first; ; {
		start, ok := firstIn(s, t, beyond-1)
		if !ok {
			return
		}
		known := true
		end, bounded := endOf(s, start, beyond+horizon)
		if start == first {
			start, known = startOf(s, start, first-horizon)
		}
		if !yield(newWindow(start, known, end, bounded)) || !bounded {
			return
		}
		t = end
	}
}

func pastWindowsOf(s set, before, limit time.Time, yield func(Window) bool) {
	last, floor := before.Unix(), limit.Unix()
	lookBack := floor - int64(DefaultHorizon/time.Second)
	t := last
	if in, _ := s.at(t, t); in {
		var ok bool
		if t, ok = startOf(s, t, floor); !ok {
			return // the window that has not ended reaches back to the limit
		}
	}
	for {
		end, ok := lastEnd(s, t, floor)
		if !ok {
			return
		}
		start, known := startOf(s, end-1, lookBack)
		if !yield(newWindow(start, known, end, true)) || !known {
			return
		}
		t = start
	}
}

// newWindow makes a window of bounds that are known, or not.
func newWindow(start int64, known bool, end int64, bounded bool) Window {
	var w Window
	if known {
		w.Start = time.Unix(start, 0).UTC()
	}
	if bounded {
		w.End = time.Unix(end, 0).UTC()
	}
	return w
}

// ceilUnix rounds up, so that what starts in the second of t, but before t, counts as before it.
func ceilUnix(t time.Time) int64 { return t.Add(time.Second - time.Nanosecond).Unix() }

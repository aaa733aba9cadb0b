// Package schedule decides when a node may be disturbed.
//
// A Policy says in which windows; Compile turns it into a Schedule; Decide joins the schedules of all policies that select a
// machine and answers whether the windows are open now, until when, and otherwise when they open next. Windows and
// PastWindows walk the windows themselves, and a Source says which entry of a policy makes one or cuts it.
//
// The laws:
//
//   - A window is [start, end) and belongs to the day on which it starts.
//   - Permits of a policy are joined, excludes are taken out, and policies intersect, each in its own time zone.
//   - A local time in a gap takes the offset from before the gap; one in an overlap is the first of the two.
//   - What can't be read is closed. No error opens a window.
//   - An answer costs the same however far the anchor of a rule lies back.
//
// The package asks nothing: the time, calendars and what else an answer depends on are given to it. The database of time
// zones is embedded, so that a zone is known wherever the binary runs.
package schedule

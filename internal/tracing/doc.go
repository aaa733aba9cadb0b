// Package tracing exports spans of work that several processes do one after the other. A span is made when it has ended, out of times that were
// written down, and its trace and its own ID are derived from what it is about: so the spans of one update join one trace, whichever process
// makes them, and no process needs to know which spans others have made.
package tracing

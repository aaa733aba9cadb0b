// Package fieldset compares current and desired specs as Cluster API compares them, names the differences as field paths,
// and makes patches out of the part of them that is claimed.
//
// It works on decoded JSON and never on Go types of an API, so that fields of a newer API than this program knows are
// differences like any other.
//
// Three laws hold, and are tested as such. Fields are disjoint and complete: a spec that takes every one of them from
// desired equals desired. A patch that covers every field turns current into desired, byte order of lists included. A
// patch that covers none changes nothing.
package fieldset

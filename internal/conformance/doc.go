// Package conformance asks an extension for in-place updates, as Cluster API's managers ask it and as they never would, and says which of a
// list of laws it keeps. It knows nothing of the extension but its URL, and has nothing done to machines unless it is told to.
package conformance

// Package protection keeps others off a node while refit works on it, by markers that they look at, and takes away exactly the
// markers that it has put there.
//
// A marker that is there already stays, with the value that it has, and is not refit's. What refit adds is noted in the
// AddedAnnotation of the same object by the same write, so that there is no time at which a marker of refit is not known to be
// one: after a crash Protect and Release do the rest. A value that somebody has changed since is somebody's. Whoever adds a
// marker with refit's value while refit's is there can't be told from refit.
//
// Updates and people's holds have notes of their own. A marker that both need stays until neither does.
package protection

//go:build race

package machineupdate

// raced says that the race detector watches. It makes each point of a walk take ten times as long, and sees the same code at all of them:
// with it every fourth is walked, and make test walks all of them without it.
const raced = true

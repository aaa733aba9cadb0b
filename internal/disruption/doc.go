// Package disruption says what a change takes on a node: it maps changed paths to the least disruptive actions that make
// the change real, and merges and orders the actions of several changes.
//
// The idea and the defaults come from OpenShift's node disruption policies: what nobody has declared safe is not done in
// place. The package is shared by the server, which answers from it what it can do, and by the agent on the node, which
// derives from it what it does; so that the two can't disagree.
package disruption
